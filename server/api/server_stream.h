// Server streams without a thread each: a source says what comes next, a reactor writes it, and a change notice wakes
// the reactor when the source had nothing. While a write is under way notices only set a flag, so a slow reader skips
// states but never the last. A client that reads nothing for too long loses its stream.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "api/call_limits.h"
#include "api/status.h"
#include "base/change_hub.h"
#include "base/monotonic.h"
#include "base/without_throwing.h"
#include "base/work_pool.h"

namespace permafrost::api {

// What a source has for its stream now.
enum class Pull {
  kMore,  // the response is filled; ask again once it is written
  kLast,  // the response is filled; the stream then ends with OK
  kWait,  // nothing new; ask again after a change notice
  kEnd,   // nothing more will come; the stream ends with OK
};

// Threads: one call at a time, on any thread.
template <class Response>
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Fills `response`, which comes empty. An error ends the stream with it.
  virtual absl::StatusOr<Pull> Next(Response& response) = 0;
  // Whether Next may wait for a lock that is held while the disk is written: it is then asked on a thread of the set's.
  virtual bool may_wait() const { return true; }
  // Asked once, before the first Next; null for a source that never says kWait.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): a source that subscribes keeps it.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener /*listener*/) { return nullptr; }
};

// The streams that are open, so that a server that goes down can end them: each sends what there still is and ends with
// UNAVAILABLE. One that is added later does the same. A thread of the set's own ends those that nobody reads.
// Threads: all methods are safe anywhere. Empty when destroyed.
class StreamSet {
 public:
  class Member {
   public:
    // At most once; must not add or remove members before it returns.
    virtual void Stop() = 0;
    // Ends the stream, with ABORTED, if a write has waited for its client for longer than `limit`. The same rule.
    virtual void EndIfUnread(absl::Duration limit) = 0;

   protected:
    ~Member() = default;
  };

  // `unread`: how long a write may wait for its client.
  explicit StreamSet(absl::Duration unread);
  ~StreamSet();
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  void Add(Member* member);
  // Waits for a running Stop or EndIfUnread of it.
  void Remove(Member* member);
  void StopAll();
  // Where sources that may wait are asked. Never refuses: each stream has one piece of work there at most.
  WorkPool& workers() { return workers_; }

 private:
  void EndUnread();

  const absl::Duration unread_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<Member*> members_ ABSL_GUARDED_BY(mu_);
  Event closing_;
  WorkPool workers_;
  std::thread thread_;
};

// What a stream that was stopped ends with.
absl::Status ServerStops();
// Ends a call that waits for its client with ABORTED, saying for how long nothing was read. Safe anywhere.
void AbortUnread(grpc::CallbackServerContext& context, absl::Duration unread);

