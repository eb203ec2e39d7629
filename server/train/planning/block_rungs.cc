#include "train/planning/block_rungs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "graphcache/executable.h"

namespace permafrost::train {
namespace {

using data::BlockSizes;

constexpr double kDeviations = 8;
// The least factor between two rungs. A closer rung would not be worth its capture.
constexpr double kLeastStep = 1.005;
// `kStepAbove` is the factor between the rungs above the top planned rung. `kMaxScale` is the largest scale of these
// rungs. If the next rung would have a larger scale, it is the bound instead.
constexpr double kStepAbove = 1.5, kMaxScale = 1e4;

// The middles of nine equally likely parts of the standard normal distribution.
constexpr std::array<double, BlockRungs::kAlike> kNormal{-1.593, -0.967, -0.589, -0.282, 0, 0.282, 0.589, 0.967, 1.593};

// Returns a block's dimensions, without the number of seeds, which is equal in all batches.
std::vector<double> Dimensions(const BlockSizes& sizes) {
  std::vector<double> dims(sizes.nodes.begin() + 1, sizes.nodes.end());
  dims.push_back(static_cast<double>(sizes.edges));
  dims.push_back(static_cast<double>(sizes.nonzeros));
  return dims;
}

std::vector<double> Mean(const std::vector<BlockSizes>& probes) {
  std::vector<double> mean(Dimensions(probes.front()).size());
  for (const BlockSizes& probe : probes) {
    const std::vector<double> dims = Dimensions(probe);
    for (size_t d = 0; d < dims.size(); ++d) mean[d] += dims[d] / static_cast<double>(probes.size());
  }
  return mean;
}

// Returns min(size * seeds, 2^55). No machine holds so many rows or edges, and sums of such sizes do not overflow.
int64_t Times(int64_t size, int64_t seeds) {
  constexpr int64_t kMost = int64_t{1} << 55;
  return size > kMost / seeds ? kMost : size * seeds;
}

// Returns the least multiple of `mean` that holds `sizes`.
double ScaleOf(const BlockSizes& sizes, const std::vector<double>& mean) {
  const std::vector<double> dims = Dimensions(sizes);
  double scale = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (mean[d] > 0) scale = std::max(scale, dims[d] / mean[d]);
  }
  return scale;
}

std::vector<double> ScalesOf(const std::vector<BlockSizes>& probes, const std::vector<double>& mean) {
  std::vector<double> scales;
  scales.reserve(probes.size());
  for (const BlockSizes& probe : probes) scales.push_back(ScaleOf(probe, mean));
  return scales;
}

double Center(const std::vector<double>& scales) {
  return std::accumulate(scales.begin(), scales.end(), 0.0) / static_cast<double>(scales.size());
}

double Deviation(const std::vector<double>& scales) {
  const double center = Center(scales);
  double squares = 0;
  for (const double s : scales) squares += (s - center) * (s - center);
  return std::sqrt(squares / std::max(1.0, static_cast<double>(scales.size()) - 1));
}

// Returns kAlike scales around each scale. No result is below the least of `scales`, so that each rung holds at least
// one probe.
std::vector<double> Around(const std::vector<double>& scales) {
  // Source: Silverman, Density Estimation, 1986, equation 3.28.
  const double width = 1.06 * Deviation(scales) * std::pow(static_cast<double>(scales.size()), -0.2);
  const double least = *std::ranges::min_element(scales);
  std::vector<double> around;
  around.reserve(scales.size() * kNormal.size());
  for (const double scale : scales) {
    for (const double z : kNormal) around.push_back(std::max(least, scale + z * width));
  }
  return around;
}

BlockSizes Scaled(const std::vector<double>& mean, double scale, const BlockSizes& bound) {
  const auto part = [&](size_t d, int64_t most) {
    return std::min(most, static_cast<int64_t>(std::ceil(mean[d] * scale - 1e-9)));
  };
  BlockSizes rung = bound;
  const size_t segments = bound.nodes.size() - 1;
  for (size_t h = 0; h < segments; ++h) rung.nodes[h + 1] = part(h, bound.nodes[h + 1]);
  rung.edges = part(segments, bound.edges);
  rung.nonzeros = part(segments + 1, bound.nonzeros);
  return LeastPadded(std::move(rung));
}

// Chooses at most `count` of `scales`, which are in rising order. Always chooses the last scale. Minimises the sum of
// costs over all scales. The cost of a scale is the least chosen scale that is not below it.
std::vector<double> Choose(const std::vector<double>& scales, int64_t count) {
  const size_t n = scales.size();
  // cost[k][i] is the least cost of the first i scales if k of them are chosen and scales[i - 1] is the last chosen
  // one.
  const double never = std::numeric_limits<double>::infinity();
  const auto rungs = static_cast<size_t>(std::max<int64_t>(count, 1));
  std::vector<std::vector<double>> cost(rungs + 1, std::vector<double>(n + 1, never));
  std::vector<std::vector<size_t>> from(rungs + 1, std::vector<size_t>(n + 1, 0));
  cost[0][0] = 0;
  for (size_t k = 1; k <= rungs; ++k) {
    for (size_t i = 1; i <= n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        const double c = cost[k - 1][j] + static_cast<double>(i - j) * scales[i - 1];
        if (c < cost[k][i]) {
          cost[k][i] = c;
          from[k][i] = j;
        }
      }
    }
  }
  size_t best = 1;
  for (size_t k = 2; k <= rungs; ++k) {
    if (cost[k][n] < cost[best][n]) best = k;
  }
  std::vector<double> chosen;
  for (size_t k = best, i = n; k > 0; i = from[k--][i]) chosen.push_back(scales[i - 1]);
  std::ranges::reverse(chosen);
  return chosen;
}

}  // namespace

