#include "data/batching/block_batch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/status.h"
#include "data/batching/row_gather.h"

namespace permafrost::data {
namespace {

constexpr int64_t kEdgesPiece = 16384;
constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

std::string ToString(const BlockSizes& sizes) {
  return absl::StrCat("rows ", absl::StrJoin(sizes.nodes, " + "), ", ", sizes.edges, " edges, ", sizes.nonzeros,
                      " nonzeros");
}

absl::Status CheckHolds(const BlockSizes& padded, const BlockSizes& real) {
  if (padded.Holds(real)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("padded sizes (", ToString(padded), ") do not hold the block (", ToString(real), ")"));
}

absl::Status CheckSubgraph(const SampledSubgraph& subgraph, bool last_hop_apart, bool edge_places) {
  const int64_t hops = subgraph.hops();
  const auto inner = static_cast<int64_t>(subgraph.sources.size());
  const std::vector<int64_t>& offsets = subgraph.offsets;
  const bool adds_up = hops >= 1 && std::is_sorted(subgraph.row_ends.begin(), subgraph.row_ends.end()) &&
                       subgraph.row_ends.front() >= 0 &&
                       subgraph.row_ends.back() == static_cast<int64_t>(subgraph.nodes.size()) &&
                       std::ssize(offsets) == subgraph.row_ends[last_hop_apart ? hops : hops - 1] + 1 &&
                       offsets[static_cast<size_t>(subgraph.row_ends[hops - 1])] == inner &&
                       offsets.back() == (last_hop_apart ? subgraph.edges() : inner);
  if (!adds_up) return absl::InvalidArgumentError("subgraph: its rows and edges do not add up");
  if (edge_places && subgraph.edge_places.size() != subgraph.sources.size()) {
    return absl::InvalidArgumentError(
        "subgraph: was sampled without the places of its edges, which weights and features of edges need");
  }
  return absl::OkStatus();
}

// Sets `sizes`, except nonzeros, to the sizes of the subgraph. Reuses the memory of `sizes`.
void SetSizes(const SampledSubgraph& subgraph, BlockSizes& sizes) {
  sizes.nodes.clear();
  int64_t before = 0;
  for (const int64_t end : subgraph.row_ends) sizes.nodes.push_back(end - std::exchange(before, end));
  sizes.edges = static_cast<int64_t>(subgraph.sources.size());
}

class GatheringBatcher final : public BlockBatcher {
 public:
  GatheringBatcher(std::shared_ptr<const Graph> graph, Options options, std::unique_ptr<NeighborSampler> sampler)
      : graph_(std::move(graph)),
        options_(std::move(options)),
        sampler_(std::move(sampler)),
        features_(view_.node_features, view_.nodes, options_.threads, options_.rows.get()),
        positions_(view_.positions, view_.nodes, options_.threads),
        edges_(*graph_, options_.edges, options_.threads) {}

  const Graph& graph() const override { return *graph_; }

  absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph) const override {
    return data::SizesOf(subgraph, view_, options_.means_elsewhere());
  }

  bool has_nonzeros() const override { return options_.means_elsewhere() || features_.sparse(); }

  absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, PageAdvisor* advisor, SampledSubgraph& out,
                      std::span<const int64_t> times) override {
    PF_RETURN_IF_ERROR(sampler_->Sample(seeds, sample, needs_places(), advisor, out, times));
    if (advisor != nullptr) {
      const auto targets = static_cast<uint64_t>(view_.num_targets);
      if (!view_.labels.empty()) {
        for (const NodeId seed : seeds)
          advisor->Request(view_.labels.Reads(seed * targets, (seed + uint64_t{1}) * targets));
      }
      // A draw by weight has read these weights already.
      if (options_.edge_weights && !options_.sampling.weighted) {
        for (const uint64_t place : out.edge_places) advisor->Request(view_.in.weights.Reads(place, place + 1));
      }
      edges_.Request(out.edge_places, *advisor);
      if (options_.positions) PF_RETURN_IF_ERROR(positions_.Request(out.nodes, *advisor));
      if (options_.rows == nullptr && !options_.features_elsewhere) {
        PF_RETURN_IF_ERROR(features_.Request(out.nodes, *advisor));
        PF_RETURN_IF_ERROR(features_.Request(out.last_neighbors, *advisor));
      } else {
        advisor->Flush();
      }
    }
    return graph_->CheckIntact();
  }

