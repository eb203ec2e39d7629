// Pairs without an edge, for link prediction. Stateless: a draw depends only on its key, so that any thread can make
// any of them. Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/enum_names.h"
#include "data/store/graph.h"

namespace permafrost::data {

// kUniform: every node is as likely a target. kDegree: as likely as it has in-edges, so that what is often linked to is
// often told to be no link.
enum class NegativeSampling { kUniform, kDegree };
inline constexpr EnumNames<NegativeSampling, 2> kNegativeSamplingNames{
    {{{NegativeSampling::kUniform, "uniform"}, {NegativeSampling::kDegree, "degree"}}}};

class NegativeDraw {
 public:
  // `graph`: with all of its edges, those held out too; at least one node, of kDegree at least one edge.
  NegativeDraw(std::shared_ptr<const Graph> graph, NegativeSampling sampling, uint64_t seed);

  // Draws targets that `source` has no edge to and is not itself. key: which draw this is. A target that is an edge is
  // drawn anew; after kTries of them the next row that is none is taken, and only where there is no such row the last
  // draw. Errors: DataLoss.
  absl::Status Draw(NodeId source, uint64_t key, std::span<NodeId> targets) const;

  static constexpr int kTries = 16;

 private:
  const std::shared_ptr<const Graph> graph_;
  const GraphView& view_ = graph_->view();
  const NegativeSampling sampling_;
  const uint64_t seed_;
};

}  // namespace permafrost::data
