#include "data/sampling/neighbor_sampler.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/status.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/hop_draw.h"
#include "data/sampling/row_table.h"

namespace permafrost::data {
namespace {

class Sampler final : public NeighborSampler {
 public:
  Sampler(const GraphView& view, NeighborSamplingOptions options, int threads, bool little_memory)
      : view_(view),
        options_(std::move(options)),
        threads_(std::max(threads, 1)),
        draw_(view, options_, threads_),
        table_(little_memory ? kMaxNodes : view.nodes) {}

  absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places, PageAdvisor* advisor,
                      SampledSubgraph& out, std::span<const int64_t> times) override {
    PF_RETURN_IF_ERROR(CheckTimes(times, std::ssize(seeds)));
    PF_RETURN_IF_ERROR(TakeSeeds(seeds, out));
    const uint64_t key = SplitMix64(options_.seed, sample).Next();
    ReadFaults faults;
    for (size_t hop = 0; hop < options_.fan_outs.size(); ++hop) {
      const int64_t begin = hop == 0 ? 0 : out.row_ends[hop - 1];
      targets_.assign(out.nodes.begin() + begin, out.nodes.begin() + out.row_ends[hop]);
      if (options_.disjoint) target_owners_.assign(out.owners.begin() + begin, out.owners.begin() + out.row_ends[hop]);
      const int64_t asked = options_.fan_outs[hop],
                    fan_out = draw_.FanOutLeft(targets_, asked, out.offsets.back(), faults);
      out.cut |= fan_out != asked;
      if (fan_out == 0) {
        out.offsets.insert(out.offsets.end(), targets_.size(), int64_t{out.offsets.back()});
        targets_.clear();
      }
      draw_.Begin({.targets = targets_,
                   .owners = target_owners_,
                   .times = times,
                   .fan_out = fan_out,
                   .of_all = asked == spec::kAllNeighbors && fan_out != asked,
                   .key = SplitMix64(key, hop).Next(),
                   .with_edge_places = with_edge_places});
      if (advisor != nullptr) {
        draw_.Request(*advisor, faults);
        PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      }
      // Rows are given in the order of the targets, so that they are the same whatever thread drew.
      const bool apart = options_.last_hop_apart && hop + 1 == options_.fan_outs.size();
      ParallelInOrder(
          threads_, draw_.pieces(), [&](int64_t p, int worker) { draw_.Draw(p, worker, faults); },
          [&](int64_t p) {
            if (options_.max_nodes > 0) {
              AppendWithin(p, with_edge_places, out);
            } else {
              Append(p, apart, with_edge_places, out);
            }
          });
      PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      if (!apart) out.row_ends.push_back(static_cast<int64_t>(rows_found()));
    }
    out.nodes.resize(rows_found());
    out.sources.resize(static_cast<size_t>(out.offsets.back()) - out.last_neighbors.size());
    return absl::OkStatus();
  }

 private:
  absl::Status TakeSeeds(std::span<const NodeId> seeds, SampledSubgraph& out) {
    for (const NodeId seed : seeds) {
      if (seed >= view_.nodes) {
        return absl::InvalidArgumentError(
            absl::StrCat("seeds: ", seed, " is none of the graph's ", view_.nodes, " rows"));
      }
    }
    if (options_.max_nodes > 0 && std::ssize(seeds) > options_.max_nodes) {
      Violations violations;
      violations.Add("max_nodes", absl::StrCat(options_.max_nodes, " is less than the ", seeds.size(),
                                               " seeds of a sample; accepted: at least ", seeds.size()));
      return violations.ToStatus();
    }
    table_.Clear();
    disjoint_rows_.Clear();
    out.owners.clear();
    Enlarge(out.sources, seeds.size());
    if (options_.disjoint) {
      out.nodes.clear();
      target_owners_.resize(seeds.size());
      std::iota(target_owners_.begin(), target_owners_.end(), 0U);
      disjoint_rows_.Relabel(seeds, target_owners_, out.nodes, out.owners, out.sources);
    } else {
      table_.Relabel(seeds, out.nodes, out.sources);
    }
    if (rows_found() != seeds.size()) {
      size_t twice = 0;
      while (out.sources[twice] == static_cast<int64_t>(twice)) ++twice;
      return absl::InvalidArgumentError(absl::StrCat("seeds: ", seeds[twice], " stands twice; each may stand once"));
    }
    out.row_ends.assign(1, static_cast<int64_t>(seeds.size()));
    out.offsets.assign(1, 0);
    out.last_neighbors.clear();
    out.edge_places.clear();
    out.cut = false;
    return absl::OkStatus();
  }

  absl::Status CheckTimes(std::span<const int64_t> times, int64_t seeds) const {
    if (times.empty()) return absl::OkStatus();
    if (!temporal()) return absl::InvalidArgumentError("times: are given, but the sample is not temporal");
    if (std::ssize(times) == seeds) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("times: has ", times.size(), " entries; accepted: one for each of the ", seeds, " seeds"));
  }

  bool temporal() const { return options_.temporal != spec::TemporalSampling::kNone; }
  uint64_t rows_found() const { return options_.disjoint ? disjoint_rows_.size() : table_.size(); }

