#include "data/batching/link_batch.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace permafrost::data {

absl::Status LinkBatcher::Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const {
  const size_t links = ids.size(), each = static_cast<size_t>(negatives_);
  std::vector<NodeId> sources, targets;
  for (const uint32_t id : ids) {
    sources.push_back(links_[id].source);
    targets.push_back(links_[id].target);
  }
  targets.resize(links + links * each);
  for (size_t i = 0; i < links; ++i) {
    sources.insert(sources.end(), each, sources[i]);
    const uint64_t key = static_cast<uint64_t>(epoch) * links_.size() + ids[i];
    PF_RETURN_IF_ERROR(draw_.Draw(sources[i], key, std::span(targets).subspan(links + i * each, each)));
  }
  out.seeds = sources;
  out.seeds.insert(out.seeds.end(), targets.begin(), targets.end());
  std::ranges::sort(out.seeds);
  out.seeds.erase(std::ranges::unique(out.seeds).begin(), out.seeds.end());
  const auto size = static_cast<size_t>(pairs);
  const auto place = [&out](NodeId node) {
    return static_cast<int64_t>(std::ranges::lower_bound(out.seeds, node) - out.seeds.begin());
  };
  out.sources.assign(size, 0);
  out.targets.assign(size, 0);
  out.labels.assign(size, std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < sources.size(); ++i) {
    out.sources[i] = place(sources[i]);
    out.targets[i] = place(targets[i]);
    out.labels[i] = i < links ? 1.0F : 0.0F;
  }
  out.links = links;
  return absl::OkStatus();
}

}  // namespace permafrost::data