// Threads: gRPC's, the hub's and the stream set's; `turn_taken_` gives one of them the right to ask the source, to
// write and to finish. Invariant: Finish is called once, and by the holder of the turn, which is then never given back.
// Owns itself: deleted in OnDone, after which no notice can come.
template <class Response>
class StreamReactor final : public grpc::ServerWriteReactor<Response>, private StreamSet::Member {
 public:
  // For a service's handler to return. `slot` is held to the end; `streams` outlives the reactor.
  static grpc::ServerWriteReactor<Response>* Start(grpc::CallbackServerContext& context, CallLimit::Slot slot,
                                                   std::unique_ptr<StreamSource<Response>> source, StreamSet& streams) {
    auto* reactor = new StreamReactor(context, std::move(slot), std::move(source), streams);
    streams.Add(reactor);
    // Before the first Next: a change between them is then not lost.
    reactor->subscription_ = reactor->source_->Subscribe([reactor] { reactor->OnChange(); });
    // The turn is this call's from construction on. OnDone cannot come before gRPC has the reactor, so it is still
    // here.
    reactor->Continue();
    return reactor;
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mu_);
      write_.reset();
    }
    if (ok) {
      Continue();
    } else {
      this->Finish(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    if (TakeTurn(&StreamReactor::cancelled_)) this->Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    subscription_.reset();
    streams_.Remove(this);
    delete this;
  }

 private:
  StreamReactor(grpc::CallbackServerContext& context, CallLimit::Slot slot,
                std::unique_ptr<StreamSource<Response>> source, StreamSet& streams)
      : context_(context), slot_(std::move(slot)), source_(std::move(source)), streams_(streams) {}

  void OnChange() {
    if (TakeTurn(&StreamReactor::changed_)) Continue();
  }
  void Stop() override {
    if (TakeTurn(&StreamReactor::stopping_)) Continue();
  }

  // The caller has the turn, which goes to a thread that may wait if need be: neither gRPC's, which health is asked on,
  // nor the hub's do.
  void Continue() {
    if (!source_->may_wait() || !streams_.workers().Post([this] { Advance(); })) Advance();
  }

  // gRPC then fails the write, which ends the stream as a client's cancel does.
  void EndIfUnread(absl::Duration limit) override {
    absl::Duration unread;
    {
      absl::MutexLock lock(&mu_);
      unread = write_ ? write_->Elapsed() : absl::ZeroDuration();
    }
    if (unread > limit) AbortUnread(context_, unread);
  }

  // Raises `flag` for whoever has the turn; true if it was free and is the caller's now.
  bool TakeTurn(bool StreamReactor::*flag) {
    absl::MutexLock lock(&mu_);
    this->*flag = true;
    return !std::exchange(turn_taken_, true);
  }

  // The caller has the turn. After a write or a finish has begun, nothing of `this` is touched: it may be gone.
  void Advance() {
    while (true) {
      bool stopping = false;
      {
        absl::MutexLock lock(&mu_);
        changed_ = false;
        stopping = stopping_;
      }
      response_.Clear();
      const absl::StatusOr<Pull> pull = WithoutThrowing("the stream", [this] { return source_->Next(response_); });
      if (!pull.ok()) return this->Finish(ToGrpcStatus(pull.status()));
      if (*pull == Pull::kMore || *pull == Pull::kLast) {
        absl::MutexLock lock(&mu_);
        write_.emplace();
      }
      if (*pull == Pull::kMore) return this->StartWrite(&response_);
      if (*pull == Pull::kLast) return this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
      if (*pull == Pull::kEnd) return this->Finish(grpc::Status::OK);
      // `stopping` was read before Next, so what had changed by then has been sent.
      if (stopping) return this->Finish(ToGrpcStatus(ServerStops()));
      absl::ReleasableMutexLock lock(&mu_);
      if (cancelled_) {
        lock.Release();
        return this->Finish(grpc::Status::CANCELLED);
      }
      if (changed_ || stopping_) continue;
      turn_taken_ = false;
      return;
    }
  }

  grpc::CallbackServerContext& context_;
  const CallLimit::Slot slot_;
  const std::unique_ptr<StreamSource<Response>> source_;
  StreamSet& streams_;
  std::unique_ptr<ChangeHub::Subscription> subscription_;
  Response response_;  // of the turn's holder

  absl::Mutex mu_;
  bool turn_taken_ ABSL_GUARDED_BY(mu_) = true;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Stopwatch> write_ ABSL_GUARDED_BY(mu_);  // since the write that is under way began
};

// A stream that ends with `status` at once.
template <class Response>
class FailedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit FailedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// For a service's handler to return: the stream of what `open` makes, a StatusOr of a unique_ptr to a source, or one
// that ends with its error, or with `limit`'s. The slot comes first: a call too many opens nothing.
template <class Response, class Open>
grpc::ServerWriteReactor<Response>* StartStream(grpc::CallbackServerContext& context, CallLimit& limit,
                                                StreamSet& streams, const Open& open) {
  absl::StatusOr<CallLimit::Slot> slot = limit.Take(context);
  if (!slot.ok()) return new FailedStream<Response>(slot.status());
  auto source = open();
  if (!source.ok()) return new FailedStream<Response>(source.status());
  return StreamReactor<Response>::Start(context, *std::move(slot), *std::move(source), streams);
}

}  // namespace permafrost::api
