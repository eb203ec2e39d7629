#include "daemon/settings.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "access/gate.h"
#include "access/token_store.h"
#include "base/host_port.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

constexpr double kMaxExitSeconds = 86'400;
constexpr double kMaxWatchdogSeconds = 86'400;
constexpr char kNoBackups[] = "none";

absl::Status ReadBackupRoot(const std::string& value, Options& out) {
  out.backup_root.clear();
  return value == kNoBackups ? absl::OkStatus() : ReadDirectory(value, out.backup_root);
}

}  // namespace

absl::Status Refuse(const std::string& value, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\": accepted: ", accepted));
}

absl::Status ReadAddress(const std::string& value, std::string& out) {
  PF_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(value));
  out = FormatHostPort(parsed);
  return absl::OkStatus();
}

absl::Status ReadDirectory(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a directory") : absl::OkStatus();
}

absl::Status ReadFilePath(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a file") : absl::OkStatus();
}

absl::Status ReadBool(const std::string& value, bool& out) {
  return absl::SimpleAtob(value, &out) ? absl::OkStatus() : Refuse(value, "true or false");
}

std::string ShowBool(bool value) { return value ? "true" : "false"; }

absl::Status ReadPart(const std::string& value, double most, double& out) {
  // The comparisons are written so that NaN is refused.
  const bool ok = absl::SimpleAtod(value, &out) && out >= 0 && out <= most;
  return ok ? absl::OkStatus() : Refuse(value, absl::StrCat("0 to ", most));
}

absl::Status ReadSize(const std::string& value, uint64_t& out) {
  constexpr std::string_view kUnits = "kKMGT";
  constexpr double kMostBytes = 1e15;
  absl::string_view number = value;
  double factor = 1;
  if (absl::EndsWith(number, "B")) number.remove_suffix(1);
  const bool binary = absl::EndsWith(number, "i");
  if (binary) number.remove_suffix(1);
  if (const size_t unit = number.empty() ? std::string_view::npos : kUnits.find(number.back());
      unit != std::string_view::npos) {
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(std::max<size_t>(unit, 1)));
    number.remove_suffix(1);
  }
  double size = -1;
  // The comparisons are written so that NaN is refused.
  const bool has_unit = !binary || factor != 1;
  const bool ok = has_unit && absl::SimpleAtod(number, &size) && size >= 0 && size * factor <= kMostBytes;
  if (!ok) return Refuse(value, "bytes up to 1000TB, as 500000000, 500MB or 1.5GiB");
  out = static_cast<uint64_t>(size * factor);
  return absl::OkStatus();
}

absl::Status ReadSeconds(const std::string& value, double most, absl::Duration& out) {
  double seconds = -1;
  // The comparisons are written so that NaN is refused.
  const bool ok = absl::SimpleAtod(value, &seconds) && seconds >= 0 && seconds <= most;
  if (!ok) return Refuse(value, absl::StrCat("seconds, 0 to ", most));
  out = absl::Seconds(seconds);
  return absl::OkStatus();
}

void AddCareSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "backup-root",
       .metavar = "DIR",
       .help = "Directory that `permafrost server backup` writes below, outside of --state-dir and of\n"
               "every --import-root. none: no backups.",
       .is_list = false,
       .read = ReadBackupRoot,
       .show = [](const Options& o) { return o.backup_root.empty() ? kNoBackups : o.backup_root.string(); }});
  settings.push_back(
      {.name = "exit-timeout",
       .metavar = "SECONDS",
       .help = "From being told to stop to the process's end, all in all. Where the running job's\n"
               "checkpoint takes longer, its work since the last one is lost and the exit code is 1.\n"
               "0: no limit.",
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadSeconds(v, kMaxExitSeconds, o.exit_timeout); },
       .show = [](const Options& o) { return absl::StrCat(absl::ToDoubleSeconds(o.exit_timeout)); },
       .reloads = true});
  settings.push_back(
      {.name = "watchdog",
       .metavar = "SECONDS",
       .help = "How long the device thread may go without a sign of progress (a step, a capture, a\n"
               "part of a plan or an evaluation, a checkpoint) before health turns NOT_SERVING.\n"
               "0: for ever.",
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadSeconds(v, kMaxWatchdogSeconds, o.watchdog); },
       .show = [](const Options& o) { return absl::StrCat(absl::ToDoubleSeconds(o.watchdog)); }});
}

