#include "telemetry/exposer.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <exception>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/string_view.h"

namespace permafrost::telemetry {
namespace {

// The registry, refreshed before each collection. One scrape at a time, so that the hook needs no lock of its own.
class RefreshedRegistry : public prometheus::Collectable {
 public:
  RefreshedRegistry(std::shared_ptr<prometheus::Registry> registry, std::function<void()> before_scrape)
      : registry_(std::move(registry)), before_scrape_(std::move(before_scrape)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    absl::MutexLock lock(&mu_);
    if (before_scrape_) before_scrape_();
    return registry_->Collect();
  }

 private:
  mutable absl::Mutex mu_;
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<void()> before_scrape_;
};

class HttpExposer : public Exposer {
 public:
  HttpExposer(const std::string& address, std::string_view host, std::shared_ptr<RefreshedRegistry> registry)
      : registry_(std::move(registry)), server_(address) {
    server_.RegisterCollectable(registry_);
    address_ = absl::StrCat(AbslView(host), ":", server_.GetListeningPorts().at(0));
  }
  const std::string& address() const override { return address_; }

 private:
  const std::shared_ptr<RefreshedRegistry> registry_;
  std::string address_;
  prometheus::Exposer server_;  // last: its threads end before the registry goes
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(const std::string& address,
                                                        std::shared_ptr<prometheus::Registry> registry,
                                                        std::function<void()> before_scrape) {
  // Checked here since the HTTP server reads more into an address: lists, and letters after the port.
  const size_t colon = address.rfind(':');
  const std::string_view host = std::string_view(address).substr(0, colon == std::string::npos ? 0 : colon);
  int port = -1;
  if (host.empty() || host.find(',') != std::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", address, "\": expected HOST:PORT with a port of 0..65535"));
  }
  auto refreshed = std::make_shared<RefreshedRegistry>(std::move(registry), std::move(before_scrape));
  try {
    return std::make_unique<HttpExposer>(address, host, std::move(refreshed));
  } catch (const std::exception&) {
    // The server says no more than that it did not start; a port in use or a foreign address are the usual causes.
    return absl::FailedPreconditionError(absl::StrCat("metrics address ", address,
                                                      ": cannot listen there (port in use, or not an address of this "
                                                      "machine); port 0 picks a free one"));
  }
}

}  // namespace permafrost::telemetry
