// Sorts any number of edges by key, equal ones in the order they came, within a declared memory: in memory where they
// fit, else as sorted runs on disk that are merged. Threads: one at a time; sorts over several by itself.
// Memory: options.memory_bytes. The run files have no name, and so are gone whenever the process is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/patience.h"
#include "data/sort/edge_records.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {

// Sorted runs of edges on disk, and their merge.
// Threads: one at a time. Memory: as given to the constructor, while merging.
// Owns the run files, which have no name: they are gone whenever the process is.
template <class Record>
class SortedRuns {
 public:
  SortedRuns(std::filesystem::path directory, uint64_t memory_bytes, std::stop_token stop)
      : directory_(std::move(directory)), memory_bytes_(memory_bytes), stop_(std::move(stop)) {}

  // A run of its own; the edges of equal keys come after those of the runs before.
  absl::Status Write(std::span<const Record> sorted);
  // After the last run: the next edges of all runs in order, none at the end.
  absl::StatusOr<std::span<const Record>> Next();

 private:
  struct Run {
    NamelessFile file;
    int level = 0;  // how often its edges were merged
  };
  class Merge;

  // At most so many are merged at once: each wants a file and a buffer.
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

// The core of the sort, in memory: `out` becomes `in` (with inverses, where asked for), sorted. `in` is in the order
// that decides between equal keys. `scratch_bytes` bounds what is allocated besides.
template <class Record>
void SortEdges(std::span<const std::span<const Record>> in, bool add_inverses, int threads, uint64_t scratch_bytes,
               std::span<Record> out);

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
