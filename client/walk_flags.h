// Flags of a job of node2vec.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "CLI/CLI.hpp"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// `--negatives` is of links, and of node2vec means this field.
inline constexpr std::string_view kWalkNegatives = "node2vec.num_negative_samples";
inline bool Walks(const v1::JobSpec& spec) {
  return spec.model().architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC;
}

// Beside --negatives.
struct WalkFlags {
  std::optional<int64_t> walk_length, context_size, walks_per_node;
  std::optional<double> p, q;

  bool any() const { return walk_length || context_size || walks_per_node || p || q; }
};

void AddWalkOptions(CLI::App& command, WalkFlags& flags);
void Override(const WalkFlags& flags, v1::Node2Vec& walks);

}  // namespace permafrost::client
