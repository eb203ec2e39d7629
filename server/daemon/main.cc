// permafrostd: reads the options, wires the rooms together, serves until told to drain.
#include <prometheus/registry.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "api/request_observer.h"
#include "api/server.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "daemon/drain.h"
#include "daemon/endpoint_file.h"
#include "daemon/heap_arenas.h"
#include "daemon/open_files_limit.h"
#include "daemon/options.h"
#include "daemon/scrape.h"
#include "daemon/self_test.h"
#include "daemon/stop_work.h"
#include "daemon/version.h"
#include "daemon/wait_policy.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "graphcache/cause.h"
#include "graphcache/policy.h"
#include "jobs/job_manager.h"
#include "telemetry/device_metrics.h"
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

template <class Names>
std::vector<std::string_view> NamesOf(const Names& names) {
  std::vector<std::string_view> out;
  for (const auto& [value, name] : names.rows) out.push_back(name);
  return out;
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

absl::Status Serve(const Options& options, DrainSignal& drain) {
  const absl::Time start_time = absl::Now();
  PF_ASSIGN_OR_RETURN(const std::vector<fs::path> import_roots, ResolveImportRoots(options.import_roots));
  PF_RETURN_IF_ERROR(CreateDirectories(options.state_dir));
  auto lock = FileLock::Acquire(options.state_dir / "lock");
  if (!lock.ok()) return Annotate(lock.status(), "one daemon per --state-dir");
  const fs::path state_dir = fs::canonical(options.state_dir);

  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<train::Runner> runner,
      train::MakeTorchRunner({.device = options.device,
                              .threads = options.threads,
                              .plans = state_dir / "plans",
                              .warn = [](std::string_view line) { Log(Severity::kWarning, line); },
                              .mps_driver_threshold = options.mps_driver_threshold,
                              .features = {.reader = options.feature_reader,
                                           .budget_bytes = options.feature_cache_bytes,
                                           .log = [](std::string_view line) { Log(Severity::kInfo, line); }}}));
  for (const std::string& warning : runner->device_state().warnings) Log(Severity::kWarning, warning);
  const std::string device(kDeviceNames.Name(runner->device()));

  const auto registry = std::make_shared<prometheus::Registry>();
  telemetry::JobMetrics job_metrics(*registry, NamesOf(jobs::kJobStateNames));
  telemetry::GraphCacheMetrics cache_metrics(*registry, NamesOf(kModeNames), NamesOf(graphcache::kCauseNames));
  telemetry::ServerMetrics server_metrics(*registry,
                                          {.version = std::string(Version()),
                                           .git_commit = std::string(GitCommit()),
                                           .torch_version = std::string(runner->torch_version()),
                                           .device = device},
                                          api::RequestMethods(), api::StatusCodeNames());

  telemetry::DeviceMetrics device_metrics(*registry);

  const auto warn = [](std::string_view line) { Log(Severity::kWarning, line); };
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<data::UploadStore> uploads,
                      data::UploadStore::Create(
                          {.directory = state_dir / "uploads", .max_bytes = options.max_upload_bytes, .warn = warn}));
  std::vector<fs::path> readable = import_roots;
  if (options.max_upload_bytes != 0) readable.push_back(state_dir / "uploads");
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<data::Catalog> catalog,
      data::Catalog::Create(
          {.directory = state_dir / "datasets", .import_roots = readable, .threads = runner->threads(), .warn = warn}));
  PF_ASSIGN_OR_RETURN(
      const std::unique_ptr<jobs::JobManager> jobs,
      jobs::JobManager::Open({.state_dir = state_dir, .quarantine_unknown_jobs = options.quarantine_unknown_jobs},
                             *catalog, *runner, job_metrics, cache_metrics));

  // Both addresses are bound before the first job starts: a taken port must not cost a job anything.
  auto exposer = telemetry::Exposer::Start(options.metrics, registry, [&] {
    RefreshMetrics(*catalog, job_metrics, server_metrics);
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
  server_options.uploads = uploads.get();
  server_options.device_state = [&runner] { return runner->device_state(); };
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
  if (const absl::Status stopped = StopWork(options.drain_timeout, *catalog, *jobs, running); !stopped.ok()) {
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
  if (parsed.options->self_test_device) return SelfTest(*parsed.options);
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
  permafrost::KeepFewHeaps();
  return permafrost::Main(argc, argv);
}
