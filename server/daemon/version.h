// Tells which build this is. It has its own source file, so that a new commit recompiles nothing else.
// Threads: pure functions.
#pragma once

#include <string_view>

namespace permafrost {

std::string_view Version();    // "0.1.0"
std::string_view GitCommit();  // abbreviated; empty if the sources are not a git checkout

}  // namespace permafrost
