// Flags that say how neighbours are drawn, for a job and for a sample to look at.
// Threads: everything here is pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/commands.h"
#include "permafrost/v1/sampling.pb.h"

namespace permafrost::client {

// "15,10,all": neighbours a node, hop by hop; "all" is -1.
CLI::Option* AddFanOutOption(CLI::App& command, const std::string& flag, std::vector<int64_t>& fan_outs,
                             const std::string& help);

struct DrawFlags {
  std::optional<bool> replace, weighted, disjoint;
  std::optional<std::string> temporal, sampler;
  std::optional<int64_t> seed_time;

  // Returns whether a flag asks for something; a false value only takes away.
  bool any() const {
    return replace == true || weighted == true || disjoint == true || temporal || sampler || seed_time;
  }
};

// --replace, --weighted, --disjoint, --temporal, --seed-time and --sampler.
void AddDrawOptions(CLI::App& command, DrawFlags& flags);

// The names of their options, as they are on the command line.
inline constexpr std::array<const char*, 6> kDrawOptions{"--replace",  "--weighted",  "--disjoint",
                                                         "--temporal", "--seed-time", "--sampler"};

// Writes what was given over `wire`: NeighborSampling, or SampleDatasetRequest::Neighbors.
template <class Wire>
void Override(const DrawFlags& flags, Wire& wire) {
  if (flags.replace) wire.set_replace(*flags.replace);
  if (flags.weighted) wire.set_weighted(*flags.weighted);
  if (flags.disjoint) wire.set_disjoint(*flags.disjoint);
  if (flags.temporal) {
    wire.set_temporal(EnumOf<v1::TemporalSampling>(*v1::TemporalSampling_descriptor(), *flags.temporal));
  }
  if (flags.sampler) wire.set_sampler(EnumOf<v1::SamplerKind>(*v1::SamplerKind_descriptor(), *flags.sampler));
  if (flags.seed_time) wire.set_seed_time(*flags.seed_time);
}

}  // namespace permafrost::client
