#include "daemon/access_settings.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "access/gate.h"
#include "access/token_store.h"
#include "base/host_port.h"
#include "base/status.h"

namespace permafrost {
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
  for (const auto& [name, file] :
       {std::pair("peer-token-file", options.peer_token_file), std::pair("peer-ca", options.peer_authority)}) {
    if (file.empty() || !options.peers.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(where(name), " needs --peers: accepted: both, or neither"));
  }
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
      // gRPC takes connections that carry a token in plain text by these only.
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
