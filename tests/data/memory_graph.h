// A graph held in vectors, for code that only reads columns, and ways to damage it.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "data/store/graph.h"

namespace permafrost::data {

struct TestEdge {
  NodeId source = 0, target = 0;
  float weight = 1;
};

// Owns the arrays that view() shows.
class MemoryGraph : public Graph {
 public:
  MemoryGraph(uint64_t nodes, const std::vector<TestEdge>& edges, bool weighted = false) {
    view_.nodes = nodes;
    view_.edges = edges.size();
    in_ = Store(nodes, edges, weighted, [](const TestEdge& e) { return std::pair(e.target, e.source); });
    out_ = Store(nodes, edges, weighted, [](const TestEdge& e) { return std::pair(e.source, e.target); });
    view_.in = View(in_);
    view_.out = View(out_);
  }

  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  GraphView& view() { return view_; }
  GraphSummary& mutable_summary() { return summary_; }
  const NodeNames& names() const override { return names_; }
  absl::Status CheckIntact() const override { return intact; }
  absl::Status VerifyAll(const std::function<bool(uint64_t, uint64_t)>&) const override { return intact; }
  uint64_t mapped_bytes() const override { return 0; }

  // Returns the in-neighbours of a node, in stored order.
  std::vector<NodeId> NeighborsOf(NodeId node) const {
    return {in_->neighbors.begin() + static_cast<int64_t>(in_->offsets[node]),
            in_->neighbors.begin() + static_cast<int64_t>(in_->offsets[node + 1])};
  }

  // Keeps `values` as long as the graph lives, and returns a column over them for the view.
  template <class T>
  Column<T> Keep(std::vector<T> values) {
    auto kept = std::make_shared<std::vector<T>>(std::move(values));
    kept_.push_back(kept);
    return Column<T>(std::span<const T>(*kept));
  }
  // Same as Keep, but with a guard whose checksums are wrong: every Touch of the column fails.
  template <class T>
  Column<T> KeepDamaged(std::vector<T> values) {
    auto kept = std::make_shared<std::vector<T>>(std::move(values));
    const auto blocks = kept->size() * sizeof(T) / BlockGuard::kBlockBytes + 1;
    auto checksums = std::make_shared<std::vector<uint64_t>>(blocks, 1);
    auto guard = std::make_shared<BlockGuard>("test: section", std::as_bytes(std::span<const T>(*kept)), *checksums,
                                              BlockGuard::kBlockBytes, BlockGuard::ContentCheck());
    for (const std::shared_ptr<void>& part :
         {std::shared_ptr<void>(kept), std::shared_ptr<void>(checksums), std::shared_ptr<void>(guard)}) {
      kept_.push_back(part);
    }
    return Column<T>(std::span<const T>(*kept), guard.get());
  }

  struct Lists {
    std::vector<uint64_t> offsets;
    std::vector<NodeId> neighbors;
    std::vector<float> weights;
  };
  Lists& in() { return *in_; }

  absl::Status intact;

 private:
  template <class Ends>
  static std::shared_ptr<Lists> Store(uint64_t nodes, const std::vector<TestEdge>& edges, bool weighted, Ends ends) {
    // Equal edges keep the order of `edges`.
    std::vector<size_t> order(edges.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(ends(edges[i]), i); });
    auto lists = std::make_shared<Lists>();
    lists->offsets.resize(nodes + 1);
    for (const size_t i : order) {
      const TestEdge& edge = edges[i];
      ++lists->offsets[ends(edge).first + 1];
      lists->neighbors.push_back(ends(edge).second);
      if (weighted) lists->weights.push_back(edge.weight);
    }
    for (uint64_t i = 0; i < nodes; ++i) lists->offsets[i + 1] += lists->offsets[i];
    return lists;
  }
  static Adjacency View(const std::shared_ptr<Lists>& lists) {
    Adjacency adjacency;
    adjacency.offsets = Column<uint64_t>(std::span<const uint64_t>(lists->offsets));
    adjacency.neighbors = Column<NodeId>(std::span<const NodeId>(lists->neighbors));
    adjacency.weights = Column<float>(std::span<const float>(lists->weights));
    return adjacency;
  }

  GraphSummary summary_;
  GraphView view_;
  NodeNames names_;
  std::shared_ptr<Lists> in_, out_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Makes a graph with hubs, isolated nodes, self-loops and parallel edges. The weights are multiples of 0.5 from 0.5
// to 4.
inline std::shared_ptr<MemoryGraph> RandomGraph(uint64_t nodes, int64_t edges, uint64_t seed, bool weighted = false) {
  SplitMix64 random(seed, 0);
  std::vector<TestEdge> list;
  // The last tenth of the nodes has no edges. The lowest of three draws makes hubs of the low nodes.
  const uint64_t ends = nodes - nodes / 10;
  for (int64_t i = 0; i < edges; ++i) {
    const auto lowest = static_cast<NodeId>(std::min({random.Below(ends), random.Below(ends), random.Below(ends)}));
    const auto other = static_cast<NodeId>(random.Below(ends));
    list.push_back({other, lowest, 0.5f * static_cast<float>(1 + random.Below(8))});
  }
  for (NodeId node = 0; node < 3; ++node) list.push_back({node, node, 1});
  list.push_back(list.front());
  return std::make_shared<MemoryGraph>(nodes, std::move(list), weighted);
}

}  // namespace permafrost::data
