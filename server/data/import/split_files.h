// Reads the splits that a source brings along: of nodes or graphs, which may be drawn instead, and of links.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/import.h"
#include "data/import/renumbering.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"
#include "data/store/types.h"

namespace permafrost::data {

// Links of one large graph that its source divides, and the pairs without an edge that it evaluates them against, as
// NPY files below split/links.
// Threads: one at a time. Memory: a piece of a file.

struct LinkFiles {
  std::array<SourceFile, 3> links;                     // by Split: [links, 2] source, target
  std::array<std::optional<SourceFile>, 3> negatives;  // of validation and test: [links, K] targets or [pairs, 2]

  int64_t bytes() const;
  void AddTo(SourceContents& contents) const;
};

// nullopt where the source divides no links. Errors: NotFound where one of train, valid and test is missing.
absl::StatusOr<std::optional<LinkFiles>> FindLinkFiles(const std::filesystem::path& source);

// Writes the links and negatives, and sets summary.links. `why`: where the number of nodes is from. Negatives with two
// columns are pairs. Errors: InvalidArgument naming file and element.
absl::Status WriteLinks(const LinkFiles& files, uint64_t nodes, const std::string& why, const Renumbering& renumbering,
                        ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary);

// The split of a set's graphs into train, valid and test: read from split/NAME/, or drawn.
// Threads: pure, but for the monitor.
struct SplitFiles {
  std::string name;
  std::array<SourceFile, 3> files;  // by Split
  bool masks = false;               // one 0 or 1 a graph, instead of ids

  int64_t bytes() const { return files[0].bytes + files[1].bytes + files[2].bytes; }
};

struct SplitGraphs {
  std::string name;
  std::array<std::vector<uint32_t>, 3> graphs;  // by Split
};

// The split folder to read: `wanted`, or the only one if that is empty; nullopt if there is none at all.
// Errors: NotFound if `wanted` or one of its files is missing, InvalidArgument if there are several to choose from; as
// TypeOfSource.
// `or_masks`: {train,valid,test}_mask do instead. `of_links`: the source divides links, so that folders which hold no
// rows but pickles, as OGB's of links do, are none.
absl::StatusOr<std::optional<SplitFiles>> FindSplit(const std::filesystem::path& source, const std::string& wanted,
                                                    bool or_masks = false, bool of_links = false);
// Each graph stands in one split at most. Errors: InvalidArgument naming both places of a duplicate.
// `item`: what messages call a graph; a node of one large graph is split as well.
absl::StatusOr<SplitGraphs> ReadSplit(const SplitFiles& files, int64_t num_graphs, ImportMonitor& monitor,
                                      std::string_view item = "graph");
// Every graph once, ids rising within a split; equal for equal options on every machine.
SplitGraphs DrawSplit(const ImportOptions& options, int64_t num_graphs);
// The same with equal parts of each class in each split: graphs, shuffled and sorted by class (stable), go one after
// the other to the split that is the farthest below its fraction of those dealt so far. Each split then has its
// fraction of any run of classes but for one graph or two. classes: of each graph, one number.
SplitGraphs DrawStratifiedSplit(const ImportOptions& options, std::span<const float> classes);

}  // namespace permafrost::data
