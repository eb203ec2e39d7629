// Sorted runs of edges on disk, and their merge.
// Threads: one at a time. Memory: as given to the constructor, while merging.
// Owns the run files, which have no name: they are gone whenever the process is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stop.h"
#include "data/sort/edge_records.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
