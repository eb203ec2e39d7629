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

// A registry that refreshes its metrics at the beginning of each scrape, before they are collected.
// Threads: all methods are safe anywhere. Scrapes run one at a time, so the hook needs no lock of its own.
// Invariant: Collect throws nothing. The HTTP server calls it from C code, where an exception would end the process.
class RefreshedRegistry final : public prometheus::Collectable {
 public:
  // Registers permafrost_scrape_failures_total. `before_scrape` may be empty.
  RefreshedRegistry(std::shared_ptr<prometheus::Registry> registry, std::function<void()> before_scrape);

  // Runs `before_scrape`, then collects the metrics. If `before_scrape` throws, the metrics keep their last values
  // and the failure is counted; the first of consecutive failures is logged. If collecting itself fails, returns no
  // metrics.
  std::vector<prometheus::MetricFamily> Collect() const noexcept override;

 private:
  void Refresh() const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountFailure(const char* why) const noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<void()> before_scrape_;
  prometheus::Counter& failures_;
  mutable absl::Mutex mu_;
  mutable bool failed_ ABSL_GUARDED_BY(mu_) = false;  // true if the last scrape failed
};

// Serves /metrics over HTTP, on its own threads. A connection that sends nothing, or sends slowly, is closed after
// seconds and does not delay other scrapes.
// Threads: all methods are safe anywhere.
class Exposer {
 public:
  // Serves `registry` at http://ADDRESS/metrics; port 0 picks a free port. `before_scrape` runs before each
  // collection, on the thread that serves the scrape, one scrape at a time. RefreshedRegistry counts and logs
  // exceptions of `before_scrape`. `admits` receives the password of HTTP basic authentication, and returns true to
  // let the caller in. The user name is ignored. If `admits` is empty, every caller is let in.
  // Errors: InvalidArgument if `address` is not HOST:PORT; FailedPrecondition naming the address if it cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(const std::string& address,
                                                        std::shared_ptr<prometheus::Registry> registry,
                                                        std::function<void()> before_scrape,
                                                        std::function<bool(const std::string&)> admits = {});
  virtual ~Exposer() = default;
  // Returns the bound address as HOST:PORT.
  virtual const std::string& address() const = 0;
};

}  // namespace permafrost::telemetry
