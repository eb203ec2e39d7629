// Server streams that need no thread each. A source provides the next response, and a reactor writes it. If the
// source has nothing new, the reactor sleeps until a change notice. During a write, a notice only sets a flag. A slow
// reader thus skips states, but always gets the last one, and is told how many it missed. A client that reads nothing
// for too long loses its stream.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "api/guard/call_limits.h"
#include "api/wire/status.h"
#include "base/change_hub.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/work_pool.h"

namespace permafrost::api {

// The result of asking a source for the next response.
enum class Pull {
  kMore,  // the response is filled; ask again once it is written
  kLast,  // the response is filled; the stream then ends with OK
  kWait,  // nothing new; ask again after a change notice
  kEnd,   // nothing more will come; the stream ends with OK
};

// Provides the responses of a stream. Threads: one call at a time, on any thread.
template <class Response>
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Fills `response`, which is empty at the call. An error ends the stream with this error.
  virtual absl::StatusOr<Pull> Next(Response& response) = 0;
  // Returns whether Next may wait for a lock that is held during disk writes. If so, Next is called on a worker
  // thread of the StreamSet.
  virtual bool may_wait() const { return true; }
  // If the source skips states for slow clients, returns the method's name in RequestMethods(). Otherwise returns an
  // empty text.
  virtual std::string_view watch() const { return {}; }
  // Subscribes `listener` to the source's changes. Called once, before the first Next. A source that never returns
  // kWait may return null.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): a source that subscribes keeps it.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener /*listener*/) { return nullptr; }
};

// The open streams. A server that shuts down ends them through this set: each stream, even one that is added later,
// sends its remaining responses and ends with UNAVAILABLE. A thread of the set ends streams that nobody reads, and
// streams whose callers would no longer be admitted.
// Threads: all methods are thread-safe. The set must be empty when it is destroyed.
class StreamSet {
 public:
  class Member {
   public:
    // Called at most once. Must not add or remove members before it returns.
    virtual void Stop() = 0;
    // Ends the stream, with ABORTED, if a write has waited for the client for longer than `limit`. Must not add or
    // remove members before it returns.
    virtual void EndIfUnread(absl::Duration limit) = 0;
    // Ends the stream, with UNAUTHENTICATED, if its caller would no longer be admitted. Must not add or remove
    // members before it returns.
    virtual void EndIfRefused() = 0;

   protected:
    ~Member() = default;
  };

  // Takes the context of a call. Returns a function that checks, at any later time, whether the caller would still be
  // admitted (credentials.h).
  using Admission = std::function<std::function<absl::Status()>(const grpc::CallbackServerContext& context)>;
  // Called for each state that a watch skipped, with the watch's method.
  using DroppedObserver = std::function<void(std::string_view method)>;

  // `unread` is how long a write may wait for its client.
  explicit StreamSet(
      absl::Duration unread, Admission admission = [](const auto&) { return [] { return absl::OkStatus(); }; },
      DroppedObserver dropped = [](std::string_view) {});
  ~StreamSet();
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  void Add(Member* member);
  // Waits for a running Stop, EndIfUnread or EndIfRefused of the member.
  void Remove(Member* member);
  void StopAll();
  // Returns the admission check of a call that begins.
  std::function<absl::Status()> AdmissionOf(const grpc::CallbackServerContext& context) const {
    return admission_(context);
  }
  void CountDropped(std::string_view method) const { dropped_(method); }
  // The thread pool on which sources that may wait are called. The pool never refuses work, because each stream has
  // at most one piece of work in it.
  WorkPool& workers() { return workers_; }

 private:
  void LookAfter();

  const absl::Duration unread_;
  const Admission admission_;
  const DroppedObserver dropped_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<Member*> members_ ABSL_GUARDED_BY(mu_);
  Event closing_;
  WorkPool workers_;
  std::thread thread_;
};

// Returns the error with which a stopped stream ends.
absl::Status ServerStops();
// Ends a call whose client does not read, with ABORTED and a message that says for how long nothing was read.
// Threads: thread-safe.
void AbortUnread(grpc::CallbackServerContext& context, absl::Duration unread);
// Ends the call with `refused`, because its caller would no longer be admitted. The status has no details.
// Threads: thread-safe.
void AbortRefused(grpc::CallbackServerContext& context, const absl::Status& refused);
// Tells the client in the trailing metadata `permafrost-dropped-states` how many states were skipped.
void TellDropped(grpc::CallbackServerContext& context, int64_t dropped);