  RowCache::Announcement Announce(const SampledSubgraph& subgraph) const override {
    if (options_.rows == nullptr) return RowCache::Announcement();
    return options_.rows->Announce(subgraph.nodes, subgraph.last_neighbors);
  }

  absl::StatusOr<RowCache::Lease> Lease(const SampledSubgraph& subgraph, bool must,
                                        RowCache::Announcement* announced) const override {
    if (options_.rows == nullptr) return RowCache::Lease();
    return options_.rows->Pin(subgraph.nodes, subgraph.last_neighbors, must, announced);
  }

  absl::Status Gather(const SampledSubgraph& subgraph, const BlockSizes& padded, BlockBatch& out,
                      RowCache::Lease* lease) override {
    RowCache::Lease own;
    if (lease == nullptr) {
      PF_ASSIGN_OR_RETURN(own, Lease(subgraph, /*must=*/true, nullptr));
      lease = &own;
    }
    PF_RETURN_IF_ERROR(lease->Await());
    PF_RETURN_IF_ERROR(CheckSubgraph(subgraph, options_.sampling.last_hop_apart, needs_places()));
    SetSizes(subgraph, out.real);
    if (options_.means_elsewhere()) {
      out.real.nonzeros = subgraph.edges();
    } else {
      PF_ASSIGN_OR_RETURN(out.real.nonzeros, features_.CountNonzeros(subgraph.nodes));
    }
    if (absl::Status fits = CheckHolds(padded, out.real); !fits.ok()) {
      // The file may have changed, so that sparse rows are longer than when they were counted.
      PF_RETURN_IF_ERROR(graph_->CheckIntact());
      return fits;
    }
    out.padded = padded;
    out.nodes.assign(subgraph.nodes.begin(), subgraph.nodes.end());
    out.real_seeds = out.real.nodes.front();
    SetBounds(out.real.nodes, real_);
    SetBounds(padded.nodes, padded_);
    PF_RETURN_IF_ERROR(GatherFeatures(subgraph, out));
    PF_RETURN_IF_ERROR(GatherPositions(out));
    GatherEdges(subgraph, out);
    PF_RETURN_IF_ERROR(GatherWeights(subgraph, out));
    out.edge_int_columns = edges_.int_columns();
    out.edge_float_columns = edges_.float_columns();
    PF_RETURN_IF_ERROR(edges_.Gather(subgraph.edge_places, padded.edges, out.edge_ints, out.edge_floats));
    PF_RETURN_IF_ERROR(GatherLabels(out));
    return graph_->CheckIntact();
  }

