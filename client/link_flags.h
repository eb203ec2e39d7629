// Flags of a job that predicts links.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

struct LinkFlags {
  std::optional<bool> enabled;
  std::optional<double> valid_part, test_part;
  std::optional<uint64_t> split_seed;
  std::optional<int64_t> negatives, eval_negatives;
  std::optional<std::string> split, sampling, decoder;

  // Each says that links are to be predicted.
  bool any() const {
    return enabled == true || split || valid_part || test_part || split_seed || negatives || eval_negatives ||
           sampling || decoder;
  }
};

void AddLinkOptions(CLI::App& command, LinkFlags& flags);
void Override(const LinkFlags& flags, v1::LinkPrediction& links);

}  // namespace permafrost::client
