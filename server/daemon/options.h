// The options of permafrostd, which come from flags, PERMAFROST_* variables and a configuration file. ParseOptions
// puts them into one struct, which only main reads.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "access/gate.h"
#include "access/tls.h"
#include "access/token_store.h"
#include "base/device.h"
#include "data/rows/row_caches.h"
#include "jobs/job.h"
#include "spec/policy.h"
#include "telemetry/log.h"

namespace permafrost {

struct Options {
  // The address (host:port) of gRPC. Port 0 picks a free port.
  std::string listen = "127.0.0.1:7433";
  // The address (host:port) of /metrics. Port 0 picks a free port.
  std::string metrics = "127.0.0.1:9464";
  // Directory of the database, datasets and jobs. At most one daemon uses it at a time.
  std::filesystem::path state_dir = "./permafrost-state";
  DeviceChoice device;
  // Threads for the device's math and for imports. 0: one thread per core that this process may use.
  int threads = 0;
  // Directories that imports may read. Empty: only uploads can be imported.
  std::vector<std::filesystem::path> import_roots;
  // Directory in which backups are made. Empty: backups are refused.
  std::filesystem::path backup_root;
  // The most bytes of all uploads together. 0: uploads are refused.
  uint64_t max_upload_bytes = uint64_t{16} << 30;
  // The most bytes of all program archives together. 0: uploads of programs are refused.
  uint64_t max_program_bytes = uint64_t{16} << 30;
  // Bytes to keep free on the disk of the state directory. While less is free, imports, uploads and checkpoints wait.
  // 0: no bound.
  uint64_t min_free_disk_bytes = uint64_t{256} << 20;
  // The most bytes on disk of all datasets together. 0: no limit.
  uint64_t max_dataset_bytes = 0;
  // The most unfinished jobs at any time. 0: no limit.
  int64_t max_jobs = 10'000;
  // The most connections that one client calls on at once. 0: no limit.
  int64_t max_connections_per_client = 64;
  // True: the daemon starts even if directories with checkpoints or artifacts of jobs lie beside a database that has
  // never held a job. The daemon renames these directories to .quarantine-*.
  bool quarantine_unknown_jobs = false;
  // True: even a job of higher priority waits until the job on the device ends.
  bool no_preemption = false;
  // True: even without TLS or without tokens, the daemon may serve addresses that other machines can reach.
  bool insecure = false;
  // True: gRPC reflection is off, so that clients cannot query the API's description.
  bool no_reflection = false;
  // Says which ended jobs are kept.
  jobs::KeepFinished keep_finished;
  // The most bytes that are kept of each job's log. 0: all.
  uint64_t max_job_log_bytes = 0;
  // How callers identify themselves. ParseOptions never returns kAuto.
  access::Auth auth = access::Auth::kAuto;
  // The certificates of gRPC and /metrics. Without a certificate both use plain text.
  access::TlsFiles tls;
  // The gRPC addresses (host:port) of the other daemons that train jobs with replicas: the peers.
  std::vector<std::string> peers;
  // `peer_token_file` holds a bearer token that the peers accept. Empty: the peers need no token. `peer_authority`
  // signed the peers' certificates. Empty: the peers use plain text. `peer_certificate` and `peer_key` are this
  // daemon's own, for peers that require a client certificate. Empty: this daemon has none.
  std::filesystem::path peer_token_file, peer_authority, peer_certificate, peer_key;
  // The longest time that a step of a job with replicas waits for another daemon.
  absl::Duration peer_timeout = absl::Seconds(30);
  // The role of a caller with a client certificate and no token. nullopt: such a caller is refused.
  std::optional<access::Role> tls_client_role;
  // The path of the unix socket, "auto" or "off".
  std::string socket = "auto";
  // The time limit of a drain, 0: none. It covers the running job's checkpoint, calls under way and the closing of
  // files. A step takes milliseconds, so only a device that hangs makes a drain exceed the limit. In that case the
  // job loses its work since the last checkpoint. The limit is shorter than the time after which a supervisor kills
  // the process (Kubernetes: 30 s).
  absl::Duration exit_timeout = absl::Seconds(25);
  // The longest time that the device thread may make no progress before health reports it as stalled. Zero: no limit.
  absl::Duration watchdog = absl::Minutes(10);
  // Threshold on MPS driver memory, as a fraction of the recommended maximum, 0..2. Once driver memory reaches the
  // threshold, the caches of MPS are emptied between two steps. With a smaller threshold, jobs need less memory, but
  // compile shapes again more often. 0: the caches are never emptied.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // The way in which node features of large graphs are read.
  data::FeatureReader feature_reader = data::FeatureReader::kAuto;
  // The most bytes of memory that a feature cache takes. 0: what memory leaves, and less when memory gets short.
  uint64_t feature_cache_bytes = 0;
  // The format of the log on stderr.
  telemetry::LogFormat log_format = telemetry::LogFormat::kText;
  // If set: runs the self-test on this device instead of serving, and exits.
  std::optional<DeviceChoice> self_test_device;
  // Number of steps in the sealed job of the self-test, 20..1,000,000.
  int64_t self_test_steps = 1'000;
  // The dataset of the self-test: a directory of small graphs that imports can read.
  std::filesystem::path self_test_data = "deploy/sample/zinc";
  // The default graph cache policy of jobs.
  spec::PolicyOptions graph_cache;
};

// Exit codes of permafrostd, as --help lists them. A second signal during a drain exits with 128 + the signal's
// number.
inline constexpr int kExitDrained = 0;  // also the code of a passed self-test
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDeviceFault = 75;  // EX_TEMPFAIL of sysexits.h

struct ParsedOptions {
  // If set, run with these options. If not, print `text` (to stdout for exit code 0, else to stderr) and exit.
  std::optional<Options> options;
  std::string text;
  int exit_code = 0;
};

// An option whose value differs after a reload.
struct OptionChange {
  // `from` and `to` are the values before and after the reload, written as in the configuration file.
  std::string name, from, to;
  bool reloads = false;  // false: takes effect at the next start
};
std::vector<OptionChange> ChangesBetween(const Options& before, const Options& after);

// Returns the value of an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Parses the options. A flag wins over the environment, the environment over the file, the file over the default. A
// variable set to the empty string counts as not set. An error is one line with the place where the value was given,
// the value, and what would be accepted.
ParsedOptions ParseOptions(int argc, const char* const* argv, const Environment& environment);

}  // namespace permafrost
