// The program `permafrost`: parses the command line, runs the command, and reports errors.
// Threads: call Main from the main thread, before any other thread runs.
#pragma once

namespace permafrost::client {

// Returns the exit code (failure.h).
int Main(int argc, char** argv);

}  // namespace permafrost::client
