// Describes what went wrong, as an exit code and ready to be printed: one line for people, one JSON object for
// programs. Threads: everything here is pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "grpcpp/support/status.h"

namespace permafrost::client {

// The meanings of the exit code of `permafrost`; scripts depend on it.
enum class ExitCode : int {
  kOk = 0,
  // The job or import that was watched ended FAILED or CANCELLED; the server whose health was asked does not serve.
  kEndedBadly = 1,
  // Bad flags, or a bad file given by a flag.
  kUsage = 2,
  // No server at the address, or it did not answer in time.
  kUnreachable = 3,
  // The server answered with an error.
  kRefused = 4,
  // A local file could not be read, written or verified.
  kLocalFile = 5,
  // The time that a wait was given is over.
  kTimedOut = 6,
  // Ctrl-C. The work on the server goes on.
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
  // The gRPC code's name, or USAGE, LOCAL_FILE, UNREACHABLE, INTERRUPTED, ENDED_BADLY, TIMED_OUT for what no server
  // said.
  std::string code;
  // True: a server's answer is what failed; only then does a person need the code.
  bool from_server = false;
  // The name in --on of the server that answered; empty without --on.
  std::string server;
  std::string message;
  // The reason of google.rpc.ErrorInfo; empty where the server gave none.
  std::string reason;
  std::map<std::string, std::string> metadata;
  // The violations of google.rpc.BadRequest.
  std::vector<FieldViolation> violations;
};

// Whom a call was made to, for messages about its failure.
struct CallContext {
  std::string address;
  // False: there never was a connection.
  bool connected = true;
  // Time that the call had.
  absl::Duration timeout;
  bool tls = false;
  // The server's name in --on; empty without --on.
  std::string name;
};

Failure RpcFailure(const grpc::Status& status, const CallContext& call);
// `tls`: it was spoken to in TLS, where a certificate may be what is wrong. `name`: as in CallContext.
Failure UnreachableFailure(std::string_view address, bool tls = false, std::string_view name = "");
Failure UsageFailure(std::string_view message);
Failure LocalFileFailure(std::string_view message);
// The failure where the watched job or import ended FAILED or CANCELLED.
Failure EndedBadlyFailure(std::string_view message);
Failure TimedOutFailure(std::string_view message);
// The failure of a local file or of its content: bad content is bad usage, anything else a local file error.
Failure FileFailure(const absl::Status& status);

// "permafrost: NOT_FOUND: ..." and, where more than one field is bad, an indented line for each. Ends with a newline.
std::string RenderText(const Failure& failure);
// {"error":{"code":...,"message":...,"exitCode":...}} with reason, metadata and violations where there are any. Ends
// with a newline.
std::string RenderJson(const Failure& failure);

}  // namespace permafrost::client
