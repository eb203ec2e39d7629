// Serves /metrics over HTTPS. The HTTP library that serves plain text (civetweb 1.15, as Debian 12 builds it) cannot
// serve HTTPS: at the first connection it calls a function that OpenSSL 3 does not export, and dies.
// Threads: all methods are thread-safe. Each connection has its own thread, for at most HttpsOptions::limit.
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
  // Borrowed. If it has a client authority, clients without a valid certificate are refused.
  CertificateFiles* certificates = nullptr;
  // Borrowed. A viewer may read, with `Authorization: Bearer TOKEN` or with the token as the password of `Basic`.
  const Gate* gate = nullptr;
  // The most simultaneous connections. Further connections are closed.
  int connections = 64;
  // The time limit of a whole connection: handshake, request and answer.
  absl::Duration limit = absl::Seconds(10);
};

// Serves `registry` at https://ADDRESS/metrics, like telemetry::Exposer over http. Errors: InvalidArgument if
// `address` is not HOST:PORT; FailedPrecondition, naming the address and the reason, if the address cannot be bound.
absl::StatusOr<std::unique_ptr<telemetry::Exposer>> StartHttpsExposer(HttpsOptions options,
                                                                      std::shared_ptr<prometheus::Registry> registry,
                                                                      std::function<void()> before_scrape);

// Converts the value of an HTTP `Authorization` header for the gate. "Basic BASE64(user:TOKEN)" becomes "Bearer
// TOKEN"; other values are unchanged.
std::string BearerOf(std::string_view authorization);

}  // namespace permafrost::access
