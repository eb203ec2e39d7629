// The options of an import, the progress that it tells, and the limits of what it may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/enum_names.h"
#include "base/patience.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/text.h"
#include "data/store/types.h"

namespace permafrost::data {

enum class ImportFormat {
  kAuto,       // from what the source holds; see data/import.h
  kOgbGraphs,  // many small graphs: OGB's graph-property CSV layout
  kOgbNodes,   // one graph: OGB's node-property CSV layout
  kEdgeList,   // one graph: a file of edges, and what stands beside it
  kNpy,        // one graph: a directory of NPY and NPZ files
  kTu,         // many small graphs: TUDataset's text files, in a directory or a ZIP archive
};
inline constexpr EnumNames<ImportFormat, 6> kImportFormatNames{{{{ImportFormat::kAuto, "auto"},
                                                                 {ImportFormat::kOgbGraphs, "ogb-graphs"},
                                                                 {ImportFormat::kOgbNodes, "ogb-nodes"},
                                                                 {ImportFormat::kEdgeList, "edge-list"},
                                                                 {ImportFormat::kNpy, "npy"},
                                                                 {ImportFormat::kTu, "tu"}}}};

// Says whether each edge is stored with its inverse.
enum class InverseEdges {
  kAuto,  // where the source lists some edges in one direction alone
  kAdd,   // as OGB's reader does
  kKeep,  // edges stay as they stand
};
inline constexpr EnumNames<InverseEdges, 3> kInverseEdgesNames{
    {{{InverseEdges::kAuto, "auto"}, {InverseEdges::kAdd, "add"}, {InverseEdges::kKeep, "keep"}}}};

// The way in which the cells of an edge list name nodes.
enum class NodeIds {
  kRows,     // 0-based rows; the largest one, or num_nodes, sets the number of nodes
  kNumbers,  // any whole numbers below 2^64; rows are given in rising order, and the numbers kept
  kText,     // any text in UTF-8; rows are given in the order of first appearance, and the text kept
};
inline constexpr EnumNames<NodeIds, 3> kNodeIdsNames{
    {{{NodeIds::kRows, "rows"}, {NodeIds::kNumbers, "numbers"}, {NodeIds::kText, "text"}}}};

// Says what a column of an edge list holds.
enum class EdgeColumn { kSource, kTarget, kWeight, kTimestamp, kIgnore };
inline constexpr EnumNames<EdgeColumn, 5> kEdgeColumnNames{{{{EdgeColumn::kSource, "source"},
                                                             {EdgeColumn::kTarget, "target"},
                                                             {EdgeColumn::kWeight, "weight"},
                                                             {EdgeColumn::kTimestamp, "timestamp"},
                                                             {EdgeColumn::kIgnore, "ignore"}}}};

enum class Header { kAuto, kNo, kYes };
inline constexpr EnumNames<Header, 3> kHeaderNames{
    {{{Header::kAuto, "auto"}, {Header::kNo, "no"}, {Header::kYes, "yes"}}}};

// The features to take if a source has a dense and a sparse table for its nodes.
enum class NodeFeatureChoice {
  kAuto,    // the sparse one, unless the dense one has as many columns and a tenth or more of them is not zero
  kDense,   // refused where there is none
  kSparse,  // the same
};
inline constexpr EnumNames<NodeFeatureChoice, 3> kNodeFeatureChoiceNames{{{{NodeFeatureChoice::kAuto, "auto"},
                                                                           {NodeFeatureChoice::kDense, "dense"},
                                                                           {NodeFeatureChoice::kSparse, "sparse"}}}};

// The type that dense node features of one large graph are stored as.
enum class FeatureType {
  kAsIs,  // as the source has them; text: int32 where all cells are integers, else float32
  kFloat32,
  kFloat16,   // a value that would become infinite is refused
  kBfloat16,  // the same
  kInt8,      // multiples -127..127 of a scale for each column: its largest absolute value / 127
};
inline constexpr EnumNames<FeatureType, 5> kFeatureTypeNames{{{{FeatureType::kAsIs, "as-is"},
                                                               {FeatureType::kFloat32, "float32"},
                                                               {FeatureType::kFloat16, "float16"},
                                                               {FeatureType::kBfloat16, "bfloat16"},
                                                               {FeatureType::kInt8, "int8"}}}};

struct EdgeListOptions {
  NodeIds node_ids = NodeIds::kRows;
  // All columns in their order, kSource and kTarget among them; or, without these two, those after source and target.
  // Empty: from the header where there is one, else source, target and, where there is a third, a weight; more are
  // refused then.
  std::vector<EdgeColumn> columns;
  // kAuto: found from names such as source, dst, weight, and from a first line that is text above lines of numbers.
  Header header = Header::kAuto;
  // '\0': found from the first line that is no comment: tab, comma, semicolon or spaces. ' ' is any run of spaces/tabs.
  char delimiter = '\0';
  // Lines that begin with it are passed over. '\0': none. Empty lines are passed over always.
  char comment = '#';
  // Around a cell that may hold the delimiter; within it two stand for one (RFC 4180). A line break within a cell is
  // refused. '\0': quotes are part of the text.
  char quote = '"';
  // For kRows: at least so many nodes. 0: as the edges say.
  int64_t num_nodes = 0;
  bool operator==(const EdgeListOptions&) const = default;
};

// The node features of a TUDataset that are taken.
enum class TuNodeFeatures {
  kAll,     // attributes and labels, whichever there are; where there are neither, degrees
  kLabels,  // refused where there are none; so are the attributes
  kAttributes,
  kDegree,
};
inline constexpr EnumNames<TuNodeFeatures, 4> kTuNodeFeaturesNames{{{{TuNodeFeatures::kAll, "all"},
                                                                     {TuNodeFeatures::kLabels, "labels"},
                                                                     {TuNodeFeatures::kAttributes, "attributes"},
                                                                     {TuNodeFeatures::kDegree, "degree"}}}};

struct TuOptions {
  TuNodeFeatures node_features = TuNodeFeatures::kAll;
  // Labels and degrees as one-hot float32 columns, as they are beside attributes always; false: an int32 column of
  // categories each, which models embed.
  bool one_hot = false;
  // For kDegree: a larger degree counts as this one. 1..999,999, or 1..4,095 with one_hot, which makes no more columns
  // than the set needs.
  int64_t max_degree = 1000;
  bool operator==(const TuOptions&) const = default;
};

struct ImportOptions {
  std::filesystem::path source;
  ImportFormat format = ImportFormat::kAuto;
  // A list has both directions where every (u, v), u != v, stands in it as often as (v, u); kAuto then adds nothing. In
  // one large graph a self-loop is its own inverse. A TUDataset has both directions of its edges, which stay as they
  // stand.
  InverseEdges inverse_edges = InverseEdges::kAuto;
  // For one large graph: keeps one of several edges with equal ends, with the sum of their weights and the latest
  // timestamp. In a TUDataset the first one is kept, with its features.
  bool coalesce = false;
  // One large graph, directed: keep the edges in both orders (walks need the second). Symmetric ones have both anyway.
  bool keep_out_edges = true;
  // For one large graph in the OGB layout.
  NodeFeatureChoice node_features = NodeFeatureChoice::kAuto;
  // One large graph, dense node features: converted to the nearest value of this type, ties to even. Other than kAsIs
  // it is refused where there are none.
  FeatureType feature_type = FeatureType::kAsIs;
  // For one large graph: how rows are numbered. Any choice but kNone costs a second sort of the edges, and a second
  // writing and reading of labels and features. The source's ids are kept (NodeNames).
  NodeOrder order = NodeOrder::kNone;
  // The name of the split/* to read; empty: the only one; if none is there, a seeded random one.
  std::string split;
  uint64_t split_seed = 0;
  // Fractions of the random split; the rest is test.
  double train_fraction = 0.8;
  double valid_fraction = 0.1;
  EdgeListOptions edge_list;
  TuOptions tu;
  // Bytes of memory for sorting and buffers of one large graph; 0: ImportLimits::memory_bytes. 16 MiB at least.
  uint64_t memory_bytes = 0;
};

// Returns Ok, or InvalidArgument with a violation for each option that is not valid, named as "options.train_fraction".
// An option that the format does not use is refused; under kAuto, once the format is found.
absl::Status CheckImportOptions(const ImportOptions& options);

struct ImportProgress {
  std::string current_file;
  int64_t bytes_read = 0;
  int64_t bytes_total = 0;
};

// Called often, on the importing thread; must not block.
using ImportObserver = std::function<void(const ImportProgress&)>;

// A quarter of the memory that this process may use (base/resources.h).
uint64_t DefaultImportMemory();

// The limits of what an import may take, whatever its source says: a small gzip can hold billions of rows.
struct ImportLimits {
  // Many small graphs: bytes of memory that each of these may take: what is kept for every graph, the edges of one
  // graph, their features. One large graph: bytes for sorting and buffers in all.
  // Larger: larger sets can be imported, and a hostile one takes more from the rest of the machine.
  uint64_t memory_bytes = DefaultImportMemory();
  // A packed file (gzip, zstd, a member of a ZIP or NPZ) may unpack to `harmless_unpacked_bytes`, or to
  // `most_expansion` times its packed bytes where that is more. Tables pack 2 to 20 times, a column of one value a
  // thousand times, and of such 200 million rows are harmless still. Larger: a hostile file keeps an import busy for
  // longer.
  uint64_t harmless_unpacked_bytes = uint64_t{1} << 30;
  uint64_t most_expansion = 200;
  // Threads that parse and sort the edges of one large graph, >= 1. The store is the same whatever their number.
  int threads = AvailableCores();
  // Ok if a source file may be read that, now open, turns out to lie at this path, links resolved. Errors end the
  // import, after the file's name: a refusal for good; a transient one (base/status.h), if that cannot be told just
  // now, until it is tried again. Empty: any file may be read. It is asked after opening, so that a link moved since an
  // earlier check cannot lead elsewhere. It is not asked if the system does not tell the path (no /proc).
  std::function<absl::Status(const std::filesystem::path&)> may_read;
};

// The options of an import that each format uses. An option that it does not use is refused, not passed over.
// Threads: pure.

// Adds a violation for each option that differs from its default and that `format` does not use; kAuto: none.
void CheckFormatOptions(ImportFormat format, const ImportOptions& options, Violations& violations);

// The parts of one import report its progress and its notes to a monitor. They obey the wish to stop it and its limits,
// which the monitor tells them.
// Threads: the importing thread. Borrows the observer and the limits.

// Bytes of a note, or of the error of an import, that are kept: whatever a source holds, a line stays one that can be
// read.
inline constexpr std::size_t kMaxMessageBytes = 2048;

class ImportMonitor {
 public:
  ImportMonitor(int64_t bytes_total, const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits)
      : observer_(observer), stop_(std::move(stop)), limits_(limits) {
    progress_.bytes_total = bytes_total;
  }
  // `bytes` of `file` were read; negative when it is begun anew. Cancelled once the import shall stop.
  absl::Status Advance(const std::string& file, int64_t bytes) {
    progress_.current_file = file;
    progress_.bytes_read += bytes;
    if (observer_) observer_(progress_);
    return CheckStop();
  }
  // Tells the user a line about how the source was read; it stays with the dataset. Bytes that are no UTF-8 are
  // replaced when it is shown, and a long one is cut. The same line is told once.
  void Note(std::string line) {
    line = CutMessage(line, kMaxMessageBytes);
    if (std::ranges::find(notes_, line) == notes_.end()) notes_.push_back(std::move(line));
  }
  // The notes, in the order in which they were told.
  const std::vector<std::string>& notes() const { return notes_; }
  // Cancelled once the import shall stop.
  absl::Status CheckStop() const { return permafrost::CheckStop(stop_); }
  // For the writers, which report no progress of their own.
  const std::stop_token& stop() const { return stop_; }
  const ImportLimits& limits() const { return limits_; }

 private:
  ImportProgress progress_;
  std::vector<std::string> notes_;
  const ImportObserver& observer_;
  std::stop_token stop_;
  const ImportLimits& limits_;
};

}  // namespace permafrost::data
