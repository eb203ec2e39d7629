// Metrics of the process, its datasets, its gRPC server, its device, and the progress of the device thread.
// Threads: all methods are safe anywhere, except those of WatchdogMetrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/device.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace permafrost::telemetry {

// Numbers that the operating system reports about this process.
// Threads: safe anywhere. Errors: none; values that the system does not report are 0.
struct ProcessStats {
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // Unix time
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
};

ProcessStats ReadProcessStats();

// Metrics of the device. If the device does not report a value, its series is absent, since 0 would be wrong.
class DeviceMetrics {
 public:
  // The series are permafrost_device_memory_bytes{kind} (`kind` is allocated, reserved, driver, recommended_max or
  // resident), permafrost_device_graph_entries, permafrost_device_utilization_ratio, and
  // permafrost_device_empty_cache_total{reason}, for each reason in DeviceState::empty_caches. Borrows the registry.
  explicit DeviceMetrics(prometheus::Registry& registry);
  ~DeviceMetrics();

  void Set(const DeviceState& state);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

// Metrics of the progress of the device thread.
// Threads: one at a time.
class WatchdogMetrics {
 public:
  // Borrows the registry.
  explicit WatchdogMetrics(prometheus::Registry& registry);
  ~WatchdogMetrics();

  // Sets permafrost_device_thread_stalled, 0 or 1, and permafrost_device_thread_seconds_since_progress.
  // `since_progress` is nullopt while the thread is idle; the second series is then absent.
  void Set(bool stalled, std::optional<absl::Duration> since_progress);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

struct BuildInfo {
  std::string version, git_commit, torch_version, device;
};

// The comment above each method names the series that the method updates.
class ServerMetrics {
 public:
  // The series for each method, and for each pair of method and code, exist from the start. `methods` are names such
  // as "JobService/CreateJob". A method that is not listed counts as "unknown". `streams` are the streaming methods,
  // and `watches` the methods that watch a state. Borrows the registry.
  ServerMetrics(prometheus::Registry& registry, const BuildInfo& build, const std::vector<std::string>& methods,
                const std::vector<std::string>& codes, const std::vector<std::string>& streams = {},
                const std::vector<std::string>& watches = {});
  ~ServerMetrics();

  // permafrost_grpc_requests_total{method,code} and the histogram permafrost_grpc_request_seconds{method}, or
  // permafrost_grpc_stream_seconds{method} for streams
  void ObserveRequest(std::string_view method, std::string_view code, absl::Duration duration);
  // permafrost_grpc_open_streams{method}; ignores methods that are not in the constructor's `streams`
  void CountStream(std::string_view method, int change);
  // permafrost_watch_states_dropped_total{method}; ignores methods that are not in the constructor's `watches`
  void CountDroppedState(std::string_view method);
  // permafrost_draining
  void SetDraining();
  // permafrost_dataset_import_queue_length
  void SetImportQueue(int64_t length);
  // permafrost_dataset_import_progress_ratio; absent for nullopt, which means that no import runs
  void SetImportProgress(std::optional<double> ratio);
  // permafrost_datasets{state}
  void SetDatasets(std::string_view state, int64_t count);
  // permafrost_dataset_stores{kind}, permafrost_dataset_store_bytes{kind}; kind is "graph_set" or "graph"
  void SetStores(std::string_view kind, int64_t count, uint64_t bytes);
  // permafrost_dataset_mapped_bytes
  void SetMappedBytes(uint64_t bytes);
  // permafrost_state_disk_free_bytes (absent for nullopt, which means unknown), permafrost_state_disk_reserve_bytes
  void SetDisk(std::optional<uint64_t> free, uint64_t reserve);
  // permafrost_upload_bytes{kind} ("received", "counted"), permafrost_upload_limit_bytes
  void SetUploads(uint64_t received, uint64_t counted, uint64_t limit);
  // permafrost_clock_jump_seconds; 0: the clock has not jumped
  void SetClockJump(absl::Duration jump);
  // permafrost_dataset_imports_total{outcome}
  void SetImports(std::string_view outcome, int64_t total);
  // permafrost_dataset_import_retries_total
  void SetImportRetries(int64_t total);
  // process_resident_memory_bytes, process_virtual_memory_bytes, process_cpu_seconds_total, process_open_fds,
  // process_max_fds, process_start_time_seconds, process_threads; called before each scrape.
  void BeforeScrape();

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace permafrost::telemetry