  absl::Status Pad(const BlockSizes& padded, BlockBatch& batch) const override {
    PF_RETURN_IF_ERROR(CheckHolds(padded, batch.real));
    SegmentBounds from, to;
    SetBounds(batch.padded.nodes, from);
    SetBounds(padded.nodes, to);
    const std::span<const int64_t> real(batch.real.nodes);
    if (options_.features_elsewhere) {
      MoveRows(batch.feature_rows, from, to, real, /*width=*/1);
      FillPadding(batch.feature_rows, to, real, /*width=*/1, row_of_zeros());
      if (means()) {
        MoveOffsets(batch.feature_offsets, from, to, real);
        PadNeighbors(padded.nonzeros, batch);
      }
    } else if (const auto* dense = std::get_if<DenseFeatures>(&view_.node_features)) {
      MoveRows(batch.features, from, to, real, RowWidth(*dense));
      FillPadding(batch.features, to, real, RowWidth(*dense), 0.0f);
    } else if (features_.sparse()) {
      MoveOffsets(batch.feature_offsets, from, to, real);
      ResizeEntries(padded.nonzeros, batch);
    }
    if (const int64_t width = position_columns(); width > 0) {
      MoveRows(batch.positions, from, to, real, width);
      FillPadding(batch.positions, to, real, width, 0.0f);
    }
    ParallelFor(options_.threads, batch.real.edges, kEdgesPiece, [&](int64_t begin, int64_t end, int) {
      for (int64_t e = begin; e < end; ++e) {
        int64_t& source = batch.sources[static_cast<size_t>(e)];
        source = MoveRow(source, from, to);
      }
    });
    PadSources(batch.real.edges, padded, batch);
    if (options_.edge_weights) batch.edge_weights.resize(static_cast<size_t>(padded.edges), 0.0f);
    edges_.Pad(batch.real.edges, padded.edges, batch.edge_ints, batch.edge_floats);
    batch.labels.resize(static_cast<size_t>(batch.real_seeds * view_.num_targets));
    batch.labels.resize(static_cast<size_t>(padded.nodes.front() * view_.num_targets), kMissing);
    // Rows of the last segment have no in-edges.
    from.pop_back();
    to.pop_back();
    MoveOffsets(batch.offsets, from, to, real.first(real.size() - 1));
    batch.padded = padded;
    return absl::OkStatus();
  }

 private:
  bool needs_places() const { return options_.edge_weights || edges_.reads(); }
  bool means() const { return options_.sampling.last_hop_apart; }
  int64_t RowWidth(const DenseFeatures& dense) const { return means() ? 2 * dense.width : dense.width; }

  absl::Status GatherFeatures(const SampledSubgraph& subgraph, BlockBatch& out) {
    const std::span<const int64_t> real(out.real.nodes);
    if (options_.features_elsewhere) {
      PF_RETURN_IF_ERROR(PlaceFeatures(out));
      return means() ? PlaceNeighbors(subgraph, out) : absl::OkStatus();
    }
    out.feature_rows.clear();
    if (const auto* dense = std::get_if<DenseFeatures>(&view_.node_features)) {
      out.feature_offsets.clear();
      out.neighbors.clear();
      out.features.resize(static_cast<size_t>(padded_.back() * RowWidth(*dense)));
      PF_RETURN_IF_ERROR(means() ? features_.Means(subgraph, real_, padded_, out.features)
                                 : features_.Dense(out.nodes, real_, padded_, out.features));
      FillPadding(out.features, padded_, real, RowWidth(*dense), 0.0f);
    } else if (const auto* sparse = std::get_if<SparseFeatures>(&view_.node_features)) {
      out.feature_offsets.resize(static_cast<size_t>(padded_.back()) + 1);
      out.feature_columns.resize(static_cast<size_t>(out.real.nonzeros));
      out.feature_values.resize(sparse->values.empty() ? 0 : out.feature_columns.size());
      PF_RETURN_IF_ERROR(
          features_.Sparse(out.nodes, real_, padded_, out.feature_offsets, out.feature_columns, out.feature_values));
      FillOffsetPadding(out.feature_offsets, padded_, real, out.real.nonzeros);
      ResizeEntries(out.padded.nonzeros, out);
    }
    return absl::OkStatus();
  }

  // Returns the number of position columns that batches carry.
  int64_t position_columns() const { return options_.positions ? std::get<DenseFeatures>(view_.positions).width : 0; }

  absl::Status GatherPositions(BlockBatch& out) {
    const int64_t width = position_columns();
    if (width == 0) return absl::OkStatus();
    out.positions.resize(static_cast<size_t>(padded_.back() * width));
    PF_RETURN_IF_ERROR(positions_.Dense(out.nodes, real_, padded_, out.positions));
    FillPadding(out.positions, padded_, std::span<const int64_t>(out.real.nodes), width, 0.0f);
    return absl::OkStatus();
  }