BlockSizes LeastPadded(BlockSizes real) {
  ++real.nodes.back();
  return real;
}

BlockSizes AtLeastDynamic(BlockSizes sizes, bool has_nonzeros) {
  constexpr int64_t kLeast = graphcache::kLeastDynamic;
  for (int64_t& rows : sizes.nodes) rows = std::max(rows, kLeast);
  sizes.edges = std::max(sizes.edges, kLeast);
  if (has_nonzeros) sizes.nonzeros = std::max(sizes.nonzeros, kLeast);
  return sizes;
}

namespace {

// Limits a block to the bounds of a sample. Each hop is limited by itself, since the earlier hops of a real sample
// may find fewer nodes.
BlockSizes Within(const data::NeighborSamplingOptions& sampling, bool means_elsewhere, BlockSizes sizes) {
  if (sampling.max_nodes > 0) {
    for (int64_t& rows : sizes.nodes) rows = std::min(rows, sampling.max_nodes);
  }
  if (sampling.max_edges > 0) {
    sizes.edges = std::min(sizes.edges, sampling.max_edges);
    if (means_elsewhere) sizes.nonzeros = std::min(sizes.nonzeros, sampling.max_edges);
  }
  return sizes;
}

BlockSizes UnboundedAtDegree(const data::NeighborSamplingOptions& sampling, int64_t seeds, int64_t degree,
                             const data::GraphSummary& graph, bool means_elsewhere) {
  if (sampling.disjoint && seeds > 1) {
    // The block has the sizes of `seeds` separate blocks of one seed each.
    BlockSizes sizes = UnboundedAtDegree(sampling, 1, degree, graph, means_elsewhere);
    for (int64_t& rows : sizes.nodes) rows = Times(rows, seeds);
    sizes.edges = Times(sizes.edges, seeds);
    sizes.nonzeros = Times(sizes.nonzeros, seeds);
    return sizes;
  }
  BlockSizes sizes;
  sizes.nodes.push_back(seeds);
  const auto edges_of = [&](int64_t targets, int64_t fan_out) {
    const bool all = fan_out == spec::kAllNeighbors;
    // With replacement, a node that has any neighbour draws `fan_out` of them.
    const int64_t drawn = all ? degree : sampling.replace ? (degree > 0 ? fan_out : 0) : std::min(fan_out, degree);
    // A number of nodes times a fan-out does not overflow, but the product of two numbers of nodes might. With
    // replacement a block may have more edges than the graph.
    const bool caps = !sampling.replace && drawn > 0 && targets > graph.edges / drawn;
    const int64_t edges = caps ? graph.edges : targets * drawn;
    return sampling.max_edges > 0 ? std::min(edges, sampling.max_edges) : edges;
  };
  const size_t hops = sampling.fan_outs.size() - (sampling.last_hop_apart ? 1 : 0);
  for (const int64_t fan_out : std::span(sampling.fan_outs).first(hops)) {
    const int64_t edges = edges_of(sizes.nodes.back(), fan_out);
    sizes.edges += edges;
    // Each hop is bounded by itself, so that the bound also holds for fewer seeds: their hops leave more nodes for
    // the next hop to find.
    sizes.nodes.push_back(std::min(graph.nodes, edges));
  }
  sizes.nonzeros = means_elsewhere ? sizes.edges + edges_of(sizes.nodes.back(), sampling.fan_outs.back())
                                   : graph.node_feature_nonzeros;
  return sizes;
}

}  // namespace

BlockSizes BlockAtDegree(const data::NeighborSamplingOptions& sampling, int64_t seeds, int64_t degree,
                         const data::GraphSummary& graph, bool means_elsewhere) {
  return Within(sampling, means_elsewhere, UnboundedAtDegree(sampling, seeds, degree, graph, means_elsewhere));
}

