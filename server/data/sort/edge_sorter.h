// Sorts any number of edges by key, equal ones in the order they came, within a declared memory: in memory where they
// fit, else as sorted runs on disk that are merged. Threads: one at a time; sorts over several by itself.
// Memory: options.memory_bytes. The run files have no name, and so are gone whenever the process is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "data/sort/nameless_file.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Edges as an import sorts them: a 64-bit key of two node rows, and what the edge carries. Narrower records let more
// edges fit into memory. An import picks once the narrowest record that holds what its graph needs; the sort is
// compiled for each.

// The upper half is the row that edges are gathered under, the lower half the other end. So sorted keys are an
// adjacency.
using EdgeKey = uint64_t;
constexpr EdgeKey MakeEdgeKey(NodeId major, NodeId minor) { return EdgeKey{major} << 32 | minor; }
constexpr NodeId MajorOf(EdgeKey key) { return static_cast<NodeId>(key >> 32); }
constexpr NodeId MinorOf(EdgeKey key) { return static_cast<NodeId>(key); }
constexpr EdgeKey SwapEnds(EdgeKey key) { return key << 32 | key >> 32; }

struct PlainEdge {
  static constexpr bool kHasWeight = false, kHasAll = false;
  EdgeKey key = 0;
};
struct WeightedEdge {
  static constexpr bool kHasWeight = true, kHasAll = false;
  EdgeKey key = 0;
  float weight = 0;
  uint32_t order = 0;  // set by the sorter, within what it sorts at once
};
// All that an edge can carry.
struct FullEdge {
  static constexpr bool kHasWeight = true, kHasAll = true;
  EdgeKey key = 0;
  uint64_t row = 0;  // of the source, rising: the order of equal keys
  int64_t timestamp = 0;
  float weight = 0;
};

// By key, then by the order in which the edges came. Equal plain edges cannot be told apart, and need no order.
inline bool Before(const PlainEdge& a, const PlainEdge& b) { return a.key < b.key; }
inline bool Before(const WeightedEdge& a, const WeightedEdge& b) {
  return a.key != b.key ? a.key < b.key : a.order < b.order;
}
inline bool Before(const FullEdge& a, const FullEdge& b) { return a.key != b.key ? a.key < b.key : a.row < b.row; }

// Edges on disk in the order they came, to be read once or more.
// Threads: one at a time. Memory: a piece. The file has no name, and so is gone whenever the process is.
template <class Record>
class EdgeSpool {
 public:
  static absl::StatusOr<EdgeSpool> Create(const std::filesystem::path& directory, std::stop_token stop) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory));
    return EdgeSpool(std::move(file), std::move(stop));
  }

  // Errors: of the disk; Cancelled.
  absl::Status Append(std::span<const Record> edges) { return file_.Append(std::as_bytes(edges), stop_); }

  // Calls take(std::span<Record>) with all of them, some at a time, until it fails.
  template <class Take>
  absl::Status ForEach(const Take& take) const {
    constexpr uint64_t kAtOnce = uint64_t{1} << 16;
    std::vector<Record> edges;
    for (uint64_t at = 0; at < file_.size(); at += edges.size() * sizeof(Record)) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      edges.resize(std::min(kAtOnce, (file_.size() - at) / sizeof(Record)));
      PF_RETURN_IF_ERROR(file_.Read(at, std::as_writable_bytes(std::span(edges))));
      PF_RETURN_IF_ERROR(take(std::span(edges)));
    }
    return absl::OkStatus();
  }

 private:
  EdgeSpool(NamelessFile file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  NamelessFile file_;
  std::stop_token stop_;
};

// Sorted runs of edges on disk, and their merge.
// Threads: one at a time. Memory: as given to the constructor, while merging.
// Owns the run files, which have no name: they are gone whenever the process is.
template <class Record>
class SortedRuns {
 public:
  SortedRuns(std::filesystem::path directory, uint64_t memory_bytes, std::stop_token stop)
      : directory_(std::move(directory)), memory_bytes_(memory_bytes), stop_(std::move(stop)) {}

  // Writes a run. Among edges with equal keys, those of earlier runs come first.
  absl::Status Write(std::span<const Record> sorted);
  // Call after the last run: returns the next edges of all runs in order; none at the end.
  absl::StatusOr<std::span<const Record>> Next();

 private:
  struct Run {
    NamelessFile file;
    int level = 0;  // how often its edges were merged
  };
  class Merge;

  // Returns how many runs are merged at once at most: each takes a file and a buffer.
  size_t fan_in() const;
  // Merges the last runs, as many as fan_in(), into one.
  absl::Status MergeLast();

  std::filesystem::path directory_;
  uint64_t memory_bytes_;
  std::stop_token stop_;
  std::vector<Run> runs_;
  std::shared_ptr<Merge> merge_;  // shared: deleted where its type is known
};

extern template class SortedRuns<PlainEdge>;
extern template class SortedRuns<WeightedEdge>;
extern template class SortedRuns<FullEdge>;

struct EdgeSorterOptions {
  std::filesystem::path directory;  // for runs
  uint64_t memory_bytes = 0;
  // Each edge comes with its inverse; a self-loop is its own. Takes no memory before the sort.
  bool add_inverses = false;
  int threads = 1;
};

template <class Record>
class EdgeSorter {
 public:
  EdgeSorter(EdgeSorterOptions options, std::stop_token stop);

  // Edges that can be added before a run is written.
  uint64_t room() const { return capacity_ - buffered_; }
  // Edges come without inverses after all. Before the first run is written, and before Finish.
  void DropInverses() { options_.add_inverses = false; }
  // Appends edges. Errors: Cancelled; ResourceExhausted where a run does not fit the disk.
  absl::Status Add(std::span<const Record> edges);
  // After the last edge, once.
  absl::Status Finish();
  // After Finish: the next edges in order, none at the end; valid until the next call.
  absl::StatusOr<std::span<const Record>> Next();

  // One more than the largest row of either end added so far.
  uint64_t rows_seen() const { return rows_seen_; }
  // Runs written so far; 0: all was sorted in memory.
  int64_t runs_written() const { return runs_written_; }

 private:
  // Sorts what is buffered into sorted_.
  void SortBuffered();
  absl::Status Spill();

  EdgeSorterOptions options_;
  std::stop_token stop_;
  const uint64_t capacity_;  // edges buffered before a run is written
  const uint64_t chunk_;     // edges of a chunk
  std::vector<std::unique_ptr<Record[]>> chunks_;
  uint64_t buffered_ = 0, self_loops_ = 0;  // of the buffered ones
  std::unique_ptr<Record[]> sorted_;
  uint64_t sorted_size_ = 0, sorted_capacity_ = 0, given_ = 0;
  uint64_t rows_seen_ = 0;
  int64_t runs_written_ = 0;
  SortedRuns<Record> runs_;
};

extern template class EdgeSorter<PlainEdge>;
extern template class EdgeSorter<WeightedEdge>;
extern template class EdgeSorter<FullEdge>;

}  // namespace permafrost::data
