#include "data/batching/link_batch.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace permafrost::data {

absl::Status LinkBatcher::MakeOfNodes(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs,
                                      LinkBatch& out) const {
  const size_t links = ids.size(), each = static_cast<size_t>(negatives_), size = static_cast<size_t>(pairs);
  out.seeds.clear();
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
    PF_RETURN_IF_ERROR(draw_.Draw(link.source, static_cast<uint64_t>(epoch) * links_.size() + ids[i], negatives));
    for (size_t k = 0; k < each; ++k) {
      const size_t place = links + i * each + k;
      out.sources[place] = link.source;
      out.targets[place] = negatives[k];
      out.labels[place] = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status LinkBatcher::Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const {
  PF_RETURN_IF_ERROR(MakeOfNodes(ids, epoch, pairs, out));
  const auto real = static_cast<size_t>(this->pairs(std::ssize(ids)));
  for (const auto* ends : {&out.sources, &out.targets}) {
    for (size_t i = 0; i < real; ++i) out.seeds.push_back(static_cast<NodeId>((*ends)[i]));
  }
  std::ranges::sort(out.seeds);
  out.seeds.erase(std::ranges::unique(out.seeds).begin(), out.seeds.end());
  for (auto* ends : {&out.sources, &out.targets}) {
    for (size_t i = 0; i < real; ++i) {
      const auto place = std::ranges::lower_bound(out.seeds, static_cast<NodeId>((*ends)[i]));
      (*ends)[i] = place - out.seeds.begin();
    }
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
