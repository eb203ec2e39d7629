// Serves /metrics over HTTP.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace prometheus {
class Counter;
class Registry;
}  // namespace prometheus

namespace permafrost::telemetry {

// The metrics as one scrape sees them: brought up to date, then collected.

// Threads: all methods are safe anywhere; one scrape at a time, so that the hook needs no lock of its own.
// Invariant: Collect throws nothing. HTTP servers call it through C, where an exception would end the process.
class RefreshedRegistry final : public prometheus::Collectable {
 public:
  // Registers permafrost_scrape_failures_total. `before_scrape` may be empty.
  RefreshedRegistry(std::shared_ptr<prometheus::Registry> registry, std::function<void()> before_scrape);

  // After `before_scrape`. If that throws, the metrics are as they were before it, the failure is counted, and the
  // first one in a row is logged. Empty where they cannot be collected either.
  std::vector<prometheus::MetricFamily> Collect() const noexcept override;

 private:
  void Refresh() const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountFailure(const char* why) const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<void()> before_scrape_;
  prometheus::Counter& failures_;
  mutable absl::Mutex mu_;
  mutable bool failed_ ABSL_GUARDED_BY(mu_) = false;  // the last one
};

// /metrics over HTTP, on threads of its own. Connections that say nothing, or little by little, are closed after
// seconds and do not hold up scrapes meanwhile. Threads: all methods are safe anywhere.
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
