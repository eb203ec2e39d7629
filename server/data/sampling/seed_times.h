// Before which time the seed nodes of a batch see edges.
// Threads: values; safe anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

class SeedTimes {
 public:
  // The times of temporal sampling: `same` for all where it is given, else each node's own, which the graph may have.
  // Borrows the graph's columns.
  SeedTimes(spec::TemporalSampling temporal, std::optional<int64_t> same, const GraphView& graph)
      : same_(same), own_(temporal != spec::TemporalSampling::kNone && !same ? graph.times : Column<int64_t>()) {}

  // Replaces `times` by those of `nodes`, each below the graph's nodes; empty: every edge is before them. Errors:
  // DataLoss.
  absl::Status Of(std::span<const NodeId> nodes, std::vector<int64_t>& times) const;

 private:
  const std::optional<int64_t> same_;
  const Column<int64_t> own_;
};

}  // namespace permafrost::data
