// Reads the splits that a source provides: of nodes, of graphs or of links. Also draws splits of nodes and of graphs.
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

// The link split of one large graph: NPY files in the source's folder split/links. They hold the links and the
// negatives against which the links are evaluated.
// Threads: one at a time. Memory: a piece of a file.

struct LinkFiles {
  std::array<SourceFile, 3> links;                     // by Split: [links, 2], source and target
  std::array<std::optional<SourceFile>, 3> negatives;  // for valid and test: targets [links, K], or pairs [pairs, 2]

  int64_t bytes() const;
  void AddTo(SourceContents& contents) const;
};

// Returns nullopt if the source provides no link split. Errors: NotFound if one of train, valid and test is missing.
absl::StatusOr<std::optional<LinkFiles>> FindLinkFiles(const std::filesystem::path& source);

// Writes the links and negatives, and sets summary.links. `why` says where the number of nodes comes from. An array
// of negatives with two columns holds pairs (source, target). Errors: InvalidArgument naming file and element.
absl::Status WriteLinks(const LinkFiles& files, uint64_t nodes, const std::string& why, const Renumbering& renumbering,
                        ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary);

// The files of a split into train, valid and test, in split/NAME/. They split the graphs of a set, or the nodes of
// one large graph.
// Threads: pure, except for calls of the monitor.
struct SplitFiles {
  std::string name;
  std::array<SourceFile, 3> files;  // by Split
  bool masks = false;               // true if the files hold a 0 or 1 for each graph, instead of ids

  int64_t bytes() const { return files[0].bytes + files[1].bytes + files[2].bytes; }
};

struct SplitGraphs {
  std::string name;
  std::array<std::vector<uint32_t>, 3> graphs;  // by Split
};

// Returns the split folder `wanted`, or the only split folder if `wanted` is empty. Returns nullopt if there is none.
// With `or_masks`, the files may also be {train,valid,test}_mask. If `of_links` is true, the source provides a link
// split. Then split/links does not count as a split folder, and neither do folders of pickles, in which OGB keeps
// links.
// Errors: NotFound if `wanted` or one of its files is missing; InvalidArgument if `wanted` is empty and there are
// several split folders; same as TypeOfSource.
absl::StatusOr<std::optional<SplitFiles>> FindSplit(const std::filesystem::path& source, const std::string& wanted,
                                                    bool or_masks = false, bool of_links = false);
// Reads the split. A graph may be in one split at most. Errors: InvalidArgument naming both places of a duplicate.
// `item` is the word for a graph in messages. It is "node" if the function reads a split of the nodes of one large
// graph.
absl::StatusOr<SplitGraphs> ReadSplit(const SplitFiles& files, int64_t num_graphs, ImportMonitor& monitor,
                                      std::string_view item = "graph");
// Draws a split that contains every graph once; ids rise within each split. Equal options give equal splits on every
// machine.
SplitGraphs DrawSplit(const ImportOptions& options, int64_t num_graphs);
// Draws a split that divides each class by the options' fractions. The graphs are shuffled and then stably sorted by
// class. Each graph in turn goes to the split whose share of the graphs dealt so far is farthest below its fraction.
// So in any range of consecutive classes, the size of each split deviates from its fraction by at most one or two
// graphs. `classes` holds one number per graph.
SplitGraphs DrawStratifiedSplit(const ImportOptions& options, std::span<const float> classes);

}  // namespace permafrost::data
