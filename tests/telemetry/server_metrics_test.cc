#include "telemetry/server_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "metric_values.h"

namespace permafrost::telemetry {
namespace {

class ServerMetricsTest : public testing::Test {
 protected:
  std::optional<double> Value(const std::string& name, const MetricLabels& labels = {}) const {
    return MetricValue(registry_, name, labels);
  }
  prometheus::Registry registry_;
  ServerMetrics metrics_{registry_,
                         {"0.1.0", "abc123", "2.13.0", "cpu"},
                         {"JobService/CreateJob", "JobService/GetJob", "JobService/WatchJob"},
                         {"OK", "NOT_FOUND"},
                         {"JobService/WatchJob"},
                         {"JobService/WatchJob"}};
};

TEST_F(ServerMetricsTest, EverySeriesExistsFromTheStart) {
  for (const char* method : {"JobService/CreateJob", "JobService/GetJob", "unknown"}) {
    EXPECT_EQ(Value("permafrost_grpc_request_seconds", {{"method", method}}), 0) << method;
    for (const char* code : {"OK", "NOT_FOUND"}) {
      EXPECT_EQ(Value("permafrost_grpc_requests_total", {{"method", method}, {"code", code}}), 0) << method << code;
    }
  }
  for (const char* state : {"importing", "ready", "failed"}) {
    EXPECT_EQ(Value("permafrost_datasets", {{"state", state}}), 0) << state;
  }
  for (const char* outcome : {"succeeded", "failed", "cancelled"}) {
    EXPECT_EQ(Value("permafrost_dataset_imports_total", {{"outcome", outcome}}), 0) << outcome;
  }
  for (const char* kind : {"graph_set", "graph"}) {
    EXPECT_EQ(Value("permafrost_dataset_stores", {{"kind", kind}}), 0) << kind;
    EXPECT_EQ(Value("permafrost_dataset_store_bytes", {{"kind", kind}}), 0) << kind;
  }
  EXPECT_EQ(Value("permafrost_dataset_mapped_bytes"), 0);
  EXPECT_EQ(Value("permafrost_build_info",
                  {{"version", "0.1.0"}, {"git_commit", "abc123"}, {"torch_version", "2.13.0"}, {"device", "cpu"}}),
            1);
}

TEST_F(ServerMetricsTest, CountsRequestsByMethodAndCode) {
  metrics_.ObserveRequest("JobService/GetJob", "OK", absl::Milliseconds(2));
  metrics_.ObserveRequest("JobService/GetJob", "NOT_FOUND", absl::Milliseconds(2));
  metrics_.ObserveRequest("JobService/GetJob", "OK", absl::Milliseconds(2));
  EXPECT_EQ(Value("permafrost_grpc_requests_total", {{"method", "JobService/GetJob"}, {"code", "OK"}}), 2);
  EXPECT_EQ(Value("permafrost_grpc_requests_total", {{"method", "JobService/GetJob"}, {"code", "NOT_FOUND"}}), 1);
  EXPECT_EQ(Value("permafrost_grpc_request_seconds", {{"method", "JobService/GetJob"}}), 3);
}

TEST_F(ServerMetricsTest, StreamsAreApartFromTheLatencyOfCalls) {
  const MetricLabels watch = {{"method", "JobService/WatchJob"}}, get = {{"method", "JobService/GetJob"}};
  metrics_.CountStream("JobService/WatchJob", +1);
  metrics_.CountStream("JobService/WatchJob", +1);
  metrics_.CountStream("JobService/WatchJob", -1);
  metrics_.CountStream("JobService/GetJob", +1);
  metrics_.CountStream("Evil/1", +1);
  metrics_.ObserveRequest("JobService/WatchJob", "OK", absl::Hours(1));
  metrics_.ObserveRequest("JobService/GetJob", "OK", absl::Milliseconds(1));
  EXPECT_EQ(Value("permafrost_grpc_open_streams", watch), 1);
  EXPECT_EQ(Value("permafrost_grpc_open_streams", get), std::nullopt) << "is no stream";
  EXPECT_EQ(Value("permafrost_grpc_stream_seconds", watch), 1);
  EXPECT_EQ(Value("permafrost_grpc_request_seconds", watch), std::nullopt);
  EXPECT_EQ(Value("permafrost_grpc_request_seconds", get), 1);
  EXPECT_EQ(Value("permafrost_grpc_stream_seconds", get), std::nullopt);
}

TEST_F(ServerMetricsTest, CountsWhatWatchesPassOver) {
  const MetricLabels watch = {{"method", "JobService/WatchJob"}};
  EXPECT_EQ(Value("permafrost_watch_states_dropped_total", watch), 0);
  metrics_.CountDroppedState("JobService/WatchJob");
  metrics_.CountDroppedState("JobService/GetJob");
  EXPECT_EQ(Value("permafrost_watch_states_dropped_total", watch), 1);
}

TEST_F(ServerMetricsTest, TellsADrainAndARunningImport) {
  EXPECT_EQ(Value("permafrost_draining"), 0);
  EXPECT_EQ(Value("permafrost_dataset_import_progress_ratio"), std::nullopt);
  metrics_.SetDraining();
  metrics_.SetImportProgress(0.25);
  EXPECT_EQ(Value("permafrost_draining"), 1);
  EXPECT_EQ(Value("permafrost_dataset_import_progress_ratio"), 0.25);
  EXPECT_EQ(Value("permafrost_dataset_import_queue_length"), 0);
  metrics_.SetImportQueue(3);
  EXPECT_EQ(Value("permafrost_dataset_import_queue_length"), 3);
  metrics_.SetImportProgress(std::nullopt);
  EXPECT_EQ(Value("permafrost_dataset_import_progress_ratio"), std::nullopt);
}

TEST_F(ServerMetricsTest, ADiskThatCannotBeAskedHasNoFreeBytes) {
  metrics_.SetDisk(700, 200);
  EXPECT_EQ(Value("permafrost_state_disk_free_bytes"), 700);
  EXPECT_EQ(Value("permafrost_state_disk_reserve_bytes"), 200);
  metrics_.SetDisk(std::nullopt, 200);
  EXPECT_EQ(Value("permafrost_state_disk_free_bytes"), std::nullopt);
}

TEST_F(ServerMetricsTest, StrangersCannotAddSeries) {
  const size_t before = MetricsText(registry_).size();
  metrics_.ObserveRequest("Evil/1", "OK", absl::Milliseconds(1));
  metrics_.ObserveRequest("Evil/2", "OK", absl::Milliseconds(1));
  metrics_.ObserveRequest("JobService/GetJob", "MADE_UP", absl::Milliseconds(1));
  metrics_.SetDatasets("made-up", 1);
  metrics_.SetImports("made-up", 1);
  EXPECT_EQ(Value("permafrost_grpc_requests_total", {{"method", "unknown"}, {"code", "OK"}}), 2);
  EXPECT_EQ(Value("permafrost_grpc_requests_total", {{"method", "unknown"}, {"code", "unknown"}}), 1);
  EXPECT_EQ(MetricsText(registry_).find("Evil"), std::string::npos);
  EXPECT_EQ(MetricsText(registry_).find("MADE_UP"), std::string::npos);
  EXPECT_EQ(MetricsText(registry_).find("made-up"), std::string::npos);
  EXPECT_LT(MetricsText(registry_).size(), before + 200) << "values grow by digits, series do not";
}

TEST_F(ServerMetricsTest, StoresAreToldByKind) {
  metrics_.SetStores("graph", 2, 5'000'000'000);
  metrics_.SetStores("made-up", 1, 1);
  EXPECT_EQ(Value("permafrost_dataset_stores", {{"kind", "graph"}}), 2);
  EXPECT_EQ(Value("permafrost_dataset_store_bytes", {{"kind", "graph"}}), 5e9);
  EXPECT_EQ(Value("permafrost_dataset_stores", {{"kind", "graph_set"}}), 0);
  EXPECT_EQ(MetricsText(registry_).find("made-up"), std::string::npos);
}

TEST_F(ServerMetricsTest, ImportTotalsFollowButNeverFall) {
  metrics_.SetImports("succeeded", 2);
  metrics_.SetImports("succeeded", 5);
  EXPECT_EQ(Value("permafrost_dataset_imports_total", {{"outcome", "succeeded"}}), 5);
  metrics_.SetImports("succeeded", 3);
  EXPECT_EQ(Value("permafrost_dataset_imports_total", {{"outcome", "succeeded"}}), 5) << "a counter does not fall";
  EXPECT_EQ(Value("permafrost_dataset_import_retries_total"), 0);
  metrics_.SetImportRetries(4);
  metrics_.SetImportRetries(3);
  EXPECT_EQ(Value("permafrost_dataset_import_retries_total"), 4);
}

TEST_F(ServerMetricsTest, ShowsDatasets) {
  metrics_.SetDatasets("ready", 3);
  metrics_.SetMappedBytes(uint64_t{5} << 30);
  EXPECT_EQ(Value("permafrost_datasets", {{"state", "ready"}}), 3);
  EXPECT_EQ(Value("permafrost_dataset_mapped_bytes"), 5.0 * (1 << 30));
}

TEST_F(ServerMetricsTest, ProcessSeriesAreFilled) {
  metrics_.BeforeScrape();
  for (const char* name : {"process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds",
                           "process_max_fds", "process_start_time_seconds", "process_threads"}) {
    EXPECT_GT(Value(name).value_or(-1), 0) << name;
  }
  EXPECT_TRUE(Value("process_cpu_seconds_total").has_value());
}

TEST(ProcessStatsTest, CountsDescriptorsAndThreads) {
  const ProcessStats before = ReadProcessStats();
  const int fd = open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  absl::Notification started, done;
  std::thread thread([&] {
    started.Notify();
    done.WaitForNotification();
  });
  started.WaitForNotification();
  const ProcessStats during = ReadProcessStats();
  done.Notify();
  thread.join();
  close(fd);
  EXPECT_EQ(during.open_fds, before.open_fds + 1);
  EXPECT_GE(during.threads, 2);
  EXPECT_GT(during.threads, before.threads - 1);
}

TEST(ProcessStatsTest, AgreesWithTheSystem) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_LE(stats.resident_bytes, stats.virtual_bytes);
  EXPECT_GT(stats.resident_bytes, uint64_t{100} << 10);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(stats.max_fds, static_cast<int64_t>(limit.rlim_cur));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(stats.start_time_seconds, now + 1);
  EXPECT_GT(stats.start_time_seconds, now - 86400) << "in seconds since 1970, not since boot";
}

TEST(ProcessStatsTest, CpuTimeGrowsWithWork) {
  const double before = ReadProcessStats().cpu_seconds;
  rusage usage{};
  volatile double sink = 1;
  // The system counts CPU time in ticks of 10 ms. The test works until rusage, which is finer, shows that several
  // have passed.
  const auto used = [&] {
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double start = used();
  while (used() < start + 0.05) {
    for (int i = 0; i < 10000; ++i) sink = sink * 1.0000001;
  }
  EXPECT_GT(ReadProcessStats().cpu_seconds, before);
}

}  // namespace
}  // namespace permafrost::telemetry
