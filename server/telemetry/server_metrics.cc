#include "telemetry/server_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#ifdef __APPLE__
#include <libproc.h>
#include <mach/mach.h>
#endif
#ifdef __linux__
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#endif

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"
#include "telemetry/metrics.h"

namespace permafrost::telemetry {

#ifdef __APPLE__

namespace {

double Seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  mach_task_basic_info task{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&task), &count) == KERN_SUCCESS) {
    stats.virtual_bytes = task.virtual_size;
  }
  stats.resident_bytes = ResidentBytes();
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) stats.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  proc_taskallinfo info{};
  if (proc_pidinfo(getpid(), PROC_PIDTASKALLINFO, 0, &info, sizeof(info)) == static_cast<int>(sizeof(info))) {
    stats.threads = info.ptinfo.pti_threadnum;
    stats.start_time_seconds =
        static_cast<double>(info.pbsd.pbi_start_tvsec) + static_cast<double>(info.pbsd.pbi_start_tvusec) * 1e-6;
    stats.open_fds = static_cast<int64_t>(info.pbsd.pbi_nfiles);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

#endif
#ifdef __linux__

namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Returns the Unix time at which the machine booted. It changes only if the clock is corrected.
double BootTime() {
  for (absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return 0;
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // without the descriptor of the listing itself
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string stat = ReadAll("/proc/self/stat");
  // proc(5) counts fields from 1. Field 2, the program's name, is in parentheses and may contain spaces.
  if (const size_t name_end = stat.rfind(')'); name_end != std::string::npos) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
    const auto field = [&](size_t number) {
      uint64_t value = 0;
      const size_t index = number - 3;
      return index < fields.size() && absl::SimpleAtoi(fields[index], &value) ? value : 0;
    };
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = static_cast<double>(field(14) + field(15)) / ticks;
    stats.threads = static_cast<int64_t>(field(20));
    stats.start_time_seconds = BootTime() + static_cast<double>(field(22)) / ticks;
    stats.virtual_bytes = field(23);
  }
  stats.resident_bytes = ResidentBytes();
  stats.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

#endif

namespace {

using prometheus::Counter;
using prometheus::Gauge;

prometheus::Family<Gauge>& MemoryFamily(prometheus::Registry& registry) {
  return prometheus::BuildGauge()
      .Name("permafrost_device_memory_bytes")
      .Help(
          "Memory of the device by kind: of live tensors, held by the allocator, held by the driver for this process, "
          "the most that the device recommends, and this process on the host. Kinds it does not tell are absent.")
      .Register(registry);
}

}  // namespace

struct DeviceMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : graphs(prometheus::BuildGauge()
                   .Name("permafrost_device_graph_entries")
                   .Help("Graphs that the device itself keeps compiled, one a shape. Absent where it is not known.")
                   .Register(registry),
               {}),
        utilization(prometheus::BuildGauge()
                        .Name("permafrost_device_utilization_ratio")
                        .Help("How busy the device is, 0 to 1. Absent where the device does not tell.")
                        .Register(registry),
                    {}),
        emptied(prometheus::BuildCounter()
                    .Name("permafrost_device_empty_cache_total")
                    .Help("How often the device's own caches, of memory and of compiled graphs, were emptied. Absent "
                          "where it has none.")
                    .Register(registry)) {
    auto& memory = MemoryFamily(registry);
    for (const char* kind : {"allocated", "reserved", "driver", "recommended_max", "resident"}) {
      memory_by_kind.emplace(kind, MaybeGauge(memory, {{"kind", kind}}));
    }
  }

  absl::Mutex mu;
  MaybeGauge graphs ABSL_GUARDED_BY(mu), utilization ABSL_GUARDED_BY(mu);
  std::map<std::string, MaybeGauge> memory_by_kind ABSL_GUARDED_BY(mu);
  prometheus::Family<Counter>& emptied;
};

DeviceMetrics::DeviceMetrics(prometheus::Registry& registry) : families_(std::make_unique<Families>(registry)) {}

DeviceMetrics::~DeviceMetrics() = default;

void DeviceMetrics::Set(const DeviceState& state) {
  const absl::MutexLock lock(&families_->mu);
  const DeviceMemory& memory = state.memory;
  const std::pair<const char*, std::optional<int64_t>> kinds[] = {{"allocated", memory.allocated},
                                                                  {"reserved", memory.reserved},
                                                                  {"driver", memory.driver},
                                                                  {"recommended_max", memory.recommended_max},
                                                                  {"resident", memory.resident}};
  for (const auto& [kind, bytes] : kinds) families_->memory_by_kind.at(kind).Set(bytes);
  families_->graphs.Set(state.graph_entries);
  families_->utilization.Set(state.utilization);
  for (const auto& [reason, count] : state.empty_caches) {
    if (!kEmptyReasonNames.Parse(reason)) continue;
    Counter& total = families_->emptied.Add({{"reason", reason}});
    // The counter is never lowered, since a total cannot fall.
    if (const double more = static_cast<double>(count) - total.Value(); more > 0) total.Increment(more);
  }
}

struct WatchdogMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : stalled(OneGauge(registry, "permafrost_device_thread_stalled",
                         "1 while the device thread has made no progress for longer than --watchdog, else 0.")),
        since_progress(prometheus::BuildGauge()
                           .Name("permafrost_device_thread_seconds_since_progress")
                           .Help("Time since the device thread last got on with a job; absent while it is idle.")
                           .Register(registry)) {}

  prometheus::Gauge& stalled;
  prometheus::Family<prometheus::Gauge>& since_progress;
  prometheus::Gauge* seconds = nullptr;  // the family's one series; null: absent
};

