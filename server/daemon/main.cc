// permafrostd reads the options, wires the parts of the server together, and serves until it is told to drain.
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/guard/call_counts.h"
#include "api/guard/methods.h"
#include "api/server.h"
#include "backup/backup.h"
#include "base/device.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "daemon/doors.h"
#include "daemon/drain.h"
#include "daemon/options.h"
#include "daemon/process_setup.h"
#include "daemon/seen_clock.h"
#include "daemon/self_test.h"
#include "daemon/service_notifier.h"
#include "daemon/state_dir.h"
#include "daemon/version.h"
#include "daemon/watchdog.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "graphcache/findings.h"
#include "jobs/job_manager.h"
#include "jobs/program_store.h"
#include "jobs/run_counters.h"
#include "spec/policy.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "telemetry/log.h"
#include "telemetry/server_metrics.h"
#include "train/loop/torch_runner.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;
using telemetry::Log;
using telemetry::Severity;

// The time that a drain leaves for calls under way to end. The daemon does not wait longer for a client that does not
// read.
constexpr absl::Duration kShutdownGrace = absl::Seconds(5);

// Returns the part of the drain's time limit that the running work may use. The rest is for ending the calls under
// way.
absl::Duration TimeForWork(const DrainSignal& drain) {
  const absl::Duration left = drain.TimeLeft();
  return std::max(left - std::min(kShutdownGrace, left / 5), absl::Milliseconds(1));
}

template <class Names>
std::vector<std::string_view> NamesOf(const Names& names) {
  std::vector<std::string_view> out;
  out.reserve(names.rows.size());
  for (const auto& [value, name] : names.rows) out.push_back(name);
  return out;
}

// Adds the path of the newest backup to an error about a damaged database, because the operator can restore the
// database from it.
absl::Status WithNewestBackup(const absl::Status& status, const fs::path& root) {
  const fs::path newest = backup::FindNewest(root);
  if (!absl::IsDataLoss(status) || newest.empty()) return status;
  return absl::DataLossError(absl::StrCat(status.message(), "; the newest backup is ", newest.string()));
}

// Holds the device fault that the device thread reported, if any.
// Threads: all methods are thread-safe.
class DeviceFault {
 public:
  void Set(const absl::Status& fault) {
    const absl::MutexLock lock(&mu_);
    fault_ = fault;
  }
  // Returns the fault; Ok if there was none.
  absl::Status Get() const {
    const absl::MutexLock lock(&mu_);
    return fault_;
  }

 private:
  mutable absl::Mutex mu_;
  absl::Status fault_ ABSL_GUARDED_BY(mu_);
};

// Stops the running work when a drain is requested; a job writes its checkpoint. If the work hangs, ends the process,
// with the exit code of a device fault if there was one.
void EndWork(const DrainSignal& drain, const std::string& reason, ServiceNotifier& notifier, data::Catalog& catalog,
             jobs::JobManager& jobs, const DeviceFault& device_fault) {
  notifier.Stopping(absl::StrCat("draining: ", reason));
  Log(Severity::kInfo, absl::StrCat("draining: ", reason));
  const JobId running = jobs.Drain();
  if (!running.empty()) telemetry::LogOfJob(Severity::kInfo, running.value(), "writes a checkpoint and stops");
  if (const absl::Status stopped = StopWork(TimeForWork(drain), catalog, jobs, running); !stopped.ok()) {
    Log(Severity::kError, StdView(stopped.message()));
    // A thread of `catalog` or `jobs` still runs, so nothing may be destroyed.
    std::_Exit(device_fault.Get().ok() ? kExitFailure : kExitDeviceFault);
  }
}

