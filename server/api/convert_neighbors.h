// Converts between the wire and the domain how the neighbours of a large graph are drawn: what jobs, samples and plans
// share. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "api/wire_enum.h"
#include "base/status.h"
#include "permafrost/v1/sampling.pb.h"
#include "spec/sampling.h"

namespace permafrost::api {

using SamplerKinds = WireEnum<v1::SamplerKind, spec::kSamplerKindNames>;
using TemporalSamplings = WireEnum<v1::TemporalSampling, spec::kTemporalSamplingNames>;

// wire: v1::NeighborSampling or v1::SampleDatasetRequest::Neighbors. options: with the members replace, weighted,
// disjoint, temporal and sampler. Adds a violation for an unknown value, its field after `prefix` ("neighbors.").
template <class Wire, class Options>
void ReadDraws(const Wire& wire, std::string_view prefix, Options& options, Violations& violations) {
  options.replace = wire.replace();
  options.weighted = wire.weighted();
  options.disjoint = wire.disjoint();
  TemporalSamplings::Read(wire.temporal(), std::string(prefix) + "temporal", options.temporal, violations);
  SamplerKinds::Read(wire.sampler(), std::string(prefix) + "sampler", options.sampler, violations);
}

}  // namespace permafrost::api