WatchdogMetrics::WatchdogMetrics(prometheus::Registry& registry) : families_(std::make_unique<Families>(registry)) {}

WatchdogMetrics::~WatchdogMetrics() = default;

void WatchdogMetrics::Set(bool stalled, std::optional<absl::Duration> since_progress) {
  families_->stalled.Set(stalled ? 1 : 0);
  prometheus::Gauge*& seconds = families_->seconds;
  if (!since_progress) {
    if (seconds != nullptr) families_->since_progress.Remove(seconds);
    seconds = nullptr;
    return;
  }
  if (seconds == nullptr) seconds = &families_->since_progress.Add({});
  seconds->Set(absl::ToDoubleSeconds(*since_progress));
}

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr char kUnknown[] = "unknown";
constexpr std::string_view kDatasetStates[] = {"importing", "ready", "failed"};
constexpr std::string_view kDatasetKinds[] = {"graph_set", "graph"};
constexpr std::string_view kImportOutcomes[] = {"succeeded", "failed", "cancelled"};

const Histogram::BucketBoundaries& RequestBuckets() {
  static const Histogram::BucketBoundaries buckets{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1,
                                                   0.25, 0.5,    1,    2.5,  5,      10,   25,   50,    100};
  return buckets;
}

// Returns the buckets' bounds in seconds. They are long, since a stream lasts as long as the job or import that it
// watches.
const Histogram::BucketBoundaries& StreamBuckets() {
  static const Histogram::BucketBoundaries buckets{0.01, 0.1, 1, 10, 60, 300, 1800, 3600, 14400, 86400};
  return buckets;
}

}  // namespace