namespace {

constexpr char kKeepAll[] = "all";

// Parses an age: a number of days such as 30d, which Abseil does not support, or a duration in Abseil's format.
std::optional<absl::Duration> ParseAge(const std::string& value) {
  absl::string_view days(value);
  double count = 0;
  absl::Duration age;
  if (!days.empty() && days.back() == 'd' && absl::SimpleAtod(days.substr(0, days.size() - 1), &count)) {
    age = count * absl::Hours(24);
  } else if (!absl::ParseDuration(value, &age)) {
    return std::nullopt;
  }
  return age >= absl::Seconds(1) && age < absl::InfiniteDuration() ? std::optional(age) : std::nullopt;
}

absl::Status ReadKeepFinished(const std::string& value, Options& out) {
  if (value == kKeepAll) return absl::OkStatus();
  int64_t count = 0;
  if (absl::SimpleAtoi(value, &count) && count >= 0) {
    out.keep_finished.count = count;
    return absl::OkStatus();
  }
  if (const auto age = ParseAge(value)) {
    out.keep_finished.age = *age;
    return absl::OkStatus();
  }
  return Refuse(value, "all, a number of jobs, or an age of at least 1s, such as 12h or 30d");
}

std::string ShowKeepFinished(const Options& options) {
  const jobs::KeepFinished& keep = options.keep_finished;
  if (keep.keeps_all()) return kKeepAll;
  return keep.count ? absl::StrCat(*keep.count) : absl::FormatDuration(keep.age);
}

}  // namespace

void AddJobSettings(std::vector<Setting>& settings) {
  settings.push_back({.name = "no-preemption",
                      .metavar = "",
                      .help = "A job of higher priority waits for the end of the one on the device. Otherwise it\n"
                              "takes the device at the next step, after a checkpoint.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.no_preemption); },
                      .show = [](const Options& o) { return ShowBool(o.no_preemption); }});
  settings.push_back({.name = "keep-finished-jobs",
                      .metavar = "HOW-MANY",
                      .help = "Jobs that have ended and are kept: all, the last N that ended, or those that ended\n"
                              "less long ago than an age, such as 30d. Others are deleted, with their files.",
                      .is_list = false,
                      .read = ReadKeepFinished,
                      .show = ShowKeepFinished});
  settings.push_back({.name = "max-job-log",
                      .metavar = "SIZE",
                      .help = "Most bytes that are kept of a job's log, 64KiB or more; of a longer one the newest\n"
                              "half of that or more. 0: all.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) -> absl::Status {
                        if (absl::Status read = ReadSize(v, o.max_job_log_bytes); !read.ok()) return read;
                        constexpr uint64_t kLeast = 64 << 10;
                        if (o.max_job_log_bytes == 0 || o.max_job_log_bytes >= kLeast) return absl::OkStatus();
                        return Refuse(v, "0, or 64KiB and more");
                      },
                      .show = [](const Options& o) { return absl::StrCat(o.max_job_log_bytes); }});
}

namespace {

constexpr int64_t kMostJobs = 1'000'000;
constexpr int64_t kMostConnections = 1'000'000;

}  // namespace

