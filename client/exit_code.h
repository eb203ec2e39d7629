// The meanings of the exit code of `permafrost`; scripts depend on it.
// Threads: values.
#pragma once

namespace permafrost::client {

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

}  // namespace permafrost::client
