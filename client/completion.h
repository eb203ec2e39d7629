// Shell completions, made of the command line's own tree: what it has, they have.
// Threads: pure functions.
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace permafrost::client {

// A script that the shell reads. `app`: the whole program.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace permafrost::client