void AddLimitSettings(std::vector<Setting>& settings) {
  settings.push_back({.name = "max-upload",
                      .metavar = "SIZE",
                      .help = "Most bytes of all uploads together, as 500MB, 2GiB or bytes. 0: uploads are refused.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_upload_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_upload_bytes); }});
  settings.push_back({.name = "max-program-bytes",
                      .metavar = "SIZE",
                      .help = "Most bytes of all programs' archives together, as 500MB, 2GiB or bytes. 0: uploads of\n"
                              "programs are refused.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_program_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_program_bytes); }});
  settings.push_back({.name = "max-dataset-bytes",
                      .metavar = "SIZE",
                      .help = "Most bytes on disk of all datasets together, as 500MB, 2GiB or bytes: an import that\n"
                              "would take more fails. 0: any number.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_dataset_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_dataset_bytes); }});
  settings.push_back(
      {.name = "max-jobs",
       .metavar = "N",
       .help = absl::StrCat("Most jobs that have not ended, 0 to ", kMostJobs, "; one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadCount(v, kMostJobs, o.max_jobs); },
       .show = [](const Options& o) { return absl::StrCat(o.max_jobs); }});
  settings.push_back(
      {.name = "max-connections-per-client",
       .metavar = "N",
       .help = absl::StrCat("Most connections that one client (a token, a certificate, else another machine) calls\n"
                            "on at once, 0 to ",
                            kMostConnections, "; a call on one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadCount(v, kMostConnections, o.max_connections_per_client); },
       .show = [](const Options& o) { return absl::StrCat(o.max_connections_per_client); }});
  settings.push_back({.name = "min-free-disk",
                      .metavar = "SIZE",
                      .help = "Kept free on the disk of --state-dir, as 500MB, 2GiB or bytes: imports, uploads and\n"
                              "checkpoints that are due wait while less is, so that jobs stay on record. 0: nothing.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.min_free_disk_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.min_free_disk_bytes); }});
}

void AddLogSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "log-format",
       .metavar = "NAME",
       .help = absl::StrCat("How the log on standard error is written: ", telemetry::kLogFormatNames.Accepted(),
                            ". json: an object\na line, with time, severity, logger, message, and job."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, telemetry::kLogFormatNames, o.log_format); },
       .show = [](const Options& o) { return std::string(telemetry::kLogFormatNames.Name(o.log_format)); }});
}

namespace {

constexpr char kNoFile[] = "none";
constexpr char kNoRole[] = "none";
constexpr char kNoPeers[] = "none";
constexpr double kMostPeerSeconds = 3600;

absl::Status ReadPem(const std::string& value, std::filesystem::path& out) {
  if (value == kNoFile) {
    out.clear();
    return absl::OkStatus();
  }
  return ReadFilePath(value, out);
}

std::string ShowPem(const std::filesystem::path& path) { return path.empty() ? kNoFile : path.string(); }

absl::Status ReadClientRole(const std::string& value, Options& out) {
  out.tls_client_role = access::kRoleNames.Parse(value);
  return out.tls_client_role || value == kNoRole
             ? absl::OkStatus()
             : Refuse(value, absl::StrCat(kNoRole, ", ", access::kRoleNames.Accepted()));
}

absl::Status ReadPeers(const std::string& value, Options& out) {
  out.peers.clear();
  if (value == kNoPeers) return absl::OkStatus();
  for (const absl::string_view each : absl::StrSplit(value, ',')) {
    std::string& peer = out.peers.emplace_back();
    PF_RETURN_IF_ERROR(ReadAddress(std::string(each), peer));
    if (std::ranges::count(out.peers, peer) > 1) return Refuse(value, absl::StrCat(peer, " once"));
  }
  return absl::OkStatus();
}

bool IsReachable(const std::string& address) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  return !parsed.ok() || !IsLoopback(*parsed);
}

absl::Status CheckTlsFiles(const Options& options, const WhereOf& where) {
  const bool certificate = !options.tls.certificate.empty(), key = !options.tls.key.empty();
  const bool authority = !options.tls.client_authority.empty();
  if (certificate != key) {
    return absl::InvalidArgumentError(absl::StrCat(where(certificate ? "tls-cert" : "tls-key"), " is given without ",
                                                   certificate ? "--tls-key" : "--tls-cert", ": accepted: both"));
  }
  if (authority && !certificate) {
    return absl::InvalidArgumentError(
        absl::StrCat(where("tls-client-ca"), " is given without --tls-cert and --tls-key: accepted: all three"));
  }
  if (options.tls_client_role && !authority) {
    return absl::InvalidArgumentError(
        absl::StrCat(where("tls-client-role"), " is given without --tls-client-ca: accepted: both"));
  }
  return absl::OkStatus();
}

absl::Status CheckPeerFiles(const Options& options, const WhereOf& where) {
  const bool certificate = !options.peer_certificate.empty(), key = !options.peer_key.empty();
  for (const auto& [name, file] :
       {std::pair("peer-token-file", options.peer_token_file), std::pair("peer-ca", options.peer_authority),
        std::pair("peer-cert", options.peer_certificate), std::pair("peer-key", options.peer_key)}) {
    if (file.empty() || !options.peers.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(where(name), " needs --peers: accepted: both, or neither"));
  }
  if (certificate != key) {
    return absl::InvalidArgumentError(absl::StrCat(where(certificate ? "peer-cert" : "peer-key"), " is given without ",
                                                   certificate ? "--peer-key" : "--peer-cert", ": accepted: both"));
  }
  if (certificate && options.peer_authority.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where("peer-cert"), " is given without --peer-ca: accepted: all three"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddAccessSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "auth",
       .metavar = "NAME",
       .help = absl::StrCat("How callers say who they are: ", access::kAuthNames.Accepted(),
                            ". token: by a bearer token\n(permafrost server token), none: not at all, and all are "
                            "admins. auto: none where\nevery address is loopback, or under --insecure without TLS; "
                            "else token."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, access::kAuthNames, o.auth); },
       .show = [](const Options& o) { return std::string(access::kAuthNames.Name(o.auth)); }});
  settings.push_back({.name = "tls-cert",
                      .metavar = "FILE",
                      .help = "Certificate in PEM, intermediate ones after it: gRPC and /metrics speak TLS. It, the\n"
                              "key and the CA are read again when the files change. none: plain text.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.tls.certificate); },
                      .show = [](const Options& o) { return ShowPem(o.tls.certificate); }});
  settings.push_back({.name = "tls-key",
                      .metavar = "FILE",
                      .help = "Its private key in PEM, without a passphrase.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.tls.key); },
                      .show = [](const Options& o) { return ShowPem(o.tls.key); }});
  settings.push_back({.name = "tls-client-ca",
                      .metavar = "FILE",
                      .help = "Certificates in PEM of whoever signs client certificates: connections without a\n"
                              "valid one are refused (mTLS). none: clients need no certificate.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.tls.client_authority); },
                      .show = [](const Options& o) { return ShowPem(o.tls.client_authority); }});
  settings.push_back({.name = "tls-client-role",
                      .metavar = "NAME",
                      .help = absl::StrCat("What a caller with a client certificate and without a token may do: ",
                                           kNoRole, ",\n", access::kRoleNames.Accepted(), "."),
                      .is_list = false,
                      .read = ReadClientRole,
                      .show = [](const Options& o) {
                        return o.tls_client_role ? std::string(access::kRoleNames.Name(*o.tls_client_role)) : kNoRole;
                      }});
  settings.push_back(
      {.name = "peers",
       .metavar = "HOST:PORT,...",
       .help =
           "gRPC addresses of daemons that may train jobs together with this one (--replicas). One\nwithout a job's "
           "dataset is sent a copy. While they train, the daemons exchange data\nunencrypted on free ports, so the "
           "network between them must be private. none: jobs have\none replica.",
       .is_list = false,
       .read = ReadPeers,
       .show = [](const Options& o) { return o.peers.empty() ? kNoPeers : absl::StrJoin(o.peers, ","); }});
  settings.push_back({.name = "peer-token-file",
                      .metavar = "FILE",
                      .help =
                          "File with a bearer token of role operator, which this daemon sends to every peer. It is\n"
                          "read at start. none: sends no token.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.peer_token_file); },
                      .show = [](const Options& o) { return ShowPem(o.peer_token_file); }});
  settings.push_back({.name = "peer-ca",
                      .metavar = "FILE",
                      .help = "PEM file of the authority that signed the peers' certificates; calls to peers then use\n"
                              "TLS. It is read at start. none: plain text.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.peer_authority); },
                      .show = [](const Options& o) { return ShowPem(o.peer_authority); }});
  settings.push_back({.name = "peer-cert",
                      .metavar = "FILE",
                      .help =
                          "PEM file of the certificate that this daemon shows to peers with --tls-client-ca. It is\n"
                          "read at start. none: shows none.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.peer_certificate); },
                      .show = [](const Options& o) { return ShowPem(o.peer_certificate); }});
  settings.push_back({.name = "peer-key",
                      .metavar = "FILE",
                      .help = "PEM file of the key of --peer-cert. It is read at start.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadPem(v, o.peer_key); },
                      .show = [](const Options& o) { return ShowPem(o.peer_key); }});
  settings.push_back({.name = "peer-timeout",
                      .metavar = "SECONDS",
                      .help =
                          "Seconds that a step of a job with replicas waits for another daemon, 1..3600. After that\n"
                          "the job goes on from its newest checkpoint with the daemons that are free. Captures and\n"
                          "evaluation wait up to 10 minutes.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) -> absl::Status {
                        absl::Duration read;
                        PF_RETURN_IF_ERROR(ReadSeconds(v, kMostPeerSeconds, read));
                        if (read < absl::Seconds(1)) return Refuse(v, "1 to 3600");
                        o.peer_timeout = read;
                        return absl::OkStatus();
                      },
                      .show = [](const Options& o) { return absl::StrCat(absl::ToDoubleSeconds(o.peer_timeout)); }});
  settings.push_back({.name = "insecure",
                      .metavar = "",
                      .help = "Allow addresses that other machines reach without TLS, or without tokens.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.insecure); },
                      .show = [](const Options& o) { return ShowBool(o.insecure); }});
  settings.push_back({.name = "socket",
                      .metavar = "FILE",
                      .help = "Unix socket of gRPC, mode 0600: whoever opens it is an admin, without a token. auto:\n"
                              "permafrost.sock in --state-dir. off: none.",
                      .is_list = false,
                      .read =
                          [](const std::string& v, Options& o) {
                            o.socket = v;
                            return v.empty() ? Refuse(v, "auto, off, or a file") : absl::OkStatus();
                          },
                      .show = [](const Options& o) { return o.socket; }});
  settings.push_back({.name = "no-reflection",
                      .metavar = "",
                      .help = "Do not tell clients without the proto files what can be called.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadBool(v, o.no_reflection); },
                      .show = [](const Options& o) { return ShowBool(o.no_reflection); }});
}

absl::Status CheckAccess(Options& options, const WhereOf& where) {
  PF_RETURN_IF_ERROR(CheckTlsFiles(options, where));
  PF_RETURN_IF_ERROR(CheckPeerFiles(options, where));
  if (absl::c_linear_search(options.peers, options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where("peers"), " names this daemon, ", options.listen, ": accepted: other daemons"));
  }
  if (!options.peer_token_file.empty() && options.peer_authority.empty() && !options.insecure &&
      std::ranges::any_of(options.peers, IsReachable)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where("peer-token-file"),
        " would travel in plain text: accepted: with --peer-ca, to loopback addresses, or with --insecure"));
  }
  const bool tls = !options.tls.certificate.empty();
  const bool reachable = IsReachable(options.listen) || IsReachable(options.metrics);
  const access::Auth asked = options.auth;
  if (asked == access::Auth::kAuto) {
    options.auth = reachable && (tls || !options.insecure) ? access::Auth::kToken : access::Auth::kNone;
  }
  for (const auto& [name, address] : {std::pair("listen", options.listen), std::pair("metrics", options.metrics)}) {
    if (!IsReachable(address)) {
      // Without TLS, gRPC carries tokens only on connections to these hosts.
      const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
      const bool usual =
          parsed.ok() && (parsed->host == "localhost" || parsed->host == "127.0.0.1" || parsed->host == "::1");
      if (!tls && !usual && options.auth == access::Auth::kToken) {
        return absl::InvalidArgumentError(absl::StrCat(
            where(name), " \"", address, "\" under --auth token without TLS: accepted: localhost, 127.0.0.1, [::1]"));
      }
      continue;
    }
    const std::string what = absl::StrCat(where(name), " \"", address, "\" can be reached from other machines");
    if (!tls && asked == access::Auth::kToken) {
      return absl::InvalidArgumentError(absl::StrCat(
          what,
          ", where tokens would travel in plain text: accepted: --tls-cert and --tls-key, or a loopback address"));
    }
    if (!tls && !options.insecure) {
      return absl::InvalidArgumentError(
          absl::StrCat(what,
                       " and there is no TLS: accepted: localhost, 127.0.0.1, [::1], any address with --tls-cert and "
                       "--tls-key, or any address together with --insecure"));
    }
    if (options.auth == access::Auth::kNone && !options.insecure) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " and ", where("auth"), " is none: accepted: token, or none together with --insecure"));
    }
  }
  return absl::OkStatus();
}

}  // namespace permafrost
