// Metrics of the process, its datasets and its gRPC server.
// Threads: all methods are safe anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace prometheus {
class Registry;
}

namespace permafrost::telemetry {

struct BuildInfo {
  std::string version, git_commit, torch_version, device;
};

class ServerMetrics {
 public:
  // Series for each (method, code) and method exist from the start; `methods` as "JobService/CreateJob", any other is
  // counted as "unknown". `streams`: those of the methods that stream; `watches`: those that watch. Borrows the
  // registry.
  ServerMetrics(prometheus::Registry& registry, const BuildInfo& build, const std::vector<std::string>& methods,
                const std::vector<std::string>& codes, const std::vector<std::string>& streams = {},
                const std::vector<std::string>& watches = {});
  ~ServerMetrics();

  // permafrost_grpc_requests_total{method,code}; permafrost_grpc_request_seconds{method}, of streams
  // permafrost_grpc_stream_seconds{method} (histograms)
  void ObserveRequest(std::string_view method, std::string_view code, absl::Duration duration);
  // permafrost_grpc_open_streams{method}; of the constructor's `streams`, any other is left out
  void CountStream(std::string_view method, int change);
  // permafrost_watch_states_dropped_total{method}; of the constructor's `watches`, any other is left out
  void CountDroppedState(std::string_view method);
  // permafrost_draining
  void SetDraining();
  // permafrost_dataset_import_queue_length
  void SetImportQueue(int64_t length);
  // permafrost_dataset_import_progress_ratio, nullopt: no import runs, and the series is absent
  void SetImportProgress(std::optional<double> ratio);
  // permafrost_datasets{state}, permafrost_dataset_mapped_bytes, permafrost_dataset_imports_total{outcome}
  void SetDatasets(std::string_view state, int64_t count);
  // permafrost_dataset_stores{kind}, permafrost_dataset_store_bytes{kind}; kind is "graph_set" or "graph"
  void SetStores(std::string_view kind, int64_t count, uint64_t bytes);
  void SetMappedBytes(uint64_t bytes);
  // permafrost_state_disk_free_bytes (nullopt: it is not known, and absent), permafrost_state_disk_reserve_bytes
  void SetDisk(std::optional<uint64_t> free, uint64_t reserve);
  // permafrost_upload_bytes{kind} ("received", "counted"), permafrost_upload_limit_bytes
  void SetUploads(uint64_t received, uint64_t counted, uint64_t limit);
  // permafrost_clock_jump_seconds; 0: it has not jumped
  void SetClockJump(absl::Duration jump);
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
