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
    // The log line was not written, but the counter still shows the failure.
  }
}

namespace {

// The number of the HTTP server's threads. A connection occupies one until its request has arrived. With the server's
// defaults, two threads and a timeout of 30 s, two silent connections would block scrapes for 30 s.
constexpr int kThreads = 64;
// The time within which a scraper must send its request and read the answer.
constexpr int kRequestTimeoutMs = 2000;

std::vector<std::string> ServerOptions(const std::string& address) {
  return {"listening_ports", address, "num_threads", absl::StrCat(kThreads), "request_timeout_ms",
          absl::StrCat(kRequestTimeoutMs),
          // Each connection serves one request, so that no connection stays open idle.
          "enable_keep_alive", "no"};
}

// Returns admits(password). If `admits` throws, for example for lack of memory, returns false, since an exception
// that leaves this function would end the process.
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
  prometheus::Exposer server_;  // last member, so that its threads end before the registry is destroyed
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Start(const std::string& address,
                                                        std::shared_ptr<prometheus::Registry> registry,
                                                        std::function<void()> before_scrape,
                                                        std::function<bool(const std::string&)> admits) {
  // The address is checked here, because the HTTP server would also accept lists of addresses, and letters after the
  // port.
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return Annotate(parsed.status(), "metrics address");
  auto refreshed = std::make_shared<RefreshedRegistry>(std::move(registry), std::move(before_scrape));
  try {
    return std::make_unique<HttpExposer>(*parsed, std::move(refreshed), std::move(admits));
  } catch (const std::exception&) {
    // The HTTP server gives no reason why it did not start. The usual reasons are a port in use, and an address of
    // another machine.
    return absl::FailedPreconditionError(absl::StrCat("metrics address ", address,
                                                      ": cannot listen there (port in use, or not an address of this "
                                                      "machine); port 0 picks a free one"));
  }
}

}  // namespace permafrost::telemetry
