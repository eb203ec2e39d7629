// Batches of pairs for link prediction: links, and pairs without an edge beside them.
// Threads: immutable once made; Make is safe anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "data/sampling/link_sampling.h"
#include "data/store/other_splits.h"

namespace permafrost::data {

// First its links, then the negatives of each link, in the order of the links: they share its source. A link whose
// source has an edge to every other node has no negatives: padding takes their place. Padding repeats real pairs, so
// that every scorer can score it.
struct LinkBatch {
  std::vector<NodeId> seeds;                // the distinct nodes of its pairs, rising; or empty
  std::vector<int64_t> times;               // of links with times [seeds]: the link's, of each node once for each time
  AlignedVector<int64_t> sources, targets;  // [pairs] places among the seeds, without seeds nodes
  AlignedVector<float> labels;              // [pairs] 1: a link, 0: none, NaN: padding
  size_t links = 0;

  SeedPairs positives() const { return {std::span(sources).first(links), std::span(targets).first(links)}; }
};

class LinkBatcher {
 public:
  // links: of the split, kept by the caller. negatives: pairs without an edge beside each link. times: of the links,
  // kept too; or empty.
  LinkBatcher(std::span<const Link> links, NegativeDraw draw, int64_t negatives, std::span<const int64_t> times = {})
      : links_(links), draw_(std::move(draw)), negatives_(negatives), times_(times) {}

  int64_t pairs(int64_t links) const { return links * (1 + negatives_); }
  // Makes the batch of the links `ids`, padded to `pairs`, without seeds. epoch: whose negatives. Equal arguments make
  // equal batches. Errors: DataLoss.
  absl::Status MakeOfNodes(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;
  // The same with seeds.
  absl::Status Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;

 private:
  std::span<const Link> links_;
  NegativeDraw draw_;
  int64_t negatives_;
  std::span<const int64_t> times_;
};

}  // namespace permafrost::data