// If a stream's caller is no longer admitted, its client may take this long to read the message in progress.
inline constexpr absl::Duration kRefusedWriteTime = absl::Seconds(1);

// Writes a source's responses to one client. Owns itself: deleted in OnDone, after which no notice can arrive.
// Threads: gRPC's, the hub's and the stream set's. The thread that sets `turn_taken_` has the turn: the right to call
// the source, to write and to finish. Invariant: Finish is called once, and the thread that calls it never gives the
// turn back.
template <class Response>
class StreamReactor final : public grpc::ServerWriteReactor<Response>, private StreamSet::Member {
 public:
  // Returns the reactor of a service's handler. The reactor holds `slot` until the stream ends. `streams` must
  // outlive the reactor.
  static grpc::ServerWriteReactor<Response>* Start(grpc::CallbackServerContext& context, CallLimit::Slot slot,
                                                   std::unique_ptr<StreamSource<Response>> source, StreamSet& streams) {
    auto* reactor = new StreamReactor(context, std::move(slot), std::move(source), streams);
    streams.Add(reactor);
    // The subscription comes before the first Next, so that no change between the two is lost.
    reactor->subscription_ = reactor->source_->Subscribe([reactor] { reactor->OnChange(); });
    // This thread has had the turn since the constructor. OnDone cannot run before gRPC has the reactor, so the
    // reactor still exists.
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
      End(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    if (TakeTurn(&StreamReactor::cancelled_)) End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    subscription_.reset();
    streams_.Remove(this);
    delete this;
  }

 private:
  StreamReactor(grpc::CallbackServerContext& context, CallLimit::Slot slot,
                std::unique_ptr<StreamSource<Response>> source, StreamSet& streams)
      : context_(context),
        slot_(std::move(slot)),
        source_(std::move(source)),
        streams_(streams),
        admitted_(streams.AdmissionOf(context)) {}

  void OnChange() {
    CountIfPassedOver();
    if (TakeTurn(&StreamReactor::changed_)) Continue();
  }
  void Stop() override {
    if (TakeTurn(&StreamReactor::stopping_)) Continue();
  }

  // If the source may wait, passes the caller's turn to a worker. gRPC's threads, which also answer health checks,
  // and the hub's thread must not wait.
  void Continue() {
    if (!source_->may_wait() || !streams_.workers().Post([this] { Advance(); })) Advance();
  }

  // Called at each change notice. Counts a skipped state if a write is in progress and another change is pending
  // already. The first such notice of a write is not counted, because it may be a late notice of the state that is
  // being sent. The count is thus never too high, and may be too low by one for each write.
  void CountIfPassedOver() {
    if (source_->watch().empty()) return;
    {
      absl::MutexLock lock(&mu_);
      if (!write_ || !changed_) return;
      if (!std::exchange(told_late_, true)) return;
      ++dropped_;
    }
    streams_.CountDropped(source_->watch());
  }

  // After AbortUnread, gRPC fails the write. The stream then ends as if the client had cancelled it.
  void EndIfUnread(absl::Duration limit) override {
    absl::Duration unread;
    {
      absl::MutexLock lock(&mu_);
      unread = write_ ? write_->Elapsed() : absl::ZeroDuration();
    }
    if (unread > limit) AbortUnread(context_, unread);
  }

  void EndIfRefused() override {
    absl::Status now = admitted_();
    if (now.ok()) return;
    bool writing = false;
    {
      absl::MutexLock lock(&mu_);
      refused_ = now;
      writing = write_ && write_->Elapsed() > kRefusedWriteTime;
    }
    if (writing) return AbortRefused(context_, now);
    if (TakeTurn(&StreamReactor::changed_)) Continue();
  }

  // Ends the stream. The caller must have the turn.
  void End(const grpc::Status& status) {
    Prepare();
    this->Finish(status);
  }
  // Adds the trailing metadata. Must run before the last message or status is sent.
  void Prepare() {
    int64_t dropped = 0;
    {
      absl::MutexLock lock(&mu_);
      dropped = dropped_;
    }
    if (dropped > 0) TellDropped(context_, dropped);
  }

  // Sets `flag`, which the holder of the turn reads. If the turn was free, takes it and returns true.
  bool TakeTurn(bool StreamReactor::*flag) {
    absl::MutexLock lock(&mu_);
    this->*flag = true;
    return !std::exchange(turn_taken_, true);
  }

  // The caller must have the turn. Once a write or a finish has begun, this function does not access `this`, which
  // may be destroyed.
  void Advance() {
    while (true) {
      bool stopping = false;
      absl::Status refused;
      {
        absl::MutexLock lock(&mu_);
        changed_ = false;
        stopping = stopping_;
        refused = refused_;
      }
      if (!refused.ok()) return End(ToGrpcStatus(refused));
      response_.Clear();
      const absl::StatusOr<Pull> pull = WithoutThrowing("the stream", [this] { return source_->Next(response_); });
      if (!pull.ok()) return End(ToGrpcStatus(pull.status()));
      if (*pull == Pull::kMore || *pull == Pull::kLast) {
        absl::MutexLock lock(&mu_);
        write_.emplace();
        told_late_ = false;
      }
      if (*pull == Pull::kMore) return this->StartWrite(&response_);
      if (*pull == Pull::kLast) {
        Prepare();
        return this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
      }
      if (*pull == Pull::kEnd) return End(grpc::Status::OK);
      // `stopping` was read before Next, so that all earlier changes have been sent.
      if (stopping) return End(ToGrpcStatus(ServerStops()));
      absl::ReleasableMutexLock lock(&mu_);
      if (cancelled_) {
        lock.Release();
        return End(grpc::Status::CANCELLED);
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
  const std::function<absl::Status()> admitted_;
  std::unique_ptr<ChangeHub::Subscription> subscription_;
  Response response_;  // used only by the holder of the turn

  absl::Mutex mu_;
  bool turn_taken_ ABSL_GUARDED_BY(mu_) = true;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);            // why the caller is no longer admitted; Ok: it still is
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;             // number of skipped states
  bool told_late_ ABSL_GUARDED_BY(mu_) = false;          // true: the current write has had its uncounted notice
  std::optional<Stopwatch> write_ ABSL_GUARDED_BY(mu_);  // time since the write in progress began
};

// A stream that ends with `status` at once.
template <class Response>
class FailedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit FailedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// Returns the reactor of a service's handler. `open` returns a StatusOr of a unique_ptr to a source, whose responses
// are streamed. If `open` or `limit` returns an error, the stream ends with that error. The slot is taken before
// `open` runs, so that a call beyond the limit opens nothing.
template <class Response, class Open>
grpc::ServerWriteReactor<Response>* StartStream(grpc::CallbackServerContext& context, CallLimit& limit,
                                                StreamSet& streams, const Open& open) {
  absl::StatusOr<CallLimit::Slot> slot = limit.Take(context);
  if (!slot.ok()) return new FailedStream<Response>(slot.status());
  auto source = open();
  if (!source.ok()) return new FailedStream<Response>(source.status());
  return StreamReactor<Response>::Start(context, *std::move(slot), *std::move(source), streams);
}

// A source that opens another source in its first Next, on a thread that may wait, instead of in the handler.
// Threads: same as StreamSource.
template <class Response>
class DeferredSource final : public StreamSource<Response> {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<StreamSource<Response>>>()>;

  // The first Next calls `open`. An error of `open` ends the stream.
  explicit DeferredSource(Open open) : open_(std::move(open)) {}

  absl::StatusOr<Pull> Next(Response& response) override {
    if (!source_) {
      PF_ASSIGN_OR_RETURN(source_, open_());
      subscription_ = source_->Subscribe(std::move(listener_));
    }
    return source_->Next(response);
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    listener_ = std::move(listener);
    return std::make_unique<Handle>(*this);
  }

 private:
  // When destroyed, ends the subscription of the opened source, if there is one. By then, the handle's owner must
  // have stopped calling the source.
  class Handle final : public ChangeHub::Subscription {
   public:
    explicit Handle(DeferredSource& owner) : owner_(owner) {}
    ~Handle() override { owner_.subscription_.reset(); }

   private:
    DeferredSource& owner_;
  };

  const Open open_;
  ChangeHub::Listener listener_;
  std::unique_ptr<StreamSource<Response>> source_;
  std::unique_ptr<ChangeHub::Subscription> subscription_;
};

}  // namespace permafrost::api