  void Append(int64_t p, bool apart, bool with_edge_places, SampledSubgraph& out) {
    const HopDraw::Piece& piece = draw_.piece(p);
    const auto edges = static_cast<size_t>(out.offsets.back());
    size_t end = edges;
    for (const size_t count : std::span(piece.counts).first(piece.targets)) {
      out.offsets.push_back(static_cast<int64_t>(end += count));
    }
    const std::span<const NodeId> found = std::span(piece.found).first(piece.edges);
    if (apart) {
      out.last_neighbors.insert(out.last_neighbors.end(), found.begin(), found.end());
    } else {
      Enlarge(out.sources, edges + piece.edges);
      const std::span<int64_t> rows = std::span(out.sources).subspan(edges, piece.edges);
      if (options_.disjoint) {
        SetFoundOwners(piece, p);
        disjoint_rows_.Relabel(found, found_owners_, out.nodes, out.owners, rows);
      } else {
        table_.Relabel(found, out.nodes, rows);
      }
    }
    if (with_edge_places) {
      out.edge_places.insert(out.edge_places.end(), piece.found_places.begin(),
                             piece.found_places.begin() + static_cast<int64_t>(piece.edges));
    }
  }

  // The same within max_nodes: edges from nodes that get no row are left out. No last hop is apart.
  void AppendWithin(int64_t p, bool with_edge_places, SampledSubgraph& out) {
    const HopDraw::Piece& piece = draw_.piece(p);
    const auto begin = static_cast<size_t>(out.offsets.back());
    Enlarge(out.sources, begin + piece.edges);
    const std::span<const NodeId> found = std::span(piece.found).first(piece.edges);
    const std::span<int64_t> rows = std::span(out.sources).subspan(begin, piece.edges);
    const auto most = static_cast<uint64_t>(options_.max_nodes);
    if (options_.disjoint) {
      SetFoundOwners(piece, p);
      disjoint_rows_.RelabelWithin(most, found, found_owners_, out.nodes, out.owners, rows);
    } else {
      table_.RelabelWithin(most, found, out.nodes, rows);
    }
    size_t kept = 0, edge = 0;
    for (const size_t count : std::span(piece.counts).first(piece.targets)) {
      for (const size_t end = edge + count; edge < end; ++edge) {
        if (rows[edge] == RowTable::kNoRow) {
          out.cut = true;
          continue;
        }
        rows[kept++] = rows[edge];
        if (with_edge_places) out.edge_places.push_back(piece.found_places[edge]);
      }
      out.offsets.push_back(static_cast<int64_t>(begin + kept));
    }
  }

  // Sets, for each edge of a piece, the seed whose subgraph it is in.
  void SetFoundOwners(const HopDraw::Piece& piece, int64_t p) {
    found_owners_.clear();
    for (size_t t = 0; t < piece.targets; ++t) {
      found_owners_.insert(found_owners_.end(), piece.counts[t],
                           target_owners_[static_cast<size_t>(p * HopDraw::kPiece) + t]);
    }
  }

  const GraphView& view_;
  const NeighborSamplingOptions options_;
  const int threads_;
  HopDraw draw_;
  RowTable table_;
  DisjointRows disjoint_rows_;  // in its place, where it is disjoint
  // These belong to the current hop.
  std::vector<NodeId> targets_;
  std::vector<uint32_t> target_owners_, found_owners_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NeighborSampler>> NeighborSampler::Create(const GraphView& view,
                                                                         NeighborSamplingOptions options, int threads,
                                                                         bool little_memory) {
  Violations violations;
  if (options.fan_outs.empty() || std::ssize(options.fan_outs) > spec::kMaxHops) {
    violations.Add("fan_outs", absl::StrCat(options.fan_outs.size(), " hops are outside 1..", spec::kMaxHops));
  }
  for (const int64_t fan_out : options.fan_outs) {
    if (spec::IsFanOut(fan_out)) continue;
    violations.Add("fan_outs", absl::StrCat(fan_out, " is neither ", spec::kAllNeighbors,
                                            " (all neighbours) nor within 1..", spec::kMaxFanOut));
  }
  if (options.weighted && view.in.weights.size() != view.in.neighbors.size()) {
    violations.Add("weighted", "true, but the graph's edges have no weights");
  }
  if (const auto conflict = spec::FindDrawConflict(options)) violations.Add(conflict->field, conflict->description);
  if (options.temporal != spec::TemporalSampling::kNone) {
    if (view.in.timestamps.size() != view.in.neighbors.size()) {
      violations.Add("temporal", "is given, but the graph's edges have no timestamps");
    } else if (!options.disjoint) {
      violations.Add("temporal", "is given without disjoint: each seed sees the edges before a time of its own");
    }
  }
  if (options.last_hop_apart && options.fan_outs.size() < 2) {
    violations.Add("last_hop_apart", absl::StrCat("true, with ", options.fan_outs.size(), " hops; it takes 2 or more"));
  }
  CheckSampleBudget(options, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  if (!view.in.present()) return absl::InvalidArgumentError("the graph keeps no in-edges");
  return std::make_unique<Sampler>(view, std::move(options), threads, little_memory);
}

void CheckSampleBudget(const NeighborSamplingOptions& options, Violations& violations) {
  const auto check = [&](const char* field, int64_t bound) {
    if (bound < 0 || bound > spec::kMaxBudget) {
      violations.Add(field, absl::StrCat(bound, " is outside 0..", spec::kMaxBudget, "; 0: no bound"));
    } else if (bound > 0 && options.sampler == spec::SamplerKind::kLabor) {
      violations.Add(field,
                     "is given with sampler labor, which draws any number of a node's edges; accepted: with sampler "
                     "neighbor");
    }
  };
  check("max_nodes", options.max_nodes);
  check("max_edges", options.max_edges);
  if (options.max_nodes > 0 && options.last_hop_apart) {
    violations.Add("max_nodes", "is given with last_hop_apart, whose last hop has no rows; accepted: without");
  }
}

int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out) {
  // The targets with the fewest edges draw all that they can, and the others share what that leaves.
  std::ranges::sort(most);
  for (size_t i = 0; i < most.size(); ++i) {
    const int64_t share = left / static_cast<int64_t>(most.size() - i);
    if (most[i] > share) return share;
    left -= most[i];
  }
  return fan_out;
}

}  // namespace permafrost::data
