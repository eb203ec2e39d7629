
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/services/unary.h"
#include "api/wire/status.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

// A call with its own thread. Owns itself: deleted in OnDone.
// Threads: the call's own thread calls Finish. OnDone, on gRPC's thread, joins the call's own thread.
class ThreadedCall final : public grpc::ServerUnaryReactor {
 public:
  ThreadedCall(const grpc::CallbackServerContext& context, std::string_view what, CallLimit::Slot slot,
               std::function<absl::Status()> body)
      : context_(context), what_(what), slot_(std::move(slot)), body_(std::move(body)) {
    absl::StatusOr<std::thread> thread = StartThread(what_, [this] {
      const grpc::Status status = ToGrpcStatus(Do());
      // Frees the slot before Finish, so that the slot is free once the client has the answer.
      slot_.reset();
      Finish(status);
    });
    if (thread.ok()) {
      thread_ = *std::move(thread);
    } else {
      Finish(ToGrpcStatus(thread.status()));
    }
  }

  void OnDone() override {
    if (thread_.joinable()) thread_.join();
    delete this;
  }

 private:
  absl::Status Do() const {
    const Patience patience(PatienceOf(context_), [this] { return !context_.IsCancelled(); });
    return WithoutThrowing(what_, body_);
  }

  const grpc::CallbackServerContext& context_;
  const std::string what_;
  CallLimit::Slot slot_;
  const std::function<absl::Status()> body_;
  std::thread thread_;
};

}  // namespace

absl::Status NoThreadError(std::string_view what, std::string_view why) {
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat(AbslView(what), " needs a thread, and the system gives none (", AbslView(why),
                                     "); ask again later, or let the daemon have more threads or memory (ulimit -u, "
                                     "systemd's TasksMax)")),
                    kNoThread);
}

absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    return NoThreadError(what, e.what());
  }
}

grpc::ServerUnaryReactor* StartThreadedCall(grpc::CallbackServerContext* context, std::string_view what,
                                            CallLimit::Slot slot, std::function<absl::Status()> body) {
  return new ThreadedCall(*context, what, std::move(slot), std::move(body));
}

}  // namespace permafrost::api
