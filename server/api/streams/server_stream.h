// Server streams without a thread each: a source says what comes next, a reactor writes it, and a change notice wakes
// the reactor when the source had nothing. While a write is under way notices only set a flag, so a slow reader skips
// states but never the last, and is told how many. A client that reads nothing for too long loses its stream.
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

// The answer of a source that its stream asks.
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
  // Returns whether Next may wait for a lock that is held while the disk is written: it is then asked on a thread of
  // the set's.
  virtual bool may_wait() const { return true; }
  // The method's name in RequestMethods(), if the source skips states that its client is too slow for. Empty: it skips
  // nothing.
  virtual std::string_view watch() const { return {}; }
  // Asked once, before the first Next; null for a source that never says kWait.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): a source that subscribes keeps it.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener /*listener*/) { return nullptr; }
};

// The streams that are open, so that a server that goes down can end them: each sends what there still is and ends with
// UNAVAILABLE. One that is added later does the same. A thread of the set's own ends those that nobody reads, and those
// whose callers would not be let in any more.
// Threads: all methods are safe anywhere. Empty when destroyed.
class StreamSet {
 public:
  class Member {
   public:
    // Called at most once. It must not add or remove members before it returns.
    virtual void Stop() = 0;
    // Ends the stream, with ABORTED, if a write has waited for its client for longer than `limit`. The same rule.
    virtual void EndIfUnread(absl::Duration limit) = 0;
    // Ends the stream, with UNAUTHENTICATED, if its caller would not be let in any more. The same rule.
    virtual void EndIfRefused() = 0;

   protected:
    ~Member() = default;
  };

  // Says of a call's context whether its caller would still be let in, as credentials.h does.
  using Admission = std::function<std::function<absl::Status()>(const grpc::CallbackServerContext& context)>;
  // Told of each state that a watch passed over, by its method.
  using DroppedObserver = std::function<void(std::string_view method)>;

  // `unread`: how long a write may wait for its client.
  explicit StreamSet(
      absl::Duration unread, Admission admission = [](const auto&) { return [] { return absl::OkStatus(); }; },
      DroppedObserver dropped = [](std::string_view) {});
  ~StreamSet();
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  void Add(Member* member);
  // Waits for a running Stop or EndIfUnread of it.
  void Remove(Member* member);
  void StopAll();
  // Returns the check of a call that begins.
  std::function<absl::Status()> AdmissionOf(const grpc::CallbackServerContext& context) const {
    return admission_(context);
  }
  void CountDropped(std::string_view method) const { dropped_(method); }
  // The pool on which sources that may wait are asked. Never refuses: each stream has one piece of work there at most.
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

// The error that a stopped stream ends with.
absl::Status ServerStops();
// Ends a call that waits for its client with ABORTED, saying for how long nothing was read. Safe anywhere.
void AbortUnread(grpc::CallbackServerContext& context, absl::Duration unread);
// Ends the stream in the same way if its caller would not be let in any more; the status has no details.
void AbortRefused(grpc::CallbackServerContext& context, const absl::Status& refused);
// Tells the client, beside the stream's end, how many states it was not sent: `permafrost-dropped-states`.
void TellDropped(grpc::CallbackServerContext& context, int64_t dropped);

// The time that a client whose caller is not let in any more has to take the message under way.
inline constexpr absl::Duration kRefusedWriteTime = absl::Seconds(1);

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

  // The caller has the turn, which goes to a thread that may wait if need be: neither gRPC's, which health is asked on,
  // nor the hub's do.
  void Continue() {
    if (!source_->may_wait() || !streams_.workers().Post([this] { Advance(); })) Advance();
  }

  // The client has not taken the message before, and what was to come after it is now passed over for what comes next.
  // The first change that a write sees may be the one that it sends, told late: it is taken for that, so that what is
  // counted was passed over, and a state or so may have been beside it.
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

  // gRPC then fails the write, which ends the stream as a client's cancel does.
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

  // The caller has the turn.
  void End(const grpc::Status& status) {
    Prepare();
    this->Finish(status);
  }
  // Before the last that is sent.
  void Prepare() {
    int64_t dropped = 0;
    {
      absl::MutexLock lock(&mu_);
      dropped = dropped_;
    }
    if (dropped > 0) TellDropped(context_, dropped);
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
      // `stopping` was read before Next, so what had changed by then has been sent.
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
  Response response_;  // of the turn's holder

  absl::Mutex mu_;
  bool turn_taken_ ABSL_GUARDED_BY(mu_) = true;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);            // of its caller, by now; Ok: it is let in
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;             // states that were passed over
  bool told_late_ ABSL_GUARDED_BY(mu_) = false;          // whether one was not counted during the write
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

// A source that is opened on a thread that may wait, rather than in the handler.
// Threads: as StreamSource.
template <class Response>
class DeferredSource final : public StreamSource<Response> {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<StreamSource<Response>>>()>;

  // `open` is called once, by the first Next; its error ends the stream.
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
  // Ends that of the source, if it was opened: who holds it asks the source nothing any more.
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
