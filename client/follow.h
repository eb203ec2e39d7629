// Follows a server stream to its end across restarts of the server.
// Threads: the caller's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/monotonic.h"
#include "client/session.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"

namespace permafrost::client {

enum class FollowEnd { kDone, kInterrupted, kFailed };

struct FollowResult {
  FollowEnd end = FollowEnd::kDone;
  // Set when kFailed.
  Failure failure;
};

// Decides what a stream's end means and waits between attempts.
class Reconnect {
 public:
  // `window`: how long a server that went away is waited for.
  Reconnect(Session& session, absl::Duration window) : session_(session), window_(window) {}

  // A message came.
  void Alive();
  // The stream ended with `status` before its task was done. Empty: try once more (the wait is over); else the outcome.
  std::optional<FollowResult> Ended(const grpc::Status& status);

 private:
  Session& session_;
  const absl::Duration window_;
  // Since the server was lost; empty while it is there.
  std::optional<Stopwatch> lost_;
  absl::Duration backoff_;
};

// One line on stderr, but not beside JSON, where the server passed over changes, since this client took them more
// slowly than they came.
void TellPassedOver(Session& session, const grpc::ClientContext& ended);

// Reads the stream that `open` begins (anew after each loss) and hands each message to `on_message`, which returns true
// when the last one has come. `ok_is_end`: a stream that ends with OK is done, too. A server that was never there is
// not waited for.
template <class Message>
FollowResult Follow(Session& session, absl::Duration window,
                    const std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>& open,
                    const std::function<bool(const Message&)>& on_message, bool ok_is_end) {
  Interrupt::Scope keep_running(session.interrupt(), nullptr);
  if (!session.Connect()) {
    if (session.interrupt().requested()) return {FollowEnd::kInterrupted, {}};
    return {FollowEnd::kFailed,
            UnreachableFailure(session.options().server, session.options().credentials.tls, session.name())};
  }
  Reconnect reconnect(session, window);
  while (true) {
    grpc::ClientContext context;
    Interrupt::Scope cancel(session.interrupt(), &context);
    const auto reader = open(&context);
    bool done = false;
    Message message;
    while (reader->Read(&message)) {
      reconnect.Alive();
      done = on_message(message) || done;
      message.Clear();
    }
    const grpc::Status status = reader->Finish();
    TellPassedOver(session, context);
    if (done || (status.ok() && ok_is_end)) return {};
    if (auto result = reconnect.Ended(status)) return *result;
  }
}

}  // namespace permafrost::client
