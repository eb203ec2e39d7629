#include "data/sampling/edge_draw.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <functional>

namespace permafrost::data {
namespace {

// Repeated draws of an edge are found as follows. More than kFewDraws draws are sorted. Otherwise, each draw is
// compared with the earlier draws. With at most kFewEdges edges, the earlier draws are bits of one number. With more
// edges, a draw is compared with kRun earlier draws at a time, which takes a few instructions.
constexpr int64_t kFewDraws = 48;
constexpr uint64_t kFewEdges = 64;
constexpr size_t kRun = 16;
static_assert(kFewDraws % kRun == 0);

// Calls take(i, draw, last) for i in 0..wanted-1, where `draw` is in 0..last. `take` must use edge `draw`. If an
// earlier call used edge `draw`, `take` must use edge `last` instead, which no earlier call can have used.
// Source: Bentley and Floyd 1987, "A sample of brilliance".
template <class Take>
void DrawEach(uint64_t degree, uint64_t wanted, SplitMix64& random, const Take& take) {
  for (uint64_t i = 0; i < wanted; ++i) {
    const uint64_t last = degree - wanted + i;
    take(i, ScaleBits(random.Next(), last + 1), last);
  }
}

// Returns the weight that draws give to an edge with this stored weight. An edge of weight 0 is never drawn.
double WeightOf(float weight) { return weight > 0 ? std::min(weight, FLT_MAX) : 0; }

// Calls put(draw) `count` times with numbers uniform in 0..bound-1. If the bound is at most 2^16, each 64 random bits
// give two numbers. The probability of a number then has a relative error of at most 2^-16.
template <class Put>
void DrawBelow(SplitMix64& random, uint64_t bound, int64_t count, const Put& put) {
  if (bound > (uint64_t{1} << 16)) {
    for (int64_t i = 0; i < count; ++i) put(ScaleBits(random.Next(), bound));
    return;
  }
  int64_t i = 0;
  for (; i + 1 < count; i += 2) {
    const uint64_t bits = random.Next();
    put(((bits >> 32) * bound) >> 32);
    put(((bits & UINT32_MAX) * bound) >> 32);
  }
  if (i < count) put(ScaleBits(random.Next(), bound));
}

}  // namespace

uint64_t EdgeDraw::MostTakenWhole(int64_t fan_out) const {
  // With weights, no list is taken whole, since some edges may have weight 0.
  if (weighted_) return 0;
  if (fan_out == spec::kAllNeighbors) return UINT64_MAX;
  return replace_ ? 0 : static_cast<uint64_t>(fan_out);
}

int64_t EdgeDraw::Draw(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
                       std::span<uint64_t> places) {
  if (extent.size() == 0) return 0;
  if (weighted_) {
    if (fan_out == spec::kAllNeighbors) return TakeHeavy(extent, weights, places);
    return replace_ ? DrawWeighted(extent, weights, fan_out, random, places)
                    : DrawWeightedDistinct(extent, weights, fan_out, random, places);
  }
  if (!replace_) return DrawDistinct(extent, fan_out, random, places);
  uint64_t* place = places.data();
  DrawBelow(random, extent.size(), fan_out, [&](uint64_t draw) { *place++ = extent.begin + draw; });
  return fan_out;
}

// Takes all edges with a weight above 0, in their order.
int64_t EdgeDraw::TakeHeavy(Adjacency::Extent extent, const float* weights, std::span<uint64_t> places) {
  size_t taken = 0;
  for (uint64_t i = 0; i < extent.size(); ++i) {
    if (WeightOf(weights[i]) > 0) places[taken++] = extent.begin + i;
  }
  return static_cast<int64_t>(taken);
}

int64_t EdgeDraw::DrawEvenly(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
                             std::span<uint64_t> places) {
  heavy_.resize(extent.size());
  heavy_.resize(static_cast<size_t>(TakeHeavy(extent, weights, heavy_)));
  if (heavy_.size() <= static_cast<size_t>(fan_out)) {
    std::ranges::copy(heavy_, places.begin());
    return std::ssize(heavy_);
  }
  const int64_t drawn = DrawDistinct({.begin = 0, .end = heavy_.size()}, fan_out, random, places);
  for (uint64_t& place : places.first(static_cast<size_t>(drawn))) place = heavy_[place];
  return drawn;
}

// Draws exactly `fan_out` distinct edges. The extent must have more than `fan_out` edges.
int64_t EdgeDraw::DrawDistinct(Adjacency::Extent extent, int64_t fan_out, SplitMix64& random,
                               std::span<uint64_t> places) {
  const uint64_t degree = extent.size();
  const auto wanted = static_cast<uint64_t>(fan_out);
  if (fan_out <= kFewDraws && degree <= kFewEdges) {
    uint64_t drawn = 0;  // bit i: edge i is drawn
    DrawEach(degree, wanted, random, [&](size_t i, uint64_t draw, uint64_t last) {
      // Avoids a branch, which the processor could not predict: `twice` is all ones if the edge is drawn already.
      const uint64_t twice = 0 - (drawn >> draw & 1);
      const uint64_t edge = draw ^ ((draw ^ last) & twice);
      drawn |= uint64_t{1} << edge;
      places[i] = extent.begin + edge;
    });
    return fan_out;
  }
  if (fan_out <= kFewDraws && degree <= UINT32_MAX) {
    std::array<uint32_t, kFewDraws> drawn;
    drawn.fill(UINT32_MAX);  // not an edge
    DrawEach(degree, wanted, random, [&](size_t i, uint64_t draw, uint64_t last) {
      bool twice = false;
      for (size_t run = 0; run < i; run += kRun) {
        for (size_t j = run; j < run + kRun; ++j) twice |= drawn[j] == static_cast<uint32_t>(draw);
      }
      const uint64_t edge = twice ? last : draw;
      drawn[i] = static_cast<uint32_t>(edge);
      places[i] = extent.begin + edge;
    });
    return fan_out;
  }
  // Replaces repeated draws by new draws until all are distinct. If more than half of the edges are wanted, draws the
  // edges that are left out.
  const bool leaves_out = wanted > degree / 2;
  const uint64_t draws = leaves_out ? degree - wanted : wanted;
  chosen_.clear();
  while (chosen_.size() < draws) {
    DrawBelow(random, degree, static_cast<int64_t>(draws - chosen_.size()),
              [this](uint64_t draw) { chosen_.push_back(draw); });
    std::sort(chosen_.begin(), chosen_.end());
    chosen_.erase(std::unique(chosen_.begin(), chosen_.end()), chosen_.end());
  }
  size_t written = 0;
  if (!leaves_out) {
    for (const uint64_t draw : chosen_) places[written++] = extent.begin + draw;
    return fan_out;
  }
  auto left_out = chosen_.begin();
  for (uint64_t i = 0; i < degree; ++i) {
    if (left_out != chosen_.end() && *left_out == i) {
      ++left_out;
    } else {
      places[written++] = extent.begin + i;
    }
  }
  return fan_out;
}

int64_t EdgeDraw::DrawWeighted(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64& random,
                               std::span<uint64_t> places) {
  sums_.resize(extent.size());
  double sum = 0;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] = sum += WeightOf(weights[i]);
  if (sum == 0) return 0;
  for (int64_t i = 0; i < fan_out; ++i) {
    // sums_[i] is the sum of the weights of edges 0..i. Takes the first edge whose sum is above the draw. Its weight
    // is above 0, since its sum is above the previous sum. If rounding makes the draw equal to the total, takes the
    // first edge whose sum is the total.
    const double draw = OpenUnit(random.Next()) * sum;
    auto edge = std::upper_bound(sums_.begin(), sums_.end(), draw);
    if (edge == sums_.end()) edge = std::lower_bound(sums_.begin(), sums_.end(), sum);
    places[static_cast<size_t>(i)] = extent.begin + static_cast<uint64_t>(edge - sums_.begin());
  }
  return fan_out;
}

