#include "data/batching/pair_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/parallel.h"
#include "base/random.h"
#include "base/status.h"
#include "data/sampling/edge_draw.h"

namespace permafrost::data {
namespace {

// Fills the padding, which follows the first `real` pairs, with repeats of the real pairs. The statistics over all
// pairs then stay close to the statistics over the real pairs.
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

namespace {

constexpr uint32_t kNotMet = std::numeric_limits<uint32_t>::max();
// Makes the draws of negative walks independent of the draws of walks along edges.
constexpr uint64_t kNegativeStream = uint64_t{1} << 63;
constexpr int64_t kNegativesInPiece = 512;

int64_t EntriesOf(const WalkBatchOptions& options, int64_t room) {
  return room * options.per_seed * (1 + options.negatives) * options.length;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WalkBatcher>> WalkBatcher::Create(std::shared_ptr<const Graph> graph,
                                                                 const WalkBatchOptions& options, int threads) {
  // Checks the graph and the options, without making a walk.
  PF_RETURN_IF_ERROR(RandomWalks(graph->view(), {}, {.length = options.length, .p = options.p, .q = options.q},
                                 /*threads=*/1, {}));
  return std::unique_ptr<WalkBatcher>(new WalkBatcher(std::move(graph), options, threads));
}

absl::Status WalkBatcher::Make(std::span<const NodeId> seeds, int64_t room, uint64_t stream, WalkBatch& out) {
  const int64_t length = options_.length, per_seed = options_.per_seed, negatives = options_.negatives;
  const auto count = static_cast<size_t>(std::ssize(seeds) * per_seed);
  out.seeds = std::ssize(seeds);
  out.room = room;
  out.walks.resize(static_cast<size_t>(EntriesOf(options_, room)));
  starts_.resize(count);
  for (size_t w = 0; w < count; ++w) starts_[w] = seeds[w / static_cast<size_t>(per_seed)];
  drawn_.resize(count * static_cast<size_t>(length));
  SplitMix64 keys(options_.seed, stream);
  const WalkOptions walk{.length = length, .p = options_.p, .q = options_.q, .seed = keys.Next()};
  const uint64_t negative_key = keys.Next();
  PF_RETURN_IF_ERROR(RandomWalks(graph_->view(), starts_, walk, threads_, drawn_));
  PF_RETURN_IF_ERROR(graph_->CheckIntact());

  int64_t* const positive = out.walks.data();
  std::copy(drawn_.begin(), drawn_.end(), positive);
  int64_t* const negative = positive + room * per_seed * length;
  const uint64_t nodes = graph_->view().nodes;
  const auto real_negatives = static_cast<int64_t>(count) * negatives;
  ParallelFor(threads_, real_negatives, kNegativesInPiece, [&](int64_t begin, int64_t end, int) {
    for (int64_t w = begin; w < end; ++w) {
      SplitMix64 random(negative_key ^ kNegativeStream, static_cast<uint64_t>(w));
      int64_t* const to = negative + w * length;
      to[0] = starts_[static_cast<size_t>(w / negatives)];
      for (int64_t i = 1; i < length; ++i) to[i] = static_cast<int64_t>(ScaleBits(random.Next(), nodes));
    }
  });
  // Fills the padding of both kinds of walk.
  const int64_t any = seeds.front();
  std::fill(positive + static_cast<int64_t>(count) * length, negative, any);
  std::fill(negative + real_negatives * length, out.walks.data() + out.walks.size(), any);
  FindRows(out);
  return absl::OkStatus();
}

// Groups the entries of the walks by node, with a counting sort. Nodes become rows in the order in which the walks
// first meet them.
void WalkBatcher::FindRows(WalkBatch& out) {
  const int64_t length = options_.length, per_kind = out.seeds * options_.per_seed * length;
  const auto entries = static_cast<int64_t>(out.walks.size());
  const std::pair<int64_t, int64_t> kinds[] = {
      {0, per_kind},
      {out.room * options_.per_seed * length, out.room * options_.per_seed * length + per_kind * options_.negatives}};
  if (row_of_node_.empty()) row_of_node_.assign(graph_->view().nodes, kNotMet);
  const auto most = static_cast<size_t>(std::min<int64_t>(entries, static_cast<int64_t>(graph_->view().nodes)));
  out.rows.assign(most, out.walks.front());
  out.offsets.assign(most + 1, 0);
  out.places.resize(out.walks.size());
  size_t found = 0;
  for (const auto& [begin, end] : kinds) {
    for (int64_t e = begin; e < end; ++e) {
      const int64_t node = out.walks[static_cast<size_t>(e)];
      uint32_t& row = row_of_node_[static_cast<size_t>(node)];
      if (row == kNotMet) {
        row = static_cast<uint32_t>(found);
        out.rows[found++] = node;
      }
      ++out.offsets[row + 1];
    }
  }
  for (size_t m = 0; m < most; ++m) out.offsets[m + 1] += out.offsets[m];
  // The next loop fills in the places, and so advances each offset to the offset of the next row. The offsets are
  // moved back afterwards.
  for (const auto& [begin, end] : kinds) {
    for (int64_t e = begin; e < end; ++e) {
      const uint32_t row = row_of_node_[static_cast<size_t>(out.walks[static_cast<size_t>(e)])];
      out.places[static_cast<size_t>(out.offsets[row]++)] = e;
    }
  }
  std::copy_backward(out.offsets.begin(), out.offsets.begin() + static_cast<std::ptrdiff_t>(most), out.offsets.end());
  out.offsets.front() = 0;
  std::fill(out.places.begin() + static_cast<std::ptrdiff_t>(out.offsets.back()), out.places.end(), 0);
  for (size_t m = 0; m < found; ++m) row_of_node_[static_cast<size_t>(out.rows[m])] = kNotMet;
}

}  // namespace permafrost::data