// References into the registry, which owns every metric. Any thread may update a metric that no lock below guards.
struct ServerMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : requests(prometheus::BuildCounter()
                     .Name("permafrost_grpc_requests_total")
                     .Help("gRPC requests that have ended, by method and status code.")
                     .Register(registry)),
        request_seconds(prometheus::BuildHistogram()
                            .Name("permafrost_grpc_request_seconds")
                            .Help("Time from a unary gRPC request's arrival to its end.")
                            .Register(registry)),
        stream_seconds(prometheus::BuildHistogram()
                           .Name("permafrost_grpc_stream_seconds")
                           .Help("Time from a gRPC stream's begin to its end.")
                           .Register(registry)),
        open_streams(prometheus::BuildGauge()
                         .Name("permafrost_grpc_open_streams")
                         .Help("gRPC streams that are open, by method.")
                         .Register(registry)),
        dropped_states(
            prometheus::BuildCounter()
                .Name("permafrost_watch_states_dropped_total")
                .Help(
                    "States that a watch passed over since its client had not taken the one before, at least so many.")
                .Register(registry)),
        draining(OneGauge(registry, "permafrost_draining", "1 while the daemon drains and takes no new jobs, else 0.")),
        import_progress(registry, "permafrost_dataset_import_progress_ratio",
                        "Part of the running import's source that is read, 0 to 1. Absent while none runs."),
        import_queue(OneGauge(registry, "permafrost_dataset_import_queue_length",
                              "Dataset imports that are wanted and do not run: they wait for the one that does, or for "
                              "the machine.")),
        mapped_bytes(OneGauge(registry, "permafrost_dataset_mapped_bytes", "Bytes of dataset stores that are mapped.")),
        disk_free(registry, "permafrost_state_disk_free_bytes",
                  "Bytes that are free for the daemon on the disk of its state directory."),
        disk_reserve(OneGauge(registry, "permafrost_state_disk_reserve_bytes",
                              "Bytes that imports, uploads and checkpoints that are due leave free there.")),
        upload_limit(OneGauge(registry, "permafrost_upload_limit_bytes",
                              "Bytes that all uploads together may take; 0: uploads are refused.")),
        clock_jump(
            OneGauge(registry, "permafrost_clock_jump_seconds",
                     "How far the wall clock is ahead of the time that was seen to pass, where that is more than "
                     "a day and nobody has confirmed it; negative: behind; else 0.")),
        import_retries(prometheus::BuildCounter()
                           .Name("permafrost_dataset_import_retries_total")
                           .Help("Tries of dataset imports that an error of the machine ended; they are tried again.")
                           .Register(registry)
                           .Add({})),
        resident(OneGauge(registry, "process_resident_memory_bytes", "Resident memory.")),
        virtual_memory(OneGauge(registry, "process_virtual_memory_bytes", "Virtual memory.")),
        open_fds(OneGauge(registry, "process_open_fds", "Open file descriptors.")),
        max_fds(OneGauge(registry, "process_max_fds", "File descriptors that may be open at once.")),
        start_time(OneGauge(registry, "process_start_time_seconds", "Unix time at which the process started.")),
        threads(OneGauge(registry, "process_threads", "Threads of the process.")),
        cpu(prometheus::BuildCounter()
                .Name("process_cpu_seconds_total")
                .Help("User and system CPU time.")
                .Register(registry)
                .Add({})) {}

  // Raises a counter to a total that is counted elsewhere. Never lowers the counter, since a total cannot fall.
  void RaiseTo(Counter& counter, double total) {
    absl::MutexLock lock(&raise_mu);
    if (const double missing = total - counter.Value(); missing > 0) counter.Increment(missing);
  }

  prometheus::Family<Counter>& requests;
  prometheus::Family<Histogram>&request_seconds, &stream_seconds;
  prometheus::Family<Gauge>& open_streams;
  std::map<std::string, Gauge*, std::less<>> open_by_method;
  prometheus::Family<Counter>& dropped_states;
  std::map<std::string, Counter*, std::less<>> dropped_by_method;
  Gauge& draining;
  absl::Mutex maybe_mu;  // guards the MaybeGauges
  MaybeGauge import_progress ABSL_GUARDED_BY(maybe_mu);
  std::map<std::pair<std::string, std::string>, Counter*> by_method_and_code;
  std::map<std::string, Histogram*, std::less<>> by_method;
  std::map<std::string, Gauge*, std::less<>> datasets;   // by state
  std::map<std::string, Counter*, std::less<>> imports;  // by outcome
  struct Stores {
    Gauge *count = nullptr, *bytes = nullptr;
  };
  std::map<std::string, Stores, std::less<>> stores;  // by kind
  Gauge &import_queue, &mapped_bytes;
  MaybeGauge disk_free ABSL_GUARDED_BY(maybe_mu);
  Gauge& disk_reserve;
  Gauge *upload_received = nullptr, *upload_counted = nullptr;
  Gauge &upload_limit, &clock_jump;
  Counter& import_retries;
  Gauge &resident, &virtual_memory, &open_fds, &max_fds, &start_time, &threads;
  Counter& cpu;
  absl::Mutex raise_mu;  // held from reading a counter until it is raised
};