  absl::Status PlaceFeatures(BlockBatch& out) const {
    PF_RETURN_IF_ERROR(CheckNodes(out.nodes));
    out.features.clear();
    out.feature_offsets.clear();
    out.feature_rows.resize(static_cast<size_t>(padded_.back()));
    for (size_t s = 0; s + 1 < real_.size(); ++s) {
      std::copy(out.nodes.begin() + real_[s], out.nodes.begin() + real_[s + 1], out.feature_rows.begin() + padded_[s]);
    }
    FillPadding(out.feature_rows, padded_, std::span<const int64_t>(out.real.nodes), /*width=*/1, row_of_zeros());
    return absl::OkStatus();
  }

  absl::Status PlaceNeighbors(const SampledSubgraph& subgraph, BlockBatch& out) const {
    PF_RETURN_IF_ERROR(CheckNodes(subgraph.last_neighbors));
    out.feature_offsets.resize(static_cast<size_t>(padded_.back()) + 1);
    for (size_t s = 0; s + 1 < real_.size(); ++s) {
      std::copy(subgraph.offsets.begin() + real_[s], subgraph.offsets.begin() + real_[s + 1],
                out.feature_offsets.begin() + padded_[s]);
    }
    FillOffsetPadding(out.feature_offsets, padded_, std::span<const int64_t>(out.real.nodes), out.real.nonzeros);
    out.neighbors.resize(static_cast<size_t>(out.real.nonzeros));
    const auto last = std::ranges::transform(subgraph.sources, out.neighbors.begin(), [&](int64_t row) {
                        return subgraph.nodes[static_cast<size_t>(row)];
                      }).out;
    std::ranges::copy(subgraph.last_neighbors, last);
    PadNeighbors(out.padded.nonzeros, out);
    return absl::OkStatus();
  }

  void PadNeighbors(int64_t nonzeros, BlockBatch& out) const {
    out.neighbors.resize(static_cast<size_t>(out.real.nonzeros));
    out.neighbors.resize(static_cast<size_t>(nonzeros), static_cast<NodeId>(view_.nodes));
  }

  // Checks node numbers, because the code elsewhere that gathers features by these numbers does not check them.
  absl::Status CheckNodes(std::span<const NodeId> nodes) const {
    if (std::ranges::none_of(nodes, [this](NodeId node) { return node >= view_.nodes; })) return absl::OkStatus();
    return absl::InvalidArgumentError("subgraph: names a node that the graph does not have");
  }

  // Returns the number of the row of zeros, which exists if features lie elsewhere.
  int64_t row_of_zeros() const { return static_cast<int64_t>(view_.nodes); }

  void ResizeEntries(int64_t nonzeros, BlockBatch& out) const {
    out.feature_columns.resize(static_cast<size_t>(out.real.nonzeros));
    out.feature_columns.resize(static_cast<size_t>(nonzeros), 0);
    if (out.feature_values.empty() && std::get<SparseFeatures>(view_.node_features).values.empty()) return;
    out.feature_values.resize(static_cast<size_t>(out.real.nonzeros));
    out.feature_values.resize(static_cast<size_t>(nonzeros), 0.0f);
  }

  void GatherEdges(const SampledSubgraph& subgraph, BlockBatch& out) {
    out.sources.resize(static_cast<size_t>(out.padded.edges));
    ParallelFor(options_.threads, out.real.edges, kEdgesPiece, [&](int64_t begin, int64_t end, int) {
      for (auto e = static_cast<size_t>(begin); e < static_cast<size_t>(end); ++e) {
        out.sources[e] = MoveRow(subgraph.sources[e], real_, padded_);
      }
    });
    PadSources(out.real.edges, out.padded, out);
    padded_.pop_back();
    out.offsets.resize(static_cast<size_t>(padded_.back()) + 1);
    for (size_t s = 0; s + 1 < padded_.size(); ++s) {
      std::copy(subgraph.offsets.begin() + real_[s], subgraph.offsets.begin() + real_[s + 1],
                out.offsets.begin() + padded_[s]);
    }
    FillOffsetPadding(out.offsets, padded_, std::span<const int64_t>(out.real.nodes).first(padded_.size() - 1),
                      out.real.edges);
  }

