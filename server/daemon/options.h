// The options of permafrostd, from flags, PERMAFROST_* variables and a configuration file, as one struct that only main
// reads.
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
  // host:port of gRPC and of /metrics. Port 0 picks a free one.
  std::string listen = "127.0.0.1:7433";
  std::string metrics = "127.0.0.1:9464";
  // Database, datasets and jobs. One daemon at a time.
  std::filesystem::path state_dir = "./permafrost-state";
  DeviceChoice device;
  // Threads of the device's math and of imports. 0: the cores this process may use.
  int threads = 0;
  // Directories that imports may read; none: only uploads are imported.
  std::vector<std::filesystem::path> import_roots;
  // Directory that backups are written below; empty: none are made.
  std::filesystem::path backup_root;
  // Most bytes of all uploads together. 0: uploads are refused.
  uint64_t max_upload_bytes = uint64_t{16} << 30;
  // Most bytes of all programs' archives together. 0: uploads of programs are refused.
  uint64_t max_program_bytes = uint64_t{16} << 30;
  // Kept free on the disk of the state directory: imports, uploads and checkpoints wait while less is. 0: nothing.
  uint64_t min_free_disk_bytes = uint64_t{256} << 20;
  // Most bytes on disk of all datasets together. 0: any number.
  uint64_t max_dataset_bytes = 0;
  // Most jobs that have not ended. 0: any number.
  int64_t max_jobs = 10'000;
  // Most connections that one client calls on at once. 0: any number.
  int64_t max_connections_per_client = 64;
  // Start although the database never held a job, beside directories that hold checkpoints or artifacts of some: they
  // are renamed to .quarantine-*.
  bool quarantine_unknown_jobs = false;
  // A job of higher priority waits for the end of the one on the device.
  bool no_preemption = false;
  // Serve an address that other machines reach, without TLS or without tokens.
  bool insecure = false;
  // True: clients cannot ask for the contract.
  bool no_reflection = false;
  // The ended jobs that are kept, and how many bytes of each job's log; 0: all.
  jobs::KeepFinished keep_finished;
  uint64_t max_job_log_bytes = 0;
  // The way in which callers say who they are; ParseOptions never returns kAuto.
  access::Auth auth = access::Auth::kAuto;
  // The certificates of gRPC and /metrics; without a certificate they speak plain text.
  access::TlsFiles tls;
  // peers: host:port of gRPC of the daemons that train jobs with replicas. peer_token_file: a bearer token that they
  // accept; empty: they ask for none. peer_authority: signed their certificates; empty: they speak plain text.
  // peer_certificate, peer_key: this daemon's, for peers that want one; empty: it shows none.
  std::vector<std::string> peers;
  std::filesystem::path peer_token_file, peer_authority, peer_certificate, peer_key;
  // How long a step waits for another daemon of its job.
  absl::Duration peer_timeout = absl::Seconds(30);
  // The role of a caller with a client certificate and without a token; nullopt: none.
  std::optional<access::Role> tls_client_role;
  // Path of the unix socket, "auto" or "off".
  std::string socket = "auto";
  // The time that the daemon takes to end once it is told to, all of it: the running job's checkpoint, calls under way,
  // files closed. A step takes milliseconds, so running into this means that the device hangs; the job then loses what
  // came after its last checkpoint. It is less than a supervisor waits before it kills (Kubernetes: 30 s). 0: without
  // limit.
  absl::Duration exit_timeout = absl::Seconds(25);
  // The time that the device thread may go without a sign of progress before health says so. Zero: for ever.
  absl::Duration watchdog = absl::Minutes(10);
  // Driver memory of MPS, as a part of the recommended maximum, from which on its caches are emptied between steps,
  // 0..2. Smaller: less memory, more steps that wait while shapes are compiled again. 0: never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // The way to read node features of large graphs, and the most memory that a cache of them takes, in bytes; 0: what
  // memory leaves.
  data::FeatureReader feature_reader = data::FeatureReader::kAuto;
  uint64_t feature_cache_bytes = 0;
  // The form of the log on stderr.
  telemetry::LogFormat log_format = telemetry::LogFormat::kText;
  // Serve nothing: show that this device keeps its promises, and exit.
  std::optional<DeviceChoice> self_test_device;
  // Steps of its sealed job, 20..1,000,000.
  int64_t self_test_steps = 1'000;
  // The data that the self-test trains on: a folder of small graphs that imports read.
  std::filesystem::path self_test_data = "deploy/sample/zinc";
  // The graph cache of jobs that do not say otherwise.
  spec::PolicyOptions graph_cache;
};

// Exit codes of permafrostd, as --help lists them. A second signal while it drains: 128 + the signal's number.
inline constexpr int kExitDrained = 0;  // or a self-test passed
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDeviceFault = 75;  // EX_TEMPFAIL of sysexits.h

struct ParsedOptions {
  // Run with these; if empty, print `text` (to stdout for exit code 0, else to stderr) and exit.
  std::optional<Options> options;
  std::string text;
  int exit_code = 0;
};

// One that a reload finds with another value.
struct OptionChange {
  std::string name, from, to;  // as the file says them
  bool reloads = false;        // else it takes effect at the next start
};
std::vector<OptionChange> ChangesBetween(const Options& before, const Options& after);

// Value of an environment variable; nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// A flag wins over the environment, that over the file, that over the default. A variable set to the empty string
// counts as not set. Errors are one line: where the value stands, the value, what would be accepted.
ParsedOptions ParseOptions(int argc, const char* const* argv, const Environment& environment);

}  // namespace permafrost
