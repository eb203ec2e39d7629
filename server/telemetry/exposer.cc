#include "telemetry/exposer.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/registry.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost::telemetry {
namespace {

prometheus::Counter& FailuresIn(prometheus::Registry& registry) {
  return prometheus::BuildCounter()
      .Name("permafrost_scrape_failures_total")
      .Help("Scrapes that could not bring all metrics up to date, for an error of the device or of memory.")
      .Register(registry)
      .Add({});
}

}  // namespace

RefreshedRegistry::RefreshedRegistry(std::shared_ptr<prometheus::Registry> registry,
                                     std::function<void()> before_scrape)
    : registry_(std::move(registry)), before_scrape_(std::move(before_scrape)), failures_(FailuresIn(*registry_)) {}

std::vector<prometheus::MetricFamily> RefreshedRegistry::Collect() const noexcept {
  const absl::MutexLock lock(&mu_);
  Refresh();
  try {
    return registry_->Collect();
  } catch (const std::exception& error) {
    CountFailure(error.what());
  } catch (...) {
    CountFailure("an unknown exception");
  }
  return {};
}

void RefreshedRegistry::Refresh() const noexcept {
  try {
    if (before_scrape_) before_scrape_();
    failed_ = false;
  } catch (const std::exception& error) {
    CountFailure(error.what());
  } catch (...) {
    CountFailure("an unknown exception");
  }
}

void RefreshedRegistry::CountFailure(const char* why) const noexcept {
  failures_.Increment();
  if (std::exchange(failed_, true)) return;
  try {
    Log(Severity::kError, absl::StrCat("a scrape cannot bring all metrics up to date: ", why));
  } catch (const std::exception&) {
    // The log failed, but the counter still shows the failure.
  }
}

namespace {

// The HTTP server occupies a thread for each connection until its request has arrived. By default it has two threads
// and a timeout of 30 s, so two silent connections would hide the metrics for that long.
constexpr int kThreads = 64;
// A scraper sends its request, and reads the answer, without delay.
constexpr int kRequestTimeoutMs = 2000;

std::vector<std::string> ServerOptions(const std::string& address) {
  return {"listening_ports", address, "num_threads", absl::StrCat(kThreads), "request_timeout_ms",
          absl::StrCat(kRequestTimeoutMs),
          // One request per connection, so that no connection is kept open for the next one.
          "enable_keep_alive", "no"};
}

// If the check throws, for example for lack of memory, the caller is not let in. The exception must not leave this
// function, since it would end the process.
bool Admits(const std::function<bool(const std::string&)>& admits, const std::string& password) noexcept {
  try {
    return admits(password);
  } catch (const std::exception&) {
    return false;
  }
}

class HttpExposer : public Exposer {
 public:
  HttpExposer(HostPort address, std::shared_ptr<RefreshedRegistry> registry,
              std::function<bool(const std::string&)> admits)
      : registry_(std::move(registry)), server_(ServerOptions(FormatHostPort(address))) {
    if (admits) {
      server_.RegisterAuth(
          [admits = std::move(admits)](const std::string& /*user*/, const std::string& password) {
            return Admits(admits, password);
          },
          "permafrost");
    }
    server_.RegisterCollectable(registry_);
    address.port = server_.GetListeningPorts().at(0);
    address_ = FormatHostPort(address);
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
                                                        std::function<void()> before_scrape,
                                                        std::function<bool(const std::string&)> admits) {
  // Parses the address here, because the HTTP server accepts more: lists, and letters after the port.
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return Annotate(parsed.status(), "metrics address");
  auto refreshed = std::make_shared<RefreshedRegistry>(std::move(registry), std::move(before_scrape));
  try {
    return std::make_unique<HttpExposer>(*parsed, std::move(refreshed), std::move(admits));
  } catch (const std::exception&) {
    // The server reports only that it did not start. Usual causes are a port in use or a foreign address.
    return absl::FailedPreconditionError(absl::StrCat("metrics address ", address,
                                                      ": cannot listen there (port in use, or not an address of this "
                                                      "machine); port 0 picks a free one"));
  }
}

}  // namespace permafrost::telemetry
