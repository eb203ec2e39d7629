// The edges of one graph as the store keeps them: sorted by target, ties in file order.
// Threads: one at a time. Memory: the largest graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {

class EdgesOfGraph {
 public:
  // Takes effect from the next graph on. With inverses, file order is e0, inverse(e0), e1, inverse(e1), ... as OGB's
  // reader makes it; self-loops too.
  void SetAddInverses(bool add_inverses) { add_inverses_ = add_inverses; }
  // Forgets the edges; those that follow are of graph `graph` with `num_nodes` nodes.
  void BeginGraph(int64_t graph, int64_t num_nodes);
  // Takes in "source,target". InvalidArgument for what is no two node ids of the graph.
  absl::Status Parse(const CsvRows& rows, std::string_view line);
  // source, target: nodes of the graph, from 0.
  void Add(uint32_t source, uint32_t target);
  // Edges taken in, with inverses.
  size_t count() const { return file_target_.size(); }
  // After the graph's last edge: edges beyond the first with equal ends; and whether every (u, v) stands as often as
  // (v, u).
  size_t CountEqual();
  bool HasBothDirections();
  // After the graph's last edge.
  void Sort();

  std::span<const uint32_t> source() const { return source_; }
  std::span<const uint32_t> target() const { return target_; }
  // For each stored edge: which of the graph's rows, from 0, it came from.
  std::span<const uint32_t> file_row() const { return file_row_; }

 private:
  absl::Status ParseEnd(const CsvRows& rows, std::string_view field, std::string_view cell, uint32_t& end) const;

  // Sets keys_ to the edges by target and source, sorted.
  void SortEnds();

  bool add_inverses_ = false;
  int64_t graph_ = 0, num_nodes_ = 0;
  std::vector<uint32_t> file_source_, file_target_;  // file order
  std::vector<uint64_t> keys_, inverses_;
  std::vector<uint32_t> source_, target_, file_row_;
};

}  // namespace permafrost::data