ServerMetrics::ServerMetrics(prometheus::Registry& registry, const BuildInfo& build,
                             const std::vector<std::string>& methods, const std::vector<std::string>& codes,
                             const std::vector<std::string>& streams, const std::vector<std::string>& watches)
    : families_(std::make_unique<Families>(registry)) {
  prometheus::BuildGauge()
      .Name("permafrost_build_info")
      .Help("The build that runs; always 1.")
      .Register(registry)
      .Add({{"version", build.version},
            {"git_commit", build.git_commit},
            {"torch_version", build.torch_version},
            {"device", build.device}})
      .Set(1);
  const auto add_method = [&](const std::string& method) {
    const prometheus::Labels labels{{"method", method}};
    const bool is_stream = std::find(streams.begin(), streams.end(), method) != streams.end();
    families_->by_method[method] = is_stream ? &families_->stream_seconds.Add(labels, StreamBuckets())
                                             : &families_->request_seconds.Add(labels, RequestBuckets());
    if (is_stream) families_->open_by_method[method] = &families_->open_streams.Add(labels);
    for (const std::string& code : codes) {
      families_->by_method_and_code[{method, code}] = &families_->requests.Add({{"method", method}, {"code", code}});
    }
  };
  for (const std::string& method : methods) add_method(method);
  add_method(kUnknown);
  families_->by_method_and_code[{kUnknown, kUnknown}] =
      &families_->requests.Add({{"method", kUnknown}, {"code", kUnknown}});

  for (const std::string& method : watches) {
    families_->dropped_by_method[method] = &families_->dropped_states.Add({{"method", method}});
  }

  auto& datasets = prometheus::BuildGauge().Name("permafrost_datasets").Help("Datasets by state.").Register(registry);
  for (std::string_view state : kDatasetStates) {
    families_->datasets[std::string(state)] = &datasets.Add({{"state", std::string(state)}});
  }
  auto& stores = prometheus::BuildGauge()
                     .Name("permafrost_dataset_stores")
                     .Help("Datasets that are ready, by kind: many small graphs or one large graph.")
                     .Register(registry);
  auto& store_bytes = prometheus::BuildGauge()
                          .Name("permafrost_dataset_store_bytes")
                          .Help("Bytes on disk of datasets that are ready, by kind.")
                          .Register(registry);
  for (std::string_view kind : kDatasetKinds) {
    const prometheus::Labels labels{{"kind", std::string(kind)}};
    families_->stores[std::string(kind)] = {&stores.Add(labels), &store_bytes.Add(labels)};
  }
  auto& uploads = prometheus::BuildGauge()
                      .Name("permafrost_upload_bytes")
                      .Help(
                          "Bytes of all uploads: received; and counted against the limit, with room that is kept for "
                          "what is still to come.")
                      .Register(registry);
  families_->upload_received = &uploads.Add({{"kind", "received"}});
  families_->upload_counted = &uploads.Add({{"kind", "counted"}});
  auto& imports = prometheus::BuildCounter()
                      .Name("permafrost_dataset_imports_total")
                      .Help("Dataset imports that have ended in this process, by outcome.")
                      .Register(registry);
  for (std::string_view outcome : kImportOutcomes) {
    families_->imports[std::string(outcome)] = &imports.Add({{"outcome", std::string(outcome)}});
  }
  BeforeScrape();
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::ObserveRequest(std::string_view method, std::string_view code, absl::Duration duration) {
  auto histogram = families_->by_method.find(method);
  if (histogram == families_->by_method.end()) histogram = families_->by_method.find(kUnknown);
  histogram->second->Observe(absl::ToDoubleSeconds(duration));
  auto counter = families_->by_method_and_code.find({histogram->first, std::string(code)});
  if (counter == families_->by_method_and_code.end()) {
    counter = families_->by_method_and_code.find({kUnknown, kUnknown});
  }
  counter->second->Increment();
}

void ServerMetrics::CountStream(std::string_view method, int change) {
  if (auto it = families_->open_by_method.find(method); it != families_->open_by_method.end()) {
    it->second->Increment(change);
  }
}

void ServerMetrics::CountDroppedState(std::string_view method) {
  if (auto it = families_->dropped_by_method.find(method); it != families_->dropped_by_method.end()) {
    it->second->Increment();
  }
}

void ServerMetrics::SetImportQueue(int64_t length) { families_->import_queue.Set(static_cast<double>(length)); }

void ServerMetrics::SetDraining() { families_->draining.Set(1); }

void ServerMetrics::SetImportProgress(std::optional<double> ratio) {
  const absl::MutexLock lock(&families_->maybe_mu);
  families_->import_progress.Set(ratio);
}

void ServerMetrics::SetDatasets(std::string_view state, int64_t count) {
  if (auto it = families_->datasets.find(state); it != families_->datasets.end()) {
    it->second->Set(static_cast<double>(count));
  }
}

void ServerMetrics::SetStores(std::string_view kind, int64_t count, uint64_t bytes) {
  if (auto it = families_->stores.find(kind); it != families_->stores.end()) {
    it->second.count->Set(static_cast<double>(count));
    it->second.bytes->Set(static_cast<double>(bytes));
  }
}

void ServerMetrics::SetMappedBytes(uint64_t bytes) { families_->mapped_bytes.Set(static_cast<double>(bytes)); }

void ServerMetrics::SetUploads(uint64_t received, uint64_t counted, uint64_t limit) {
  families_->upload_received->Set(static_cast<double>(received));
  families_->upload_counted->Set(static_cast<double>(counted));
  families_->upload_limit.Set(static_cast<double>(limit));
}

void ServerMetrics::SetClockJump(absl::Duration jump) { families_->clock_jump.Set(absl::ToDoubleSeconds(jump)); }

void ServerMetrics::SetDisk(std::optional<uint64_t> free, uint64_t reserve) {
  {
    const absl::MutexLock lock(&families_->maybe_mu);
    families_->disk_free.Set(free ? std::optional<double>(static_cast<double>(*free)) : std::nullopt);
  }
  families_->disk_reserve.Set(static_cast<double>(reserve));
}

void ServerMetrics::SetImports(std::string_view outcome, int64_t total) {
  if (auto it = families_->imports.find(outcome); it != families_->imports.end()) {
    families_->RaiseTo(*it->second, static_cast<double>(total));
  }
}

void ServerMetrics::SetImportRetries(int64_t total) {
  families_->RaiseTo(families_->import_retries, static_cast<double>(total));
}

void ServerMetrics::BeforeScrape() {
  const ProcessStats stats = ReadProcessStats();
  families_->resident.Set(static_cast<double>(stats.resident_bytes));
  families_->virtual_memory.Set(static_cast<double>(stats.virtual_bytes));
  families_->open_fds.Set(static_cast<double>(stats.open_fds));
  families_->max_fds.Set(static_cast<double>(stats.max_fds));
  families_->start_time.Set(stats.start_time_seconds);
  families_->threads.Set(static_cast<double>(stats.threads));
  families_->RaiseTo(families_->cpu, stats.cpu_seconds);
}

}  // namespace permafrost::telemetry