// Serves until a drain. Errors: the device fault that ended the daemon; every other error comes from starting the
// daemon.
absl::Status Serve(Options options, const std::function<ParsedOptions()>& read_options, DrainSignal& drain) {
  const absl::Time start_time = absl::Now();
  ServiceNotifier notifier(ServiceEnvironment::Read([](const char* name) { return std::getenv(name); }));
  notifier.Status("starting: reads its state and recovers jobs");
  PF_ASSIGN_OR_RETURN(const fs::path state_dir, OpenStateDir(options.state_dir));
  PF_ASSIGN_OR_RETURN(const std::vector<fs::path> import_roots, ResolveImportRoots(options.import_roots, state_dir));
  PF_ASSIGN_OR_RETURN(const fs::path backup_root, ResolveBackupRoot(options.backup_root, state_dir, import_roots));
  auto lock = FileLock::Acquire(state_dir / "lock");
  if (!lock.ok()) return Annotate(lock.status(), "one daemon per --state-dir");
  PF_ASSIGN_OR_RETURN(const bool restored, backup::BeginRestore(state_dir));
  const auto warn = [](std::string_view line) { Log(Severity::kWarning, line); };
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<SeenClock> clock,
                      SeenClock::Open({.file = state_dir / "clock.json", .warn = warn}));
  PF_ASSIGN_OR_RETURN(const Access access, OpenAccess(options, state_dir, *clock));

  const DiskReserve reserve(state_dir, options.min_free_disk_bytes);
  const std::string instance = absl::StrCat(absl::Hex(std::random_device()()), "-", absl::ToUnixNanos(start_time));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<train::Peers> peers, MakePeers(options, instance));
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<train::Runner> runner,
      train::MakeTorchRunner({.device = options.device,
                              .threads = options.threads,
                              .plans = state_dir / "plans",
                              .warn = [](std::string_view line) { Log(Severity::kWarning, line); },
                              .mps_driver_threshold = options.mps_driver_threshold,
                              .features = {.reader = options.feature_reader,
                                           .budget_bytes = options.feature_cache_bytes,
                                           .log = [](std::string_view line) { Log(Severity::kInfo, line); }},
                              .reserve = reserve,
                              .peers = peers.get(),
                              .peer_timeout = options.peer_timeout}));
  for (const std::string& warning : runner->device_state().warnings) Log(Severity::kWarning, warning);
  const std::string device(kDeviceNames.Name(runner->device()));

  const auto registry = std::make_shared<prometheus::Registry>();
  telemetry::JobMetrics job_metrics(*registry, NamesOf(jobs::kJobStateNames));
  telemetry::GraphCacheMetrics cache_metrics(*registry, jobs::CacheCounterRows(), NamesOf(kModeNames),
                                             NamesOf(graphcache::kCauseNames));
  telemetry::ServerMetrics server_metrics(*registry,
                                          {.version = std::string(Version()),
                                           .git_commit = std::string(GitCommit()),
                                           .torch_version = std::string(runner->torch_version()),
                                           .device = device},
                                          api::RequestMethods(), api::StatusCodeNames(), api::StreamMethods(),
                                          api::WatchMethods());

  telemetry::DeviceMetrics device_metrics(*registry);
  telemetry::WatchdogMetrics watchdog_metrics(*registry);

  std::vector<fs::path> readable = import_roots;
  if (options.max_upload_bytes != 0) readable.push_back(state_dir / "uploads");
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<data::Catalog> catalog,
                      data::Catalog::Create({.directory = state_dir / "datasets",
                                             .import_roots = readable,
                                             .own_files = state_dir / "uploads",
                                             .threads = runner->threads(),
                                             .warn = warn,
                                             .reserve = reserve,
                                             .max_bytes = options.max_dataset_bytes}));
  // Opening the store deletes old uploads, except uploads that imports of the catalog have yet to read.
  const auto in_use = [&catalog](const fs::path& folder) { return catalog->ImportsFrom(folder); };
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<data::UploadStore> uploads,
                      data::UploadStore::Create({.directory = state_dir / "uploads",
                                                 .max_bytes = options.max_upload_bytes,
                                                 .now = [&clock]() -> std::optional<absl::Time> {
                                                   if (clock->jump()) return std::nullopt;
                                                   return clock->Now();
                                                 },
                                                 .warn = warn,
                                                 .reserve = reserve,
                                                 .in_use = in_use}));
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<jobs::ProgramStore> programs,
      jobs::ProgramStore::Open({.directory = state_dir / "programs",
                                .describe = [&runner](const fs::path& path) { return runner->DescribeProgram(path); },
                                .reserve = reserve,
                                .max_bytes = options.max_program_bytes,
                                .warn = warn}));
  // Holds the fault if the device fails. The job then returns to the queue, and a new process continues it.
  DeviceFault device_fault;
  const auto on_device_fault = [&](const absl::Status& fault) {
    device_fault.Set(fault);
    drain.Request("the device failed");
  };
  auto opened = jobs::JobManager::Open({.state_dir = state_dir,
                                        .quarantine_unknown_jobs = options.quarantine_unknown_jobs,
                                        .preempt = !options.no_preemption,
                                        .programs = programs.get(),
                                        .keep_finished = options.keep_finished,
                                        .max_log_bytes = static_cast<int64_t>(options.max_job_log_bytes),
                                        .max_jobs = options.max_jobs,
                                        .now = [&clock] { return clock->Now(); },
                                        .may_expire = [&clock] { return !clock->jump(); },
                                        .on_device_fault = on_device_fault},
                                       *catalog, *runner, job_metrics, cache_metrics);
  if (!opened.ok()) return WithNewestBackup(opened.status(), backup_root);
  const std::unique_ptr<jobs::JobManager> jobs = *std::move(opened);

  if (restored) PF_RETURN_IF_ERROR(TakeUpRestored(state_dir, *catalog, *jobs));
  if (drain.requested()) {
    EndWork(drain, absl::StrCat(drain.Wait(), ", before anything was served"), notifier, *catalog, *jobs, device_fault);
    Log(Severity::kInfo, "drained");
    return absl::OkStatus();
  }

  // Binds both addresses before the first job starts, so that no job loses work because a port is taken.
  auto exposer = StartExposer(options, access, registry, [&] {
    RefreshMetrics(*catalog, *uploads, reserve, job_metrics, server_metrics);
    const std::optional<SeenClock::Jump> jump = clock->jump();
    server_metrics.SetClockJump(jump ? jump->by : absl::ZeroDuration());
    const StorageUse storage = runner->storage_use();
    cache_metrics.SetTorchStorage(storage.bytes, storage.peak_bytes, storage.allocations);
    device_metrics.Set(runner->device_state());
  });
  if (!exposer.ok()) return Annotate(exposer.status(), "--metrics");

  api::ServerOptions server_options;
  server_options.address = options.listen;
  server_options.info = {.version = std::string(Version()),
                         .git_commit = std::string(GitCommit()),
                         .torch_version = std::string(runner->torch_version()),
                         .device = device,
                         .instance = instance,
                         .threads = runner->threads(),
                         .start_time = start_time,
                         .state_dir = state_dir.string(),
                         .import_roots = {import_roots.begin(), import_roots.end()},
                         .metrics_address = (*exposer)->address(),
                         .socket_path = access.socket.string(),
                         .auth = std::string(access::kAuthNames.Name(options.auth)),
                         .tls = access.certificates != nullptr,
                         .restored = ReadRestored(state_dir)};
  server_options.access = {.gate = access.gate.get(),
                           .tokens = access.tokens.get(),
                           .audit = access.audit.get(),
                           .certificates = access.certificates.get(),
                           .socket = access.socket,
                           .reflection = !options.no_reflection};
  server_options.observe_request = [&server_metrics](std::string_view method, std::string_view code,
                                                     absl::Duration duration) {
    server_metrics.ObserveRequest(method, code, duration);
  };
  server_options.observe_stream = [&server_metrics](std::string_view method, int change) {
    server_metrics.CountStream(method, change);
  };
  server_options.observe_dropped = [&server_metrics](std::string_view method) {
    server_metrics.CountDroppedState(method);
  };
  server_options.default_graph_cache = options.graph_cache;
  server_options.uploads = uploads.get();
  server_options.programs = programs.get();
  server_options.limits.connections_of_a_client = options.max_connections_per_client;
  server_options.device_state = [&runner] { return runner->device_state(); };
  server_options.request_drain = [&drain] { drain.Request("the Drain call"); };
  server_options.clock.jump = [&clock]() -> std::optional<api::ClockJump> {
    const std::optional<SeenClock::Jump> jump = clock->jump();
    if (!jump) return std::nullopt;
    return api::ClockJump{.by = jump->by, .noticed = jump->noticed};
  };
  server_options.clock.confirm = [&clock] { return clock->Confirm(); };
  server_options.make_backup = [&](const api::BackupCall& call, const backup::OnProgress& on_progress) {
    return backup::Make({.state_dir = state_dir,
                         .root = backup_root,
                         .directory = call.directory,
                         .with_datasets = call.with_datasets,
                         .version = std::string(Version()),
                         .reserve = DiskReserve(backup_root, options.min_free_disk_bytes),
                         .request_id = call.request_id,
                         .answered = call.answered},
                        on_progress);
  };
  auto server = api::Server::Start(std::move(server_options), *jobs, *catalog);
  if (!server.ok()) return Annotate(server.status(), "--listen");
  // The hook runs on the thread of the request, because this thread may be in a reload that waits for the disk.
  const auto not_serving = drain.OnRequest([&server] { (*server)->SetNotServing(); });

  if (!drain.requested()) jobs->Start();
  // The flag is shared with the notifier, which outlives the watchdog.
  const auto device_healthy = std::make_shared<std::atomic<bool>>(true);
  const Watchdog watchdog({.limit = options.watchdog,
                           .read = [&jobs] { return jobs->device_activity(); },
                           .on_change =
                               [&server, device_healthy](bool healthy) {
                                 *device_healthy = healthy;
                                 (*server)->SetDeviceHealthy(healthy);
                               }},
                          watchdog_metrics);
  const auto endpoint = EndpointFile::Write(state_dir, {.grpc = (*server)->address(),
                                                        .metrics = (*exposer)->address(),
                                                        .socket = access.socket.string(),
                                                        .auth = std::string(access::kAuthNames.Name(options.auth)),
                                                        .tls = access.certificates != nullptr});
  PF_RETURN_IF_ERROR(endpoint.status());
  TellAccess(options, access);
  std::cout << "permafrostd " << Version() << " ready: grpc " << (*server)->address() << ", metrics "
            << (access.certificates ? "https://" : "http://") << (*exposer)->address() << "/metrics, device " << device
            << " (" << runner->threads() << (runner->threads() == 1 ? " thread" : " threads") << "), state "
            << options.state_dir.string() << "\n"
            << std::flush;

  notifier.Ready(absl::StrCat("serving on ", (*server)->address(), ", metrics on ", (*exposer)->address()),
                 [device_healthy] { return device_healthy->load(); });
  const std::string reason = drain.Wait([&] {
    notifier.Reloading();
    Reload(read_options, {.tokens = *access.tokens, .certificates = access.certificates.get(), .drain = drain},
           options);
    notifier.Reloaded();
  });
  server_metrics.SetDraining();
  EndWork(drain, reason, notifier, *catalog, *jobs, device_fault);
  (*server)->Shutdown(std::min(kShutdownGrace, drain.TimeLeft() / 2));
  Log(Severity::kInfo, "drained");
  return device_fault.Get();
}

