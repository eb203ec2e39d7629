// permafrostd: reads the options, wires the rooms together, serves until told to drain.
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "api/request_observer.h"
#include "api/server.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "daemon/drain.h"
#include "daemon/options.h"
#include "daemon/version.h"
#include "daemon/wait_policy.h"
#include "data/catalog/catalog.h"
#include "graphcache/policy.h"
#include "jobs/job_manager.h"
#include "telemetry/exposer.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "telemetry/log.h"
#include "telemetry/server_metrics.h"
#include "train/torch_runner.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;
using telemetry::Log;
using telemetry::Severity;

// Long enough to answer what is under way; a client that does not read is not waited for.
constexpr absl::Duration kShutdownGrace = absl::Seconds(5);

// Where the daemon listens, for scripts: there while it serves.
class EndpointFile {
 public:
  static absl::StatusOr<EndpointFile> Write(const fs::path& state_dir, const std::string& grpc,
                                            const std::string& metrics) {
    fs::path path = state_dir / "endpoint.json";
    const nlohmann::json content = {{"grpc", grpc}, {"metrics", metrics}, {"pid", getpid()}};
    PF_RETURN_IF_ERROR(WriteFileAtomic(path, content.dump() + "\n"));
    return EndpointFile(std::move(path));
  }
  EndpointFile(EndpointFile&& other) noexcept : path_(std::exchange(other.path_, fs::path())) {}
  EndpointFile& operator=(EndpointFile&&) = delete;
  ~EndpointFile() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }

 private:
  explicit EndpointFile(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

template <class Names>
std::vector<std::string_view> NamesOf(const Names& names) {
  std::vector<std::string_view> out;
  for (const auto& [value, name] : names.rows) out.push_back(name);
  return out;
}

// What is read from the rooms when /metrics is asked, rather than told by them.
void Refresh(const jobs::JobManager& jobs, const data::Catalog& catalog, telemetry::JobMetrics& job_metrics,
             telemetry::GraphCacheMetrics& cache_metrics, telemetry::ServerMetrics& server_metrics) {
  const auto by_state = jobs.CountByState();
  for (const auto& [state, name] : jobs::kJobStateNames.rows) {
    job_metrics.SetJobs(name, by_state[static_cast<size_t>(state)]);
  }
  job_metrics.BeforeScrape();
  const train::StorageUse storage = train::CurrentStorageUse();
  cache_metrics.SetTorchStorage(storage.bytes, storage.allocations);

  std::array<int64_t, data::kDatasetStateNames.rows.size()> datasets{};
  struct Stores {
    int64_t count = 0;
    uint64_t bytes = 0;
  } graph_sets, graphs;
  for (const data::Dataset& dataset : catalog.List()) {
    ++datasets[static_cast<size_t>(dataset.state)];
    if (!dataset.summary) continue;
    Stores& stores = std::holds_alternative<data::GraphSummary>(*dataset.summary) ? graphs : graph_sets;
    ++stores.count;
    stores.bytes += data::StoreBytes(*dataset.summary);
  }
  for (const auto& [state, name] : data::kDatasetStateNames.rows) {
    server_metrics.SetDatasets(name, datasets[static_cast<size_t>(state)]);
  }
  server_metrics.SetStores("graph_set", graph_sets.count, graph_sets.bytes);
  server_metrics.SetStores("graph", graphs.count, graphs.bytes);
  server_metrics.SetMappedBytes(catalog.mapped_bytes());
  const data::Catalog::ImportCounts imports = catalog.import_counts();
  server_metrics.SetImports("succeeded", imports.succeeded);
  server_metrics.SetImports("failed", imports.failed);
  server_metrics.SetImports("cancelled", imports.cancelled);
  server_metrics.BeforeScrape();
}

absl::StatusOr<std::vector<fs::path>> ResolveImportRoots(const std::vector<fs::path>& roots) {
  std::vector<fs::path> resolved;
  for (const fs::path& root : roots) {
    std::error_code error;
    resolved.push_back(fs::canonical(root, error));
    if (error || !fs::is_directory(resolved.back(), error)) {
      return absl::FailedPreconditionError(
          absl::StrCat("--import-root \"", root.string(), "\" is not a directory that can be read"));
    }
  }
  return resolved;
}

// Stops what runs: the import, then the drained device thread. DeadlineExceeded, naming which of them goes on, if that
// takes longer than `timeout` (0: waits without limit); the process cannot end in order then.
absl::Status StopWithin(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running) {
  struct Progress {
    absl::Notification imports_stopped, jobs_ended;
  };
  // Shared, since the thread may outlive this call.
  auto progress = std::make_shared<Progress>();
  std::thread([&catalog, &jobs, progress] {
    catalog.StopImports();
    progress->imports_stopped.Notify();
    jobs.Join();
    progress->jobs_ended.Notify();
  }).detach();
  if (timeout == absl::ZeroDuration()) timeout = absl::InfiniteDuration();
  if (progress->jobs_ended.WaitForNotificationWithTimeout(timeout)) return absl::OkStatus();
  const std::string limit = absl::StrCat(" within --drain-timeout ", absl::FormatDuration(timeout));
  if (!progress->imports_stopped.HasBeenNotified()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the running import did not stop", limit, "; it begins anew at the next start"));
  }
  return absl::DeadlineExceededError(absl::StrCat("job ", running.value(), " reached no step boundary", limit,
                                                  "; it resumes from its last checkpoint at the next start"));
}

// Every watcher of a job is a file descriptor, and a checkpoint must find one free among thousands: the usual soft
// limit of 1024 is for programs that use select().
void RaiseOpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    Log(Severity::kWarning, absl::StrCat("at most ", before, " open files: cannot raise the limit to ", limit.rlim_max,
                                         ": ", std::strerror(errno)));
  }
}

