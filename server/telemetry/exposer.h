// /metrics over HTTP, on threads of its own. Connections that say nothing, or little by little, are closed after
// seconds and do not hold up scrapes meanwhile. Threads: all methods are safe anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace prometheus {
class Registry;
}

namespace permafrost::telemetry {

class Exposer {
 public:
  // Serves `registry` at http://ADDRESS/metrics; port 0 picks one. `before_scrape` runs on the scraping thread before
  // each collection, one scrape at a time; what it throws is counted and logged (RefreshedRegistry). `admits` decides
  // by the password of HTTP's basic authentication, whatever the user's name is; without it everyone is let in. Errors:
  // InvalidArgument for what is no HOST:PORT; FailedPrecondition naming the address when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(const std::string& address,
                                                        std::shared_ptr<prometheus::Registry> registry,
                                                        std::function<void()> before_scrape,
                                                        std::function<bool(const std::string&)> admits = {});
  virtual ~Exposer() = default;
  // host:port as bound.
  virtual const std::string& address() const = 0;
};

}  // namespace permafrost::telemetry