  static void PadSources(int64_t real_edges, const BlockSizes& padded, BlockBatch& out) {
    out.sources.resize(static_cast<size_t>(real_edges));
    out.sources.resize(static_cast<size_t>(padded.edges), std::max<int64_t>(padded.total_nodes() - 1, 0));
  }

  absl::Status GatherWeights(const SampledSubgraph& subgraph, BlockBatch& out) {
    if (!options_.edge_weights) return absl::OkStatus();
    const Column<float>& weights = view_.in.weights;
    out.edge_weights.resize(static_cast<size_t>(out.padded.edges));
    std::atomic<bool> damaged{false};
    ParallelFor(options_.threads, out.real.edges, kEdgesPiece, [&](int64_t begin, int64_t end, int) {
      for (auto e = static_cast<size_t>(begin); e < static_cast<size_t>(end); ++e) {
        const uint64_t place = subgraph.edge_places[e];
        const bool there = place < weights.size() && weights.Touch(place, place + 1);
        if (!there) damaged = true;
        out.edge_weights[e] = there ? weights[place] : 0.0f;
      }
    });
    std::fill(out.edge_weights.begin() + out.real.edges, out.edge_weights.end(), 0.0f);
    if (!damaged) return absl::OkStatus();
    PF_RETURN_IF_ERROR(weights.status());
    return absl::InvalidArgumentError("subgraph: names an edge that the graph does not have");
  }

  absl::Status GatherLabels(BlockBatch& out) {
    const auto targets = static_cast<uint64_t>(view_.num_targets);
    out.labels.assign(static_cast<size_t>(out.padded.nodes.front()) * targets, kMissing);
    if (view_.labels.empty()) return absl::OkStatus();
    for (size_t i = 0; i < static_cast<size_t>(out.real_seeds); ++i) {
      const uint64_t begin = out.nodes[i] * targets, end = begin + targets;
      if (end > view_.labels.size()) return absl::InvalidArgumentError("subgraph: a seed is no row of the graph");
      if (!view_.labels.Touch(begin, end)) return view_.labels.status();
      std::copy(view_.labels.data() + begin, view_.labels.data() + end, out.labels.data() + i * targets);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const Graph> graph_;
  const GraphView& view_ = graph_->view();
  const Options options_;
  const std::unique_ptr<NeighborSampler> sampler_;
  FeatureGather features_, positions_;
  const EdgeGather edges_;
  // The bounds of the batch that is being gathered.
  SegmentBounds real_, padded_;
};

}  // namespace

int64_t BlockSizes::total_nodes() const { return std::accumulate(nodes.begin(), nodes.end(), int64_t{0}); }

bool BlockSizes::Holds(const BlockSizes& other) const {
  return nodes.size() == other.nodes.size() && edges >= other.edges && nonzeros >= other.nonzeros &&
         std::equal(nodes.begin(), nodes.end(), other.nodes.begin(), std::greater_equal<>());
}

absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph, const GraphView& view, bool means_elsewhere) {
  BlockSizes sizes;
  SetSizes(subgraph, sizes);
  if (means_elsewhere) {
    sizes.nonzeros = subgraph.edges();
    return sizes;
  }
  PF_ASSIGN_OR_RETURN(sizes.nonzeros, FeatureGather(view.node_features, view.nodes, 1).CountNonzeros(subgraph.nodes));
  return sizes;
}

