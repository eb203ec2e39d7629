// The options of an import, one row for each. Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/enum_names.h"
#include "base/status.h"
#include "spec/field.h"

namespace permafrost::spec {

enum class ImportFormat {
  kAuto,       // detected from the source (data/import/import.h)
  kOgbGraphs,  // a set of graphs: OGB's graph-property CSV layout
  kOgbNodes,   // one large graph: OGB's node-property CSV layout
  kEdgeList,   // one large graph: a file of edges, with optional files beside it
  kNpy,        // one large graph: a directory of NPY and NPZ files
  kTu,         // a set of graphs: TUDataset's text files, in a directory or a ZIP archive
  kStore,      // a set of graphs or one large graph: a dataset's directory that a server wrote
};
inline constexpr EnumNames<ImportFormat, 7> kImportFormatNames{{{{ImportFormat::kAuto, "auto"},
                                                                 {ImportFormat::kOgbGraphs, "ogb-graphs"},
                                                                 {ImportFormat::kOgbNodes, "ogb-nodes"},
                                                                 {ImportFormat::kEdgeList, "edge-list"},
                                                                 {ImportFormat::kNpy, "npy"},
                                                                 {ImportFormat::kTu, "tu"},
                                                                 {ImportFormat::kStore, "store"}}}};

// Returns a bit mask of formats. Rows of options use such masks to name the formats that use an option.
template <class... Format>
constexpr uint32_t Formats(Format... formats) {
  return ((uint32_t{1} << static_cast<uint32_t>(formats)) | ...);
}
inline constexpr uint32_t kOneGraph = Formats(ImportFormat::kOgbNodes, ImportFormat::kEdgeList, ImportFormat::kNpy),
                          kOneGraphOrTu = kOneGraph | Formats(ImportFormat::kTu),
                          kWithSplits = Formats(ImportFormat::kOgbGraphs, ImportFormat::kOgbNodes, ImportFormat::kNpy,
                                                ImportFormat::kTu),
                          kForeign = kWithSplits | Formats(ImportFormat::kEdgeList);

// Says whether the import stores the inverse of each edge too.
enum class InverseEdges {
  kAuto,  // adds inverses if the source lists some edges in only one direction
  kAdd,   // always adds inverses, as OGB's reader does
  kKeep,  // adds no inverses
};
inline constexpr EnumNames<InverseEdges, 3> kInverseEdgesNames{
    {{{InverseEdges::kAuto, "auto"}, {InverseEdges::kAdd, "add"}, {InverseEdges::kKeep, "keep"}}}};

// How the cells of an edge list name nodes.
enum class NodeIds {
  kRows,  // row numbers from 0; the number of nodes is the largest one plus 1, or num_nodes if that is more
  // Any whole numbers below 2^64. Rows are assigned in increasing order of these numbers. The dataset keeps the
  // numbers.
  kNumbers,
  // Any UTF-8 text. Rows are assigned in order of first appearance, and the texts are kept.
  kText,
};
inline constexpr EnumNames<NodeIds, 3> kNodeIdsNames{
    {{{NodeIds::kRows, "rows"}, {NodeIds::kNumbers, "numbers"}, {NodeIds::kText, "text"}}}};

// The content of one column of an edge list.
enum class EdgeColumn { kSource, kTarget, kWeight, kTimestamp, kIgnore };
inline constexpr EnumNames<EdgeColumn, 5> kEdgeColumnNames{{{{EdgeColumn::kSource, "source"},
                                                             {EdgeColumn::kTarget, "target"},
                                                             {EdgeColumn::kWeight, "weight"},
                                                             {EdgeColumn::kTimestamp, "timestamp"},
                                                             {EdgeColumn::kIgnore, "ignore"}}}};

enum class Header { kAuto, kNo, kYes };
inline constexpr EnumNames<Header, 3> kHeaderNames{
    {{{Header::kAuto, "auto"}, {Header::kNo, "no"}, {Header::kYes, "yes"}}}};

// Which node features to take from a source with both a dense and a sparse table.
enum class NodeFeatureChoice {
  // The sparse table, unless the dense table has as many columns and at least a tenth of the dense values are
  // non-zero.
  kAuto,
  kDense,   // refused if the source has no dense table
  kSparse,  // refused if the source has no sparse table
};
inline constexpr EnumNames<NodeFeatureChoice, 3> kNodeFeatureChoiceNames{{{{NodeFeatureChoice::kAuto, "auto"},
                                                                           {NodeFeatureChoice::kDense, "dense"},
                                                                           {NodeFeatureChoice::kSparse, "sparse"}}}};

// The type in which dense node features of one large graph are stored.
enum class FeatureType {
  kAsIs,  // the source's type; for text int32 if all cells are integers, else float32
  kFloat32,
  kFloat16,   // refuses a value that would become infinite
  kBfloat16,  // refuses a value that would become infinite
  kInt8,      // integers -127..127 and a scale per column: the column's largest absolute value / 127
};
inline constexpr EnumNames<FeatureType, 5> kFeatureTypeNames{{{{FeatureType::kAsIs, "as-is"},
                                                               {FeatureType::kFloat32, "float32"},
                                                               {FeatureType::kFloat16, "float16"},
                                                               {FeatureType::kBfloat16, "bfloat16"},
                                                               {FeatureType::kInt8, "int8"}}}};

// The order in which an import numbers the rows of one large graph. A stored dataset records the enumerator's number.
enum class NodeOrder : uint32_t {
  kNone,       // the order of the source
  kDegree,     // descending out-degree
  kCommunity,  // one community after the other
};
inline constexpr EnumNames<NodeOrder, 3> kNodeOrderNames{
    {{{NodeOrder::kNone, "none"}, {NodeOrder::kDegree, "degree"}, {NodeOrder::kCommunity, "community"}}}};

// The most rows of one large graph.
inline constexpr int64_t kMostRows = 4'294'967'295;
inline constexpr uint64_t kLeastImportMemory = uint64_t{16} << 20;
inline constexpr int64_t kMostDegree = 999'999, kMostOneHotDegree = 4'095;

struct EdgeListOptions {
  NodeIds node_ids = NodeIds::kRows;
  // The kinds of all columns, in order, among them kSource and kTarget. If the list has neither of the two, it
  // describes the columns after source and target. If the list is empty, the header decides. Without a header, the
  // columns are source, target and an optional weight, and further columns are refused.
  std::vector<EdgeColumn> columns;
  // kAuto recognises a header by names such as source, dst and weight, and by a first line of text above lines of
  // numbers.
  Header header = Header::kAuto;
  // '\0': detected from the first line that is not a comment, as tab, comma, semicolon or spaces. ' ' means any run
  // of spaces and tabs.
  char delimiter = '\0';
  // Lines that begin with this character are skipped. '\0': there are no comments. Empty lines are always skipped.
  char comment = '#';
  // Encloses a cell that may contain the delimiter. Two quotes within the cell stand for one (RFC 4180). A line break
  // within a cell is refused. '\0': quotes are ordinary text.
  char quote = '"';
  // For kRows: the minimum number of nodes. 0: the edges alone determine the number.
  int64_t num_nodes = 0;
  bool operator==(const EdgeListOptions&) const = default;
};

template <class F>
void VisitFields(Options<EdgeListOptions>, F&& f) {
  using E = EdgeListOptions;
  constexpr uint32_t kEdgeList = Formats(ImportFormat::kEdgeList);
  f({.name = "node_ids", .formats = kEdgeList, .flag = "--node-ids", .help = "Edge list: how cells name nodes ({})"},
    &E::node_ids, kNodeIdsNames);
  f({.name = "columns",
     .accepts = Entries(64),
     .formats = kEdgeList,
     .flag = "--columns",
     .help = "Edge list: all columns in their order: source, target, weight, timestamp, ignore; without source and "
             "target those after them (default: from the header; else source, target and, if there is a third, a "
             "weight)",
     .value = "COLUMN,..."},
    &E::columns, kEdgeColumnNames);
  f({.name = "header",
     .formats = kEdgeList,
     .flag = "--header",
     .help = "Edge list: whether the first line is a header ({})"},
    &E::header, kHeaderNames);
  f({.name = "delimiter",
     .formats = kEdgeList,
     .flag = "--delimiter",
     .help = "Edge list: between cells (default: found from the first line)",
     .value = "CHAR|tab|space"},
    &E::delimiter);
  f({.name = "comment",
     .formats = kEdgeList,
     .flag = "--comment",
     .help = "Edge list: begins lines to be passed over ({})",
     .value = "CHAR|none"},
    &E::comment);
  f({.name = "quote",
     .formats = kEdgeList,
     .flag = "--quote",
     .help = "Edge list: around cells that hold the delimiter ({}; none: quotes are part of the text)",
     .value = "CHAR|none"},
    &E::quote);
  f({.name = "num_nodes",
     .accepts = Between(0, kMostRows),
     .formats = Formats(ImportFormat::kEdgeList, ImportFormat::kNpy),
     .flag = "--num-nodes",
     .help = "Edge list of rows: at least so many nodes"},
    &E::num_nodes);
}

// Which node features of a TUDataset to import.
enum class TuNodeFeatures {
  kAll,         // attributes and labels, as far as the source has them; degrees if it has neither
  kLabels,      // refused if the source has no labels
  kAttributes,  // refused if the source has no attributes
  kDegree,
};
inline constexpr EnumNames<TuNodeFeatures, 4> kTuNodeFeaturesNames{{{{TuNodeFeatures::kAll, "all"},
                                                                     {TuNodeFeatures::kLabels, "labels"},
                                                                     {TuNodeFeatures::kAttributes, "attributes"},
                                                                     {TuNodeFeatures::kDegree, "degree"}}}};

struct TuOptions {
  TuNodeFeatures node_features = TuNodeFeatures::kAll;
  // True: labels and degrees become one-hot float32 columns, as they always do beside attributes. False: each becomes
  // an int32 column of categories, which models embed.
  bool one_hot = false;
  // For kDegree: the cap on degrees, 1..kMostDegree, or 1..kMostOneHotDegree with one_hot. One-hot degrees use no
  // more columns than the set needs.
  int64_t max_degree = 1000;
  bool operator==(const TuOptions&) const = default;
};

template <class F>
void VisitFields(Options<TuOptions>, F&& f) {
  using T = TuOptions;
  constexpr uint32_t kTu = Formats(ImportFormat::kTu);
  f({.name = "node_features",
     .formats = kTu,
     .flag = "--tu-features",
     .help = "TUDataset: node features ({}: attributes and labels, whichever there are, else degrees)"},
    &T::node_features, kTuNodeFeaturesNames);
  f({.name = "one_hot",
     .formats = kTu,
     .flag = "--one-hot",
     .help = "TUDataset: labels and degrees as one-hot columns instead of categories to be embedded"},
    &T::one_hot);
  f({.name = "max_degree",
     .accepts = Between(1, kMostDegree),
     .formats = kTu,
     .flag = "--max-degree",
     .help = "TUDataset: larger degrees count as this one ({})"},
    &T::max_degree);
}

struct ImportOptions {
  std::filesystem::path source;
  ImportFormat format = ImportFormat::kAuto;
  // If a list has every edge (u, v), u != v, as often as (v, u), it contains both directions, and kAuto adds no
  // inverses. In one large graph a self-loop is its own inverse. A TUDataset lists both directions, so that kAuto
  // stores its edges unchanged.
  InverseEdges inverse_edges = InverseEdges::kAuto;
  // For one large graph: merges edges with equal ends into one, with the sum of their weights and the latest
  // timestamp. For a TUDataset: keeps the first of the edges with equal ends, with its features.
  bool coalesce = false;
  // For one large directed graph: stores the edges twice, sorted by target and sorted by source. Walks need the order
  // by source. Symmetric graphs always have both orders.
  bool keep_out_edges = true;
  // For one large graph in the OGB layout: the table from which node features are taken.
  NodeFeatureChoice node_features = NodeFeatureChoice::kAuto;
  // For dense node features of one large graph: each value is rounded to the nearest number of this type, ties to
  // even. A type other than kAsIs is refused if the graph has no dense features.
  FeatureType feature_type = FeatureType::kAsIs;
  // For one large graph: the order in which rows are numbered. Every order except kNone sorts the edges twice, and
  // writes and reads labels and features twice. The source's ids are kept (NodeNames).
  NodeOrder order = NodeOrder::kNone;
  // The name of the folder in split/ to read. Empty: the only folder, or a seeded random split if there is no folder.
  std::string split;
  uint64_t split_seed = 0;
  // Fractions of the random split. The rest is the test split.
  double train_fraction = 0.8;
  double valid_fraction = 0.1;
  EdgeListOptions edge_list;
  TuOptions tu;
  // Bytes of memory for sorting and for the buffers of one large graph, at least kLeastImportMemory. 0:
  // ImportLimits::memory_bytes (data/source/import_options.h).
  uint64_t memory_bytes = 0;
  bool operator==(const ImportOptions&) const = default;
};

template <class F>
void VisitFields(Options<ImportOptions>, F&& f) {
  using I = ImportOptions;
  f({.name = "source_path", .stored = "source"}, &I::source);
  f({.name = "format",
     .flag = "--format",
     .help = "Format of the source ({}); store: the directory of a dataset\nthat a server imported; auto: found from "
             "what is there"},
    &I::format, kImportFormatNames);
  f({.name = "split",
     .formats = Formats(ImportFormat::kOgbGraphs, ImportFormat::kOgbNodes),
     .flag = "--split",
     .help = "Which of split/* to read (default: the only one; a random split if there is none)",
     .value = "NAME"},
    &I::split);
  f({.name = "split_seed", .formats = kWithSplits, .flag = "--split-seed", .help = "Seed of the random split ({})"},
    &I::split_seed);
  f({.name = "train_fraction",
     .accepts = Between(0, 1),
     .formats = kWithSplits,
     .flag = "--train-fraction",
     .help = "Part of the random split that trains ({})",
     .value = "0..1"},
    &I::train_fraction);
  f({.name = "valid_fraction",
     .accepts = Between(0, 1),
     .formats = kWithSplits,
     .flag = "--valid-fraction",
     .help = "Part of the random split that validates ({}); the rest is test",
     .value = "0..1"},
    &I::valid_fraction);
  // A TUDataset uses this option too, but CheckImportFormat refuses kAdd for a TUDataset.
  f({.name = "inverse_edges",
     .formats = kForeign,
     .flag = "--inverse-edges",
     .help = "Whether each edge is stored with its inverse ({}: unless the source lists both directions of every edge; "
             "a TUDataset's stay as they are)"},
    &I::inverse_edges, kInverseEdgesNames);
  f({.name = "coalesce",
     .formats = kOneGraphOrTu,
     .flag = "--coalesce",
     .help = "Large graph, TUDataset: keep one of several edges with equal ends, of a large graph with their weights "
             "added"},
    &I::coalesce);
  f({.name = "no_out_edges",
     .stored = "keep_out_edges",
     .formats = kOneGraph,
     .inverted = true,
     .flag = "--no-out-edges",
     .help = "Large directed graph: keep edges by target only; smaller, but without random walks"},
    &I::keep_out_edges);
  f({.name = "node_features",
     .formats = Formats(ImportFormat::kOgbNodes),
     .flag = "--node-features",
     .help = "Large graph in OGB's layout: which file of node features to read ({})"},
    &I::node_features, kNodeFeatureChoiceNames);
  f({.name = "feature_type",
     .formats = Formats(ImportFormat::kOgbNodes, ImportFormat::kNpy),
     .flag = "--feature-type",
     .help = "Large graph: what dense node features are stored as; int8 with a scale for each column ({})"},
    &I::feature_type, kFeatureTypeNames);
  f({.name = "order",
     .formats = kOneGraph,
     .flag = "--order",
     .help = "Large graph: number nodes so that what is drawn together lies together; the source's ids are kept ({})"},
    &I::order, kNodeOrderNames);
  f({.name = "edge_list"}, &I::edge_list);
  f({.name = "tu"}, &I::tu);
  f({.name = "memory_bytes",
     .accepts = kNotNegative,
     .formats = kOneGraphOrTu,
     .flag = "--memory",
     .help = "Large graph: memory for sorting, as 512MiB (default: a quarter of the machine's)",
     .value = "SIZE"},
    &I::memory_bytes);
}

// Returns Ok, or InvalidArgument with a violation for each invalid option, such as "options.train_fraction". Also
// refuses options that the format does not use; for kAuto, CheckImportFormat does so once the format is known.
absl::Status CheckImportOptions(const ImportOptions& options);

// Adds a violation for each option that differs from its default and that `format` does not use. Does nothing for
// kAuto.
void CheckImportFormat(ImportFormat format, const ImportOptions& options, Violations& violations);

}  // namespace permafrost::spec
