#include "telemetry/refreshed_registry.h"

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
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
    // The count tells it.
  }
}

}  // namespace permafrost::telemetry