// Algorithm A-ExpJ of Efraimidis and Spirakis 2006, over logarithms of their keys: log(u) / weight. It draws a key
// only for an edge that enters the sample. The edges in between are skipped by their summed weight.
int64_t EdgeDraw::DrawWeightedDistinct(Adjacency::Extent extent, const float* weights, int64_t fan_out,
                                       SplitMix64& random, std::span<uint64_t> places) {
  constexpr auto kLeastOnTop = std::greater<>();
  keys_.clear();
  uint64_t i = 0;
  const uint64_t degree = extent.size();
  for (; i < degree && keys_.size() < static_cast<size_t>(fan_out); ++i) {
    const double weight = WeightOf(weights[i]);
    if (weight > 0) keys_.emplace_back(std::log(OpenUnit(random.Next())) / weight, i);
  }
  std::make_heap(keys_.begin(), keys_.end(), kLeastOnTop);
  double jump = i < degree ? std::log(OpenUnit(random.Next())) / keys_.front().first : 0;
  for (; i < degree; ++i) {
    const double weight = WeightOf(weights[i]);
    jump -= weight;
    if (jump > 0 || weight == 0) continue;
    // Draws a key above the least key: u is uniform between exp(least key * weight) and 1.
    const double least = std::exp(keys_.front().first * weight);
    const double key = std::log(least + (1 - least) * OpenUnit(random.Next())) / weight;
    std::pop_heap(keys_.begin(), keys_.end(), kLeastOnTop);
    keys_.back() = {key, i};
    std::push_heap(keys_.begin(), keys_.end(), kLeastOnTop);
    jump = std::log(OpenUnit(random.Next())) / keys_.front().first;
  }
  for (size_t k = 0; k < keys_.size(); ++k) places[k] = extent.begin + keys_[k].second;
  return static_cast<int64_t>(keys_.size());
}