int Main(int argc, char** argv) {
  BlockSignals();
  const auto read_options = [argc, argv] {
    return ParseOptions(argc, argv, [](const std::string& name) -> std::optional<std::string> {
      const char* value = std::getenv(name.c_str());
      return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    });
  };
  const ParsedOptions parsed = read_options();
  if (!parsed.options) {
    (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.text;
    return parsed.exit_code;
  }
  telemetry::InitLog(parsed.options->log_format);
  RaiseOpenFilesLimit();
  if (parsed.options->self_test_device) return SelfTest(*parsed.options);
  // gRPC prints a page about an address that it cannot bind; the daemon reports it in one line. Users can still set
  // the variable themselves to read that page.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  DrainSignal drain(parsed.options->exit_timeout, kExitFailure);
  const SignalWaiter signals(drain);
  if (const absl::Status status = Serve(*parsed.options, read_options, drain); !status.ok()) {
    if (parsed.options->log_format == telemetry::LogFormat::kJson) {
      Log(Severity::kError, StdView(status.message()));
    } else {
      std::cerr << "permafrostd: " << StdView(status.message()) << "\n";
    }
    return IsDeviceFault(status) ? kExitDeviceFault : kExitFailure;
  }
  return kExitDrained;
}

}  // namespace
}  // namespace permafrost

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);
  permafrost::KeepFewHeaps();
  return permafrost::Main(argc, argv);
}
