// A client stream: first a start message, then data. Takes one request after the other.
// Threads: each call has its own thread, and only this thread waits for the disk. gRPC's threads only tell it that a
// message has arrived.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/services/unary.h"
#include "api/streams/server_stream.h"
#include "api/wire/status.h"
#include "base/status.h"

namespace permafrost::api {

// A call that ends with `status` at once. Owns itself.
template <class Request>
class RefusedStream final : public grpc::ServerReadReactor<Request> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// A call that uploads something. Its first message has `start`; all later messages have data, which the `Upload`
// takes. The Upload is destroyed before the client gets the call's status, so that the client can retry at once.
// A client that sends nothing for `unread` loses its call, with ABORTED. An error of the machine ends the call with
// UNAVAILABLE; the client then waits and sends again. Borrows the context and the stream set. Owns itself: deleted in
// OnDone.
template <class Request, class Upload>
class ClientStream : public grpc::ServerReadReactor<Request>, private StreamSet::Member {
 public:
  // Returns the reactor of a service's handler. `what` names the call in errors: "the upload".
  static grpc::ServerReadReactor<Request>* Start(ClientStream* call, const char* what) {
    call->streams_.Add(call);
    // OnDone joins the thread. OnDone cannot run before gRPC has the reactor, so it finds `thread_` set.
    absl::StatusOr<std::thread> thread = StartThread(what, [call, what] {
      call->Finish(ToGrpcStatus(AskAgainLater(WithoutThrowing(what, [call] { return call->Receive(); }))));
    });
    if (thread.ok()) {
      call->thread_ = *std::move(thread);
    } else {
      call->Finish(ToGrpcStatus(thread.status()));
    }
    return call;
  }

  void OnReadDone(bool ok) final {
    const absl::MutexLock lock(&mu_);
    read_ = ok;
  }
  void OnCancel() final {
    const absl::MutexLock lock(&mu_);
    read_ = false;
  }
  void OnDone() final {
    if (thread_.joinable()) thread_.join();
    streams_.Remove(this);
    delete this;
  }

 protected:
  ClientStream(grpc::CallbackServerContext& context, CallLimit::Slot slot, StreamSet& streams, absl::Duration unread)
      : context_(context),
        slot_(std::move(slot)),
        streams_(streams),
        unread_(unread),
        admitted_(streams.AdmissionOf(context)) {}

  // The next three methods run on the call's own thread. If one returns an error, the call ends with that error.
  // Takes the start message. Returns null if the response is complete without any data.
  virtual absl::StatusOr<std::unique_ptr<Upload>> Begin(const Request& start) = 0;
  virtual absl::Status Append(Upload& upload, const Request& data) = 0;
  // Called when all data have arrived.
  virtual absl::Status End(Upload& upload) = 0;

 private:
  absl::Status Receive() {
    const auto missing = [] { return absl::InvalidArgumentError("start: is missing; it comes before the data"); };
    std::unique_ptr<Upload> upload;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, NextRequest());
      if (!more) break;
      if (upload) {
        if (request_.has_start()) return absl::InvalidArgumentError("start: comes once, before the data");
        PF_RETURN_IF_ERROR(Append(*upload, request_));
        continue;
      }
      if (!request_.has_start()) return missing();
      PF_ASSIGN_OR_RETURN(upload, Begin(request_));
      if (!upload) return absl::OkStatus();
    }
    PF_RETURN_IF_ERROR(CheckClient());
    return upload ? End(*upload) : missing();
  }
  // Reads the next request into `request_`. Returns false if there is none.
  absl::StatusOr<bool> NextRequest() {
    {
      const absl::MutexLock lock(&mu_);
      if (read_ == false) return false;  // cancelled
      read_.reset();
    }
    this->StartRead(&request_);
    const absl::MutexLock lock(&mu_);
    const auto told = [this]()
                          ABSL_SHARED_LOCKS_REQUIRED(mu_) { return read_.has_value() || stopping_ || !refused_.ok(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&told), unread_)) {
      return absl::AbortedError(absl::StrCat("nothing came for ", absl::FormatDuration(unread_)));
    }
    PF_RETURN_IF_ERROR(refused_);
    if (!read_) return ServerStops();
    return *read_;
  }
  // Returns Cancelled if the requests ended because the client went away; otherwise Ok.
  absl::Status CheckClient() const {
    return context_.IsCancelled() ? absl::CancelledError("the client went away") : absl::OkStatus();
  }
  static absl::Status AskAgainLater(const absl::Status& status) {
    return IsTransient(status) ? absl::UnavailableError(status.message()) : status;
  }
  void Stop() final {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  // No-op: the call's thread has its own time limit.
  void EndIfUnread(absl::Duration /*limit*/) final {}
  void EndIfRefused() final {
    absl::Status now = admitted_();
    if (now.ok()) return;
    const absl::MutexLock lock(&mu_);
    refused_ = std::move(now);
  }

  grpc::CallbackServerContext& context_;
  const CallLimit::Slot slot_;
  StreamSet& streams_;
  const absl::Duration unread_;
  const std::function<absl::Status()> admitted_;
  Request request_;
  std::thread thread_;

  absl::Mutex mu_;
  std::optional<bool> read_ ABSL_GUARDED_BY(mu_);  // true: the last read got a message; nullopt: the read is pending
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);  // set once the caller would no longer be admitted
};

}  // namespace permafrost::api
