// Flags that say how neighbours are drawn, for a job and for a sample to look at.
// Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace permafrost::client {

// "15,10,all": neighbours a node, hop by hop; "all" is -1.
CLI::Option* AddFanOutOption(CLI::App& command, const std::string& flag, std::vector<int64_t>& fan_outs,
                             const std::string& help);

struct DrawFlags {
  bool replace = false;
  bool weighted = false;
};

// --replace and --weighted.
void AddDrawOptions(CLI::App& command, DrawFlags& flags);

}  // namespace permafrost::client
