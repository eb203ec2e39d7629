#include "data/batching/link_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"

namespace permafrost::data {

namespace {

// Fills the pairs after the first `real` with repeats of those, so that statistics of all pairs stay near theirs.
void PadPairs(size_t real, LinkBatch& batch) {
  for (auto* ends : {&batch.sources, &batch.targets}) {
    for (size_t i = real; real > 0 && i < ends->size(); ++i) (*ends)[i] = (*ends)[i % real];
  }
}

}  // namespace

absl::Status LinkBatcher::MakeOfNodes(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs,
                                      LinkBatch& out) const {
  const size_t links = ids.size(), each = static_cast<size_t>(negatives_), size = static_cast<size_t>(pairs);
  out.seeds.clear();
  out.times.clear();
  out.sources.assign(size, 0);
  out.targets.assign(size, 0);
  out.labels.assign(size, std::numeric_limits<float>::quiet_NaN());
  out.links = links;
  std::vector<NodeId> negatives(each);
  for (size_t i = 0; i < links; ++i) {
    const Link& link = links_[ids[i]];
    out.sources[i] = link.source;
    out.targets[i] = link.target;
    out.labels[i] = 1;
    PF_ASSIGN_OR_RETURN(const bool any,
                        draw_.Draw(link.source, static_cast<uint64_t>(epoch) * links_.size() + ids[i], negatives));
    for (size_t k = 0; k < each; ++k) {
      const size_t place = links + i * each + k;
      out.sources[place] = link.source;
      out.targets[place] = any ? negatives[k] : link.target;
      if (any) out.labels[place] = 0;
    }
  }
  PadPairs(links * (1 + each), out);
  return absl::OkStatus();
}

absl::Status LinkBatcher::Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const {
  PF_RETURN_IF_ERROR(MakeOfNodes(ids, epoch, pairs, out));
  const auto real = static_cast<size_t>(this->pairs(std::ssize(ids)));
  // One end of a pair: the node, and the time of its link if links have times.
  using End = std::pair<NodeId, int64_t>;
  const auto end_of = [&](const AlignedVector<int64_t>& ends, size_t pair) {
    const size_t link = pair < ids.size() ? pair : (pair - ids.size()) / static_cast<size_t>(negatives_);
    return End(static_cast<NodeId>(ends[pair]), times_.empty() ? 0 : times_[ids[link]]);
  };
  std::vector<End> seeds;
  seeds.reserve(2 * real);
  for (const auto* ends : {&out.sources, &out.targets}) {
    for (size_t i = 0; i < real; ++i) seeds.push_back(end_of(*ends, i));
  }
  std::ranges::sort(seeds);
  seeds.erase(std::ranges::unique(seeds).begin(), seeds.end());
  for (auto* ends : {&out.sources, &out.targets}) {
    for (size_t i = 0; i < real; ++i) {
      (*ends)[i] = std::ranges::lower_bound(seeds, end_of(*ends, i)) - seeds.begin();
    }
  }
  PadPairs(real, out);
  out.seeds.reserve(seeds.size());
  for (const auto& [node, time] : seeds) {
    out.seeds.push_back(node);
    if (!times_.empty()) out.times.push_back(time);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
