// Failures as an exit code and as text to print: one line for people, or one JSON object for programs. Threads:
// everything here is pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "grpcpp/support/status.h"

namespace permafrost::client {

// The exit codes of `permafrost`. Scripts depend on their meanings.
enum class ExitCode : int {
  kOk = 0,
  // The watched job or import ended FAILED or CANCELLED, or a health check found that the server does not serve.
  kEndedBadly = 1,
  // The flags, or a file that a flag names, are bad.
  kUsage = 2,
  // There is no server at the address, or it did not answer in time.
  kUnreachable = 3,
  // The server answered with an error.
  kRefused = 4,
  // A local file could not be read, written or verified.
  kLocalFile = 5,
  // A wait reached its time limit.
  kTimedOut = 6,
  // The user pressed Ctrl-C. The work on the server goes on.
  kInterrupted = 130,
};

inline constexpr char kExitCodeHelp[] =
    "Exit codes:\n"
    "  0    done\n"
    "  1    the watched job or import ended FAILED or CANCELLED; the server is not healthy\n"
    "  2    bad usage or bad input file\n"
    "  3    server not reachable\n"
    "  4    the server refused the request\n"
    "  5    local file error\n"
    "  6    the time given to a wait is over\n"
    "  130  interrupted; what runs on the server goes on";

struct Failure {
  ExitCode exit = ExitCode::kRefused;
  // The name of the gRPC code. For failures that no server reported: USAGE, LOCAL_FILE, UNREACHABLE, INTERRUPTED,
  // ENDED_BADLY or TIMED_OUT.
  std::string code;
  // True if a server answered with this failure. People see the code only in this case.
  bool from_server = false;
  // The name that --on gives to the server that answered. Empty without --on.
  std::string server;
  std::string message;
  // The reason of google.rpc.ErrorInfo. Empty if the server gave none.
  std::string reason;
  std::map<std::string, std::string> metadata;
  // The violations of google.rpc.BadRequest.
  std::vector<FieldViolation> violations;
};

// The server that a call went to, for messages about the call's failure.
struct CallContext {
  std::string address;
  // False if there never was a connection.
  bool connected = true;
  // The time limit of the call.
  absl::Duration timeout;
  bool tls = false;
  // The server's name in --on; empty without --on.
  std::string name;
};

Failure RpcFailure(const grpc::Status& status, const CallContext& call);
// `tls` says whether the client tried TLS; if so, a certificate may be at fault. `name` is explained in CallContext.
Failure UnreachableFailure(std::string_view address, bool tls = false, std::string_view name = "");
Failure UsageFailure(std::string_view message);
Failure LocalFileFailure(std::string_view message);
// Makes the failure for a watched job or import that ended FAILED or CANCELLED.
Failure EndedBadlyFailure(std::string_view message);
Failure TimedOutFailure(std::string_view message);
// Makes the failure for a local file or its content. Bad content is bad usage; anything else is a local file error.
Failure FileFailure(const absl::Status& status);

// Returns "permafrost: NOT_FOUND: ..." and, if several fields are bad, an indented line for each. Ends with a
// newline.
std::string RenderText(const Failure& failure);
// Returns {"error":{"code":...,"message":...,"exitCode":...}}, with reason, metadata and violations if there are any.
// Ends with a newline.
std::string RenderJson(const Failure& failure);

}  // namespace permafrost::client
