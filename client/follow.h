// Follows a server stream to its end, across restarts of the server.
// Threads: runs on the caller's thread.
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
  // Set only if `end` is kFailed.
  Failure failure;
};

// Decides what the end of a stream means, and waits between attempts to reconnect.
class Reconnect {
 public:
  // `window` is how long to wait for a server that went away.
  Reconnect(Session& session, absl::Duration window) : session_(session), window_(window) {}

  // Records that the connection stands. Call it when a message has arrived.
  void Alive();
  // Call it when a stream ended with `status` before its last message. If the caller should open the stream again,
  // waits and returns nullopt. Otherwise returns the result of following.
  std::optional<FollowResult> Ended(const grpc::Status& status);

 private:
  Session& session_;
  const absl::Duration window_;
  // Measures the time since the server was lost. Empty while the connection stands.
  std::optional<Stopwatch> lost_;
  absl::Duration backoff_;
};

// If the server dropped changes because this client read them too slowly, prints one line on stderr. Prints nothing
// in JSON mode.
void TellPassedOver(Session& session, const grpc::ClientContext& ended);

// Reads the stream that `open` begins, and reopens it after each loss. Passes each message to `on_message`, which
// returns true for the last one. With `ok_is_end`, a stream that ends with OK has also reached its end, and is not
// opened again. Fails at once if the server was unreachable from the start.
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