absl::StatusOr<std::unique_ptr<BlockBatcher>> BlockBatcher::Create(std::shared_ptr<const Graph> graph,
                                                                   Options options) {
  const GraphView& view = graph->view();
  Violations violations;
  if (options.edge_weights && view.in.weights.size() != view.in.neighbors.size()) {
    violations.Add("edge_weights", "true, but the graph's edges have no weights");
  }
  if (options.edges == EdgeInputs::kFeatures && view.edge_features.width == 0) {
    violations.Add("edges", "features, but the graph's edges have none");
  }
  if (options.edges == EdgeInputs::kWeights && view.in.weights.size() != view.in.neighbors.size()) {
    violations.Add("edges", "weights, but the graph's edges have none");
  }
  if (options.positions && !std::holds_alternative<DenseFeatures>(view.positions)) {
    violations.Add("positions", "true, but the graph's nodes have none");
  }
  const bool reads_edges = options.edge_weights || options.edges != EdgeInputs::kNone;
  if (options.sampling.last_hop_apart && (reads_edges || !std::holds_alternative<DenseFeatures>(view.node_features))) {
    violations.Add("last_hop_apart",
                   absl::StrCat("true, ", reads_edges ? "with edge weights or features" : "without dense features",
                                "; it takes dense features, and neither weights nor features of edges"));
  }
  if (options.features_elsewhere &&
      (options.rows != nullptr || !std::holds_alternative<DenseFeatures>(view.node_features))) {
    violations.Add(
        "features_elsewhere",
        "true, without dense features or with a row cache; it takes dense features that nobody gathers here");
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  options.threads = std::max(options.threads, 1);
  PF_ASSIGN_OR_RETURN(auto sampler,
                      NeighborSampler::Create(view, options.sampling, options.threads, options.rows != nullptr));
  return std::make_unique<GatheringBatcher>(std::move(graph), std::move(options), std::move(sampler));
}

namespace {

// Returns `count` rows of `from`, beginning with row `begin` and wrapping around as often as needed. Returns zeros if
// `from` has no rows.
template <class T>
AlignedVector<T> Repeat(const AlignedVector<T>& from, int64_t rows, int64_t width, int64_t count, uint64_t begin) {
  AlignedVector<T> out(static_cast<size_t>(count * width), T{});
  if (rows == 0 || from.empty()) return out;
  for (int64_t row = 0; row < count; ++row) {
    const auto source = from.begin() + static_cast<int64_t>((begin + static_cast<uint64_t>(row)) % rows) * width;
    std::copy(source, source + width, out.begin() + row * width);
  }
  return out;
}

// Repeats sparse rows as Repeat repeats dense rows, and appends an empty row for the padding.
void RepeatEntries(const BlockBatch& from, int64_t rows, int64_t count, uint64_t begin, BlockBatch& out) {
  if (from.feature_offsets.empty()) return;
  out.feature_offsets.assign(1, 0);
  for (int64_t row = 0; row < count; ++row) {
    const auto source = static_cast<size_t>((begin + static_cast<uint64_t>(row)) % static_cast<uint64_t>(rows));
    const int64_t first = from.feature_offsets[source], last = from.feature_offsets[source + 1];
    out.feature_columns.insert(out.feature_columns.end(), from.feature_columns.begin() + first,
                               from.feature_columns.begin() + last);
    if (!from.feature_values.empty()) {
      out.feature_values.insert(out.feature_values.end(), from.feature_values.begin() + first,
                                from.feature_values.begin() + last);
    }
    out.feature_offsets.push_back(static_cast<int64_t>(out.feature_columns.size()));
  }
  out.feature_offsets.push_back(out.feature_offsets.back());
  out.real.nonzeros = out.padded.nonzeros = out.feature_offsets.back();
}

// Returns the seeds of `from` that have a label.
std::vector<int64_t> FindLabelled(const BlockBatch& from, int64_t targets) {
  std::vector<int64_t> labelled;
  for (int64_t seed = 0; seed < from.real_seeds; ++seed) {
    const auto* const labels = from.labels.data() + seed * targets;
    if (std::any_of(labels, labels + targets, [](float label) { return !std::isnan(label); })) labelled.push_back(seed);
  }
  return labelled;
}

}  // namespace

BlockBatch ComposeBlock(const BlockBatch& from, const BatchShape& shape, uint64_t seed, bool weighted) {
  const int64_t nodes = shape.nodes - 1, rows = from.real.total_nodes(), edges = from.real.edges;
  SplitMix64 random(seed, /*stream=*/0);
  const uint64_t begin = random.Below(static_cast<uint64_t>(rows));
  BlockBatch out;
  out.real = {.nodes = {shape.graphs, nodes - shape.graphs, 0}, .edges = shape.edges};
  out.padded = {.nodes = {shape.graphs, nodes - shape.graphs, 1}, .edges = shape.edges};
  out.real_seeds = shape.graphs;
  for (int64_t row = 0; row < nodes; ++row) {
    out.nodes.push_back(from.nodes[(begin + static_cast<uint64_t>(row)) % from.nodes.size()]);
  }
  // The values of `from` include its padding row, so the width is the number of values divided by the number of
  // padded rows.
  const auto width = [&](const auto& values) { return std::ssize(values) / from.padded.total_nodes(); };
  out.features = Repeat(from.features, rows, width(from.features), nodes, begin);
  out.features.resize(static_cast<size_t>(shape.nodes * width(from.features)), 0.0f);
  out.positions = Repeat(from.positions, rows, width(from.positions), nodes, begin);
  out.positions.resize(static_cast<size_t>(shape.nodes * width(from.positions)), 0.0f);
  if (!from.feature_rows.empty()) {
    out.feature_rows = Repeat(from.feature_rows, rows, /*width=*/1, nodes, begin);
    out.feature_rows.push_back(from.feature_rows.back());
  }
  RepeatEntries(from, rows, nodes, begin, out);

  // The target of edge e is row e * nodes / edges, rounded down.
  out.offsets.resize(static_cast<size_t>(nodes) + 1);
  for (int64_t row = 0; row <= nodes; ++row) {
    out.offsets[static_cast<size_t>(row)] = (row * shape.edges + nodes - 1) / nodes;
  }
  out.sources.resize(static_cast<size_t>(shape.edges));
  for (int64_t edge = 0; edge < shape.edges; ++edge) {
    const int64_t target = edge * nodes / shape.edges;
    const int64_t step = nodes == 1 ? 0 : 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(nodes - 1)));
    out.sources[static_cast<size_t>(edge)] = (target + step) % nodes;
  }
  if (weighted) {
    out.edge_weights = Repeat(from.edge_weights, edges, 1, shape.edges, begin);
    if (edges == 0) std::ranges::fill(out.edge_weights, 1.0f);
  }
  out.edge_int_columns = from.edge_int_columns;
  out.edge_float_columns = from.edge_float_columns;
  out.edge_ints = Repeat(from.edge_ints, edges, from.edge_int_columns, shape.edges, begin);
  out.edge_floats = Repeat(from.edge_floats, edges, from.edge_float_columns, shape.edges, begin);

  const int64_t targets = std::ssize(from.labels) / from.padded.nodes.front();
  const std::vector<int64_t> labelled = FindLabelled(from, targets);
  out.labels.assign(static_cast<size_t>(shape.graphs * targets), std::numeric_limits<float>::quiet_NaN());
  for (int64_t row = 0; row < shape.graphs && !labelled.empty(); ++row) {
    const int64_t source = labelled[(begin + static_cast<uint64_t>(row)) % labelled.size()];
    std::copy_n(from.labels.begin() + source * targets, targets, out.labels.begin() + row * targets);
  }
  return out;
}

}  // namespace permafrost::data
