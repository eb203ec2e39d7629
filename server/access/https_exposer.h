// /metrics over HTTPS, since the HTTP library of the plain one (civetweb 1.15, as Debian 12 builds it) calls a function
// that OpenSSL 3 does not export and dies at the first connection.
// Threads: all methods are safe anywhere; each connection has a thread of its own, for seconds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "access/gate.h"
#include "access/tls.h"
#include "telemetry/exposer.h"

namespace prometheus {
class Registry;
}

namespace permafrost::access {

struct HttpsOptions {
  std::string address;  // HOST:PORT; port 0 picks one
  // Borrowed. With a client authority, clients without a valid certificate are refused.
  CertificateFiles* certificates = nullptr;
  // Borrowed. A viewer may read, by `Authorization: Bearer TOKEN` or by the token as the password of `Basic`.
  const Gate* gate = nullptr;
  // The most connections at once; more are closed.
  int connections = 64;
  // The time of a whole connection: handshake, request and answer.
  absl::Duration limit = absl::Seconds(10);
};

// Serves `registry` at https://ADDRESS/metrics as telemetry::Exposer does over http. Errors: InvalidArgument for what
// is no HOST:PORT; FailedPrecondition naming the address and the reason when it cannot be bound.
absl::StatusOr<std::unique_ptr<telemetry::Exposer>> StartHttpsExposer(HttpsOptions options,
                                                                      std::shared_ptr<prometheus::Registry> registry,
                                                                      std::function<void()> before_scrape);

// Returns what the gate is shown of an HTTP header's value: "Basic BASE64(user:TOKEN)" as "Bearer TOKEN", else the
// value.
std::string BearerOf(std::string_view authorization);

}  // namespace permafrost::access
