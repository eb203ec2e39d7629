// The program `permafrost`: parses the command line, runs the command, tells what went wrong.
#pragma once

namespace permafrost::client {

// Returns the exit code.
int Main(int argc, char** argv);

}  // namespace permafrost::client