BlockSizes BlockBound(const data::NeighborSamplingOptions& sampling, int64_t seeds, const data::GraphSummary& graph,
                      bool means_elsewhere) {
  data::NeighborSamplingOptions most = sampling;
  if (sampling.sampler == spec::SamplerKind::kLabor) std::ranges::fill(most.fan_outs, spec::kAllNeighbors);
  return BlockAtDegree(most, seeds, graph.max_degree, graph, means_elsewhere);
}

std::vector<BlockSizes> BlockRungs::Alike(const std::vector<BlockSizes>& probes, const BlockSizes& bound) {
  const std::vector<double> own = ScalesOf(probes, Mean(probes)), around = Around(own);
  std::vector<BlockSizes> alike;
  alike.reserve(around.size());
  for (size_t i = 0; i < around.size(); ++i) {
    BlockSizes sizes = probes[i / kAlike];
    const double factor = own[i / kAlike] > 0 ? around[i] / own[i / kAlike] : 1;
    const auto scale = [factor](int64_t& size, int64_t most) {
      size = std::min(most, static_cast<int64_t>(static_cast<double>(size) * factor));
    };
    for (size_t h = 1; h < sizes.nodes.size(); ++h) scale(sizes.nodes[h], bound.nodes[h]);
    scale(sizes.edges, bound.edges);
    scale(sizes.nonzeros, bound.nonzeros);
    alike.push_back(std::move(sizes));
  }
  return alike;
}

BlockRungs BlockRungs::Plan(const std::vector<BlockSizes>& probes, const BlockSizes& bound, int64_t max_rungs) {
  const std::vector<double> mean = Mean(probes), own = ScalesOf(probes, mean);
  std::vector<double> scales = Around(own);
  std::ranges::sort(scales);
  const double top = std::max(*std::ranges::max_element(own), Center(own)) + kDeviations * Deviation(own);

  std::vector<double> chosen = max_rungs > 1 ? Choose(scales, max_rungs - 1) : std::vector<double>();
  chosen.push_back(top);
  BlockRungs plan;
  double last = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const bool is_top = i + 1 == chosen.size();
    if (chosen[i] < last * kLeastStep && !is_top) continue;
    BlockSizes rung = Scaled(mean, chosen[i], bound);
    plan.Push(std::move(rung));
    last = chosen[i];
  }
  plan.num_planned_ = std::ssize(plan.rungs_);
  const BlockSizes end = LeastPadded(bound);
  for (double scale = top; !(plan.rungs_.back() == end);) {
    // If all probes are 0 in a dimension, no scale reaches the bound.
    scale = kStepAbove * std::max(scale, 1.0);
    BlockSizes rung = scale > kMaxScale ? end : Scaled(mean, scale, bound);
    plan.Push(std::move(rung));
  }
  return plan;
}

void BlockRungs::Push(BlockSizes rung) {
  if (!rungs_.empty() && rungs_.back().shape() == rung.shape()) {
    rungs_.back() = std::move(rung);
  } else {
    rungs_.push_back(std::move(rung));
  }
}

void BlockRungs::AddPartial(const BlockRungs& partial) {
  if (rungs_.empty()) {
    *this = partial;
    return;
  }
  if (partial.num_planned_ == 0) return;
  const BlockSizes& rung = partial.rungs_[static_cast<size_t>(partial.num_planned_ - 1)];
  if (!rungs_.front().Holds(rung)) {
    // A batch with fewer seeds leaves more nodes to be found, so it can be larger in some dimension. The rungs that
    // it needs become planned too.
    while (num_planned_ < std::ssize(rungs_) && !rungs_[static_cast<size_t>(num_planned_ - 1)].Holds(rung))
      ++num_planned_;
    return;
  }
  if (rungs_.front() == rung) return;
  rungs_.insert(rungs_.begin(), rung);
  ++num_planned_;
}

std::vector<BatchShape> BlockRungs::PlannedShapes() const {
  std::vector<BatchShape> shapes;
  for (int64_t i = 0; i < num_planned_; ++i) shapes.push_back(rungs_[static_cast<size_t>(i)].shape());
  return shapes;
}

const BlockSizes& BlockRungs::Fit(const BlockSizes& real) const {
  const BlockSizes least = LeastPadded(real);
  const auto rung = std::ranges::find_if(rungs_, [&](const BlockSizes& r) { return r.Holds(least); });
  return rung != rungs_.end() ? *rung : rungs_.back();
}

const BlockSizes* BlockRungs::Find(const BatchShape& shape) const {
  for (const BlockSizes& rung : rungs_) {
    if (rung.shape() == shape) return &rung;
  }
  return nullptr;
}

}  // namespace permafrost::train
