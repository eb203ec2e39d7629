// The ways to choose the neighbours of sampled nodes. Threads: values. Includes no other room, as fan_out.h.
#pragma once

#include <optional>
#include <string>

#include "base/enum_names.h"

namespace permafrost::data {

enum class SamplerKind {
  kNeighbor,  // of each node its own draw
  // LABOR-0 of Balin and Catalyurek 2023, "Layer-Neighbor Sampling": nodes of a hop share one random number for each
  // node that they may draw, so that they draw the same ones. As DGL's LaborSampler without importance_sampling.
  kLabor,
};
inline constexpr EnumNames<SamplerKind, 2> kSamplerKindNames{
    {{{SamplerKind::kNeighbor, "neighbor"}, {SamplerKind::kLabor, "labor"}}}};

enum class TemporalSampling {
  kNone,     // timestamps are not read
  kUniform,  // of the edges before a seed's time, each as likely
  kLast,     // of those, the latest
};
inline constexpr EnumNames<TemporalSampling, 3> kTemporalSamplingNames{
    {{{TemporalSampling::kNone, "none"}, {TemporalSampling::kUniform, "uniform"}, {TemporalSampling::kLast, "last"}}}};

// The option of a sample that contradicts its other options. The field is named as in NeighborSamplingOptions.
struct DrawConflict {
  std::string field, description;
};

// options: with the members replace, weighted, disjoint, temporal and sampler of NeighborSamplingOptions. nullopt:
// none.
template <class Options>
std::optional<DrawConflict> FindDrawConflict(const Options& options) {
  const auto conflict = [](const char* field, const char* description) {
    return DrawConflict{.field = field, .description = description};
  };
  const bool temporal = options.temporal != TemporalSampling::kNone;
  if (temporal && options.weighted) {
    return conflict("weighted",
                    "is given with temporal, which draws evenly or takes the latest; accepted: one of them");
  }
  if (options.temporal == TemporalSampling::kLast && options.replace) {
    return conflict("replace", "is given with temporal last, which draws nothing; accepted: with temporal uniform");
  }
  if (options.sampler != SamplerKind::kLabor) return std::nullopt;
  constexpr const char* kOnlyNeighbor = "is given with sampler labor; accepted: with sampler neighbor";
  if (temporal) return conflict("temporal", kOnlyNeighbor);
  if (options.disjoint) return conflict("disjoint", kOnlyNeighbor);
  if (options.replace) return conflict("replace", kOnlyNeighbor);
  if (options.weighted) return conflict("weighted", kOnlyNeighbor);
  return std::nullopt;
}

}  // namespace permafrost::data
