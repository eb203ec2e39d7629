// The program `permafrost`: parses the command line, runs the command, reports what went wrong.
// Threads: the main thread, before any other.
#pragma once

namespace permafrost::client {

// Returns the exit code (failure.h).
int Main(int argc, char** argv);

}  // namespace permafrost::client