absl::Status Serve(const Options& options, DrainSignal& drain) {
  const absl::Time start_time = absl::Now();
  PF_ASSIGN_OR_RETURN(const std::vector<fs::path> import_roots, ResolveImportRoots(options.import_roots));
  PF_RETURN_IF_ERROR(CreateDirectories(options.state_dir));
  auto lock = FileLock::Acquire(options.state_dir / "lock");
  if (!lock.ok()) return Annotate(lock.status(), "one daemon per --state-dir");
  const fs::path state_dir = fs::canonical(options.state_dir);

  PF_ASSIGN_OR_RETURN(const std::unique_ptr<train::Runner> runner,
                      train::MakeTorchRunner({.device = options.device, .threads = options.threads}));
  const std::string device(kDeviceNames.Name(runner->device()));

  const auto registry = std::make_shared<prometheus::Registry>();
  telemetry::JobMetrics job_metrics(*registry, NamesOf(jobs::kJobStateNames));
  telemetry::GraphCacheMetrics cache_metrics(*registry, NamesOf(kModeNames));
  telemetry::ServerMetrics server_metrics(*registry,
                                          {.version = std::string(Version()),
                                           .git_commit = std::string(GitCommit()),
                                           .torch_version = std::string(runner->torch_version()),
                                           .device = device},
                                          api::RequestMethods(), api::StatusCodeNames());

  PF_ASSIGN_OR_RETURN(const std::unique_ptr<data::Catalog> catalog,
                      data::Catalog::Create({.directory = state_dir / "datasets",
                                             .import_roots = import_roots,
                                             .threads = runner->threads(),
                                             .warn = [](std::string_view line) { Log(Severity::kWarning, line); }}));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<jobs::JobManager> jobs,
                      jobs::JobManager::Open({.state_dir = state_dir}, *catalog, *runner, job_metrics, cache_metrics));

  // Both addresses are bound before the first job starts: a taken port must not cost a job anything.
  auto exposer = telemetry::Exposer::Start(
      options.metrics, registry, [&] { Refresh(*jobs, *catalog, job_metrics, cache_metrics, server_metrics); });
  if (!exposer.ok()) return Annotate(exposer.status(), "--metrics");

  api::ServerOptions server_options;
  server_options.address = options.listen;
  server_options.info = {.version = std::string(Version()),
                         .git_commit = std::string(GitCommit()),
                         .torch_version = std::string(runner->torch_version()),
                         .device = device,
                         .threads = runner->threads(),
                         .start_time = start_time,
                         .state_dir = state_dir.string(),
                         .import_roots = {import_roots.begin(), import_roots.end()},
                         .metrics_address = (*exposer)->address()};
  server_options.observe_request = [&server_metrics](std::string_view method, std::string_view code,
                                                     absl::Duration duration) {
    server_metrics.ObserveRequest(method, code, duration);
  };
  server_options.default_graph_cache = options.graph_cache;
  server_options.request_drain = [&drain] { drain.Request("the Drain call"); };
  auto server = api::Server::Start(std::move(server_options), *jobs, *catalog);
  if (!server.ok()) return Annotate(server.status(), "--listen");

  jobs->Start();
  const auto endpoint = EndpointFile::Write(state_dir, (*server)->address(), (*exposer)->address());
  PF_RETURN_IF_ERROR(endpoint.status());
  std::cout << "permafrostd " << Version() << " ready: grpc " << (*server)->address() << ", metrics http://"
            << (*exposer)->address() << "/metrics, device " << device << " (" << runner->threads()
            << (runner->threads() == 1 ? " thread" : " threads") << "), state " << options.state_dir.string()
            << std::endl;

  Log(Severity::kInfo, absl::StrCat("draining: ", drain.Wait()));
  (*server)->SetNotServing();
  const JobId running = jobs->Drain();
  if (!running.empty()) Log(Severity::kInfo, absl::StrCat("job ", running.value(), " writes a checkpoint and stops"));
  if (const absl::Status stopped = StopWithin(options.drain_timeout, *catalog, *jobs, running); !stopped.ok()) {
    Log(Severity::kError, StdView(stopped.message()));
    // A thread of theirs still runs, so nothing may be destroyed.
    std::_Exit(kExitFailure);
  }
  (*server)->Shutdown(kShutdownGrace);
  Log(Severity::kInfo, "drained");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  BlockSignals();
  const ParsedOptions parsed = ParseOptions(argc, argv, [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  if (!parsed.options) {
    (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.text;
    return parsed.exit_code;
  }
  telemetry::InitLog();
  RaiseOpenFilesLimit();
  // gRPC prints a page about an address that cannot be bound; the daemon says it in a line. Whoever sets it may read
  // it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  DrainSignal drain;
  const SignalWaiter signals(drain);
  if (const absl::Status status = Serve(*parsed.options, drain); !status.ok()) {
    std::cerr << "permafrostd: " << StdView(status.message()) << "\n";
    return kExitFailure;
  }
  return kExitDrained;
}

}  // namespace
}  // namespace permafrost

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);
  return permafrost::Main(argc, argv);
}
