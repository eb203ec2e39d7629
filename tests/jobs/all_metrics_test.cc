// Compares every metric on /metrics with a golden file. A changed name, type, text, label or bound would break
// dashboards.
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "golden.h"
#include "jobs/run_counters.h"
#include "telemetry/exposer.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "telemetry/server_metrics.h"

namespace permafrost::jobs {
namespace {

std::string TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    default:
      return "another";
  }
}

// Returns the label names of all series of the family, and the bounds of a histogram's buckets.
std::string FormOf(const prometheus::MetricFamily& family) {
  std::set<std::string> labels, bounds;
  for (const prometheus::ClientMetric& metric : family.metric) {
    std::vector<std::string> names, of_buckets;
    for (const auto& label : metric.label) names.push_back(label.name);
    std::ranges::sort(names);
    labels.insert(absl::StrCat("{", absl::StrJoin(names, ", "), "}"));
    for (const auto& bucket : metric.histogram.bucket) of_buckets.push_back(absl::StrCat(bucket.upper_bound));
    if (!of_buckets.empty()) bounds.insert(absl::StrJoin(of_buckets, " "));
  }
  std::string text = absl::StrCat(TypeName(family.type), " ", absl::StrJoin(labels, " or "));
  for (const std::string& bound : bounds) absl::StrAppend(&text, "\n  at most ", bound);
  return text;
}

// Returns the metric names that occur as string literals in server/telemetry.
std::set<std::string> NamesInSources() {
  const std::regex name(R"rx("((?:permafrost|process)_[a-z_]+)")rx");
  std::set<std::string> names;
  const auto folder = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "server/telemetry";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string text = ReadText(file.path()).value_or("");
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) names.insert((*it)[1]);
  }
  return names;
}

TEST(AllMetrics, KeepTheirNamesTypesTextsAndLabels) {
  using namespace telemetry;  // NOLINT(google-build-using-namespace): most of what follows is of it
  const auto all = std::make_shared<prometheus::Registry>();
  prometheus::Registry& registry = *all;
  ServerMetrics server(registry, {"0.1.0", "abc123", "2.13.0", "cpu"}, {"JobService/WatchJob"}, {"OK"},
                       {"JobService/WatchJob"}, {"JobService/WatchJob"});
  JobMetrics jobs(registry, {"queued"});
  GraphCacheMetrics graph_cache(registry, CacheCounterRows(), {"train", "eval"}, {"freeze"});
  DeviceMetrics device(registry);
  WatchdogMetrics watchdog(registry);
  // These series are absent until they have a value.
  server.SetImportProgress(0.5);
  server.SetDisk(1, 2);
  server.SetClockJump(absl::Seconds(1));
  jobs.SetRunning(1, 0.5, 2);
  jobs.AddSteps({.ranks = {{.steps = 1}}});
  jobs.ObserveStep({});
  jobs.ObserveCheckpoint(absl::Seconds(1));
  jobs.SetLookAhead(LookAheadState());
  jobs.features().Set(FeatureState());
  graph_cache.SetRunning(GraphCacheState{.modes = {{}, {}}, .frozen = true, .freeze_time = absl::UnixEpoch()});
  device.Set({.memory = {.allocated = 1, .reserved = 1, .driver = 1, .recommended_max = 1, .resident = 1},
              .graph_entries = 1,
              .empty_caches = {{std::string(kEmptyReasonNames.rows.front().second), 1}},
              .utilization = 0.5});
  watchdog.Set(true, absl::Seconds(1));

  std::map<std::string, std::string> told;
  const RefreshedRegistry scraped(all, [&] {
    server.BeforeScrape();
    jobs.BeforeScrape();
  });
  for (const prometheus::MetricFamily& family : scraped.Collect()) {
    if (family.metric.empty()) continue;
    told[family.name] = absl::StrCat("\n", family.name, ": ", FormOf(family), "\n  ", family.help, "\n");
  }
  for (const std::string& name : NamesInSources()) EXPECT_TRUE(told.contains(name)) << name << ": has no series here";
  std::string text = "Each metric: its type, the names of its labels, the bounds of its buckets, its text.\n";
  for (const auto& [name, line] : told) text += line;
  ExpectGolden("jobs/goldens/metrics.txt", text);
}

}  // namespace
}  // namespace permafrost::jobs
