// Sorts any number of edges by key within a given bound of memory. Equal keys keep the order in which they were
// added. If the edges do not fit in memory, sorted runs are written to disk and merged.
// Threads: one at a time; the sort itself uses several threads. Memory: options.memory_bytes. The run files have no
// name, so the system deletes them when the process ends.
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

// The records that an import sorts: a 64-bit key made of two node rows, and the values of the edge. Narrower records
// let more edges fit in memory. An import picks the narrowest record that holds what its graph needs. The sort is
// compiled for each record type.

// The upper half of a key is the node row by which edges are grouped; the lower half is the row of the other end. So
// edges sorted by key form an adjacency list.
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
  uint32_t order = 0;  // position among the edges of one sort in memory; set by the sorter
};
// All values that an edge can carry.
struct FullEdge {
  static constexpr bool kHasWeight = true, kHasAll = true;
  EdgeKey key = 0;
  uint64_t row = 0;  // row in the source; rises as edges are added, so it orders equal keys
  int64_t timestamp = 0;
  float weight = 0;
};

// Orders by key, then by the order in which the edges were added. Equal plain edges are identical, so they need no
// order.
inline bool Before(const PlainEdge& a, const PlainEdge& b) { return a.key < b.key; }
inline bool Before(const WeightedEdge& a, const WeightedEdge& b) {
  return a.key != b.key ? a.key < b.key : a.order < b.order;
}
inline bool Before(const FullEdge& a, const FullEdge& b) { return a.key != b.key ? a.key < b.key : a.row < b.row; }

// Edges on disk in the order in which they were appended. They can be read more than once.
// Threads: one at a time. Memory: one piece of 65,536 edges. The file has no name, so the system deletes it when the
// process ends.
template <class Record>
class EdgeSpool {
 public:
  static absl::StatusOr<EdgeSpool> Create(const std::filesystem::path& directory, std::stop_token stop) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory));
    return EdgeSpool(std::move(file), std::move(stop));
  }

  // Errors: those of the disk; Cancelled.
  absl::Status Append(std::span<const Record> edges) { return file_.Append(std::as_bytes(edges), stop_); }

  // Passes all edges, some at a time, to take(std::span<Record>), until a call of `take` fails.
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
// Threads: one at a time. Memory: `memory_bytes` while merging.
// Owns the run files. They have no name, so the system deletes them when the process ends.
template <class Record>
class SortedRuns {
 public:
  SortedRuns(std::filesystem::path directory, uint64_t memory_bytes, std::stop_token stop)
      : directory_(std::move(directory)), memory_bytes_(memory_bytes), stop_(std::move(stop)) {}

  // Writes a run. Among edges with equal keys, Next returns the edges of earlier runs first.
  absl::Status Write(std::span<const Record> sorted);
  // Call it only after the last run. Returns the next edges of the merged runs, in order, or an empty span at the
  // end.
  absl::StatusOr<std::span<const Record>> Next();

 private:
  struct Run {
    NamelessFile file;
    int level = 0;  // the number of merges that its edges went through
  };
  class Merge;

  // Returns how many runs may be merged at once. Each merged run takes an open file and a buffer.
  size_t fan_in() const;
  // Merges the last fan_in() runs into one.
  absl::Status MergeLast();

  std::filesystem::path directory_;
  uint64_t memory_bytes_;
  std::stop_token stop_;
  std::vector<Run> runs_;
  std::shared_ptr<Merge> merge_;  // a shared_ptr, since Merge is incomplete here
};

extern template class SortedRuns<PlainEdge>;
extern template class SortedRuns<WeightedEdge>;
extern template class SortedRuns<FullEdge>;

struct EdgeSorterOptions {
  std::filesystem::path directory;  // for the run files
  uint64_t memory_bytes = 0;
  // If true, the sorter returns the inverse of each added edge too. A self-loop is its own inverse and stays single.
  // Inverses are made during the sort and take no memory before it.
  bool add_inverses = false;
  int threads = 1;
};

template <class Record>
class EdgeSorter {
 public:
  EdgeSorter(EdgeSorterOptions options, std::stop_token stop);

  // Returns how many edges can be added before a run is written.
  uint64_t room() const { return capacity_ - buffered_; }
  // Turns add_inverses off. Call it before the first run is written and before Finish.
  void DropInverses() { options_.add_inverses = false; }
  // Adds edges. Errors: Cancelled; ResourceExhausted if the disk has no room for a run.
  absl::Status Add(std::span<const Record> edges);
  // Call it once, after the last edge.
  absl::Status Finish();
  // Call it after Finish. Returns the next edges in order, or an empty span at the end. The span is valid until the
  // next call.
  absl::StatusOr<std::span<const Record>> Next();

  // Returns 1 plus the largest row at either end of the edges added so far.
  uint64_t rows_seen() const { return rows_seen_; }
  // Returns the number of runs written so far, or 0 if everything was sorted in memory.
  int64_t runs_written() const { return runs_written_; }

 private:
  // Sorts the buffered edges into sorted_.
  void SortBuffered();
  absl::Status Spill();

  EdgeSorterOptions options_;
  std::stop_token stop_;
  const uint64_t capacity_;  // the most edges to buffer before a run is written
  const uint64_t chunk_;     // edges of one chunk
  std::vector<std::unique_ptr<Record[]>> chunks_;
  uint64_t buffered_ = 0, self_loops_ = 0;  // edges in the buffer, and self-loops among them
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