absl::Status SeedTimes::Of(std::span<const NodeId> nodes, std::vector<int64_t>& times) const {
  times.clear();
  if (same_) {
    times.assign(nodes.size(), *same_);
    return absl::OkStatus();
  }
  if (own_.empty()) return absl::OkStatus();
  times.reserve(nodes.size());
  for (const NodeId node : nodes) {
    if (!own_.Touch(node, uint64_t{node} + 1)) return own_.status();
    times.push_back(own_[node]);
  }
  return absl::OkStatus();
}

int64_t TemporalDraw::Draw(Adjacency::Extent extent, const int64_t* timestamps, std::optional<int64_t> before,
                           int64_t fan_out, SplitMix64 random, std::span<uint64_t> places) {
  earlier_.clear();
  for (uint64_t i = 0; i < extent.size(); ++i) {
    if (!before || timestamps[i] < *before) earlier_.push_back(i);
  }
  const auto put = [&](size_t at, uint64_t edge) { places[at] = extent.begin + edge; };
  const uint64_t found = earlier_.size();
  const bool all = fan_out == spec::kAllNeighbors || (!replace_ && found <= static_cast<uint64_t>(fan_out));
  if (all || found == 0) {
    for (size_t i = 0; i < found; ++i) put(i, earlier_[i]);
    return static_cast<int64_t>(found);
  }
  if (strategy_ == spec::TemporalSampling::kLast) {
    const auto later = [&](uint64_t a, uint64_t b) {
      return timestamps[a] != timestamps[b] ? timestamps[a] > timestamps[b] : a > b;
    };
    std::ranges::nth_element(earlier_, earlier_.begin() + fan_out, later);
    std::sort(earlier_.begin(), earlier_.begin() + fan_out);
    for (size_t i = 0; i < static_cast<size_t>(fan_out); ++i) put(i, earlier_[i]);
    return fan_out;
  }
  const int64_t drawn = draw_.Draw({.begin = 0, .end = found}, nullptr, fan_out, random, places);
  for (size_t i = 0; i < static_cast<size_t>(drawn); ++i) put(i, earlier_[places[i]]);
  return drawn;
}

}  // namespace permafrost::data
