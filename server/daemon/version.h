// Tells which build this is. In a file of its own, so that a new commit compiles nothing else anew.
// Threads: pure functions.
#pragma once

#include <string_view>

namespace permafrost {

std::string_view Version();    // "0.1.0"
std::string_view GitCommit();  // abbreviated; empty where the sources are no git checkout

}  // namespace permafrost
