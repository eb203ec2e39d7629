// One large graph as it lies on disk: memory-mapped, columnar, checked block by block when first touched.
// Words: "edges" are directed edges as stored (with inverses, if the import added them). The page cache is the buffer
// pool: nothing here is read before it is asked for, and nothing is copied.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/block_guard.h"
#include "data/store/categories.h"
#include "data/store/format.h"
#include "data/store/types.h"

namespace permafrost::data {

// Columns of features: the summary keeps the range of each.
inline constexpr uint64_t kMaxFeatureColumns = uint64_t{1} << 22;
inline constexpr uint64_t kMaxNodes = uint64_t{UINT32_MAX};  // so that a row and a count of rows both fit

// The neighbours of every node in one direction, as plain ids. Differences in a varint took 2.4 bytes an edge instead
// of 4 on the graph of bench/power_law.py, but a fan-out in the order of rows took over twice the time.
struct Adjacency {
  Column<uint64_t> offsets;    // [nodes + 1]
  Column<NodeId> neighbors;    // [edges], rising within a node; parallel edges stand side by side
  Column<float> weights;       // [edges], or absent
  Column<int64_t> timestamps;  // [edges], or absent
  Column<uint64_t> edge_ids;   // [edges] row of edge_features of each edge; absent: its own place

  bool present() const { return !offsets.empty(); }
  struct Extent {
    uint64_t begin = 0, end = 0;
    uint64_t size() const { return end - begin; }
  };
  // Returns where a node's edges are, node < nodes. Never leaves the columns, whatever the file says. If the offsets
  // are damaged, it returns an empty range, and `ok` is false.
  Extent Of(NodeId node, bool& ok) const {
    if (!offsets.Touch(node, uint64_t{node} + 2)) {
      ok = false;
      return {};
    }
    const uint64_t begin = std::min(offsets[node], neighbors.size());
    return {begin, std::clamp(offsets[uint64_t{node} + 1], begin, neighbors.size())};
  }
};

// Feature rows as stored. Dense: [rows, width] of one type. Sparse: kSparse, rows of (column, value).
struct DenseFeatures {
  DataType type = DataType::kNone;  // never kSparse
  int64_t width = 0;
  Column<std::byte> bytes;
  RowGroups groups;      // how rows of width * ElementBytes(type) lie in `bytes`
  Column<float> scales;  // [width] of kInt8, else absent

  uint64_t row_bytes() const { return static_cast<uint64_t>(width) * ElementBytes(type); }
  uint64_t OffsetOf(uint64_t row) const { return groups.OffsetOf(row, row_bytes()); }
};
struct SparseFeatures {
  int64_t width = 0;
  Column<uint64_t> offsets;  // [rows + 1]
  Column<uint32_t> columns;  // [nonzeros] < width, rising within a row
  Column<float> values;      // [nonzeros]; absent: all are 1
};
// monostate: none.
using Features = std::variant<std::monostate, DenseFeatures, SparseFeatures>;

// Links that the source divided, and pairs without an edge that it evaluates them against.
struct GivenLinks {
  std::array<Column<NodeId>, 3> links;      // by Split: [links, 2] source, target
  std::array<Column<NodeId>, 3> negatives;  // of validation and test, as GivenLinksSummary says; or absent
};

// A whole graph, as columns. Samplers and batchers need nothing else, so tests make one over vectors.
struct GraphView {
  uint64_t nodes = 0, edges = 0;
  // Sources of the edges that end in a node (CSC): what message passing gathers over.
  Adjacency in;
  // Targets of the edges that begin in a node (CSR): what random walks follow. If the graph is symmetric, these are the
  // same columns as `in`.
  Adjacency out;
  Features node_features;
  Features positions;           // of the nodes: dense float32, or none
  DenseFeatures edge_features;  // rows as edge_ids say, else in the order of `in`
  // The maps say what the categories of edge_features are read as, one for each column. nullptr: as they stand.
  const std::vector<CategoryMap>* edge_categories = nullptr;
  int64_t num_targets = 0;
  Column<float> labels;                  // [nodes, num_targets], NaN where missing; or absent: all are
  Column<int64_t> times;                 // [nodes], or absent: in the units of the edges' timestamps
  std::array<Column<NodeId>, 3> splits;  // by Split; rows, rising
  GivenLinks given_links;                // where summary.links.given
};

// Ids that the source gave its nodes, if they are not the rows themselves.
struct NodeNames {
  Column<uint64_t> numbers;  // [nodes], or absent
  Column<uint64_t> offsets;  // [nodes + 1] into `text`, or absent
  Column<char> text;
};

// For each split: its links, and its negatives in one of two forms.
struct GivenLinksSummary {
  bool given = false;
  struct Part {
    int64_t links = 0;
    int64_t negatives = 0;  // targets of each link's source
    int64_t pairs = 0;      // which all links share
    bool operator==(const Part&) const = default;
  };
  std::array<Part, 3> parts;  // by Split; training has no negatives
  const Part& of(Split split) const { return parts[static_cast<size_t>(split)]; }
  bool operator==(const GivenLinksSummary&) const = default;
};

struct GraphSummary {
  int64_t nodes = 0, edges = 0;
  // Every edge has its inverse, with an equal weight and timestamp: both are one edge without a direction.
  bool symmetric = false;
  bool inverse_edges_added = false;
  EdgeDirections directions = EdgeDirections::kUnknown;
  bool weighted = false, timestamped = false;
  bool node_times = false;
  bool named = false;                                          // source ids that are not the rows; text or numbers
  NodeOrder order = NodeOrder::kNone;                          // other than kNone: named
  int64_t self_loops = 0, isolated_nodes = 0, max_degree = 0;  // degrees are of `in`
  int64_t duplicate_edges = 0;                                 // dropped by the import, where it was asked to
  int64_t equal_edges = 0;                                     // kept, beyond the first with equal ends
  FeatureSummary node_features, edge_features;
  int64_t node_feature_nonzeros = 0;  // of sparse ones
  int64_t position_columns = 0;       // 0: the nodes have no positions
  int64_t num_targets = 0, num_missing_labels = 0;
  double min_label = 0, max_label = 0;
  bool integer_labels = false;           // all present ones are whole numbers
  std::array<int64_t, 3> split_nodes{};  // by Split
  std::string split_name;
  GivenLinksSummary links;
  // Lines that the import told its user, as GraphSetSummary's.
  std::vector<std::string> notes;
  // True if the import kept what categories stand for (Graph::categories); older versions did not.
  bool categories_known = false;
  uint64_t adjacency_bytes = 0;  // of all sections that hold edges and offsets
  uint64_t store_bytes = 0;
};

// Says where a table of rows lies in its file, for readers that read past the mapping.
struct StoredRows {
  std::filesystem::path path;
  uint64_t offset = 0;  // of its first row, a multiple of kPageBytes
  uint64_t bytes = 0, rows = 0, row_bytes = 0;
  RowGroups groups;
  std::span<const uint64_t> page_checksums;  // XXH3-64 of each kPageBytes of it, the last being shorter
};

// Threads: all methods are safe anywhere. Owns the mapping; views live as long as the Graph.
class Graph {
 public:
  // The file in a dataset's directory.
  static constexpr std::string_view kFileName = "graph.pfg";

  // Reads header, section table and summary only. Errors: NotFound; DataLoss naming the field that does not add up;
  // FailedPrecondition for a later version or the other byte order; those of SystemError.
  static absl::StatusOr<std::shared_ptr<const Graph>> Open(const std::filesystem::path& directory);
  virtual ~Graph() = default;

  virtual const GraphSummary& summary() const = 0;
  // The checksum of the header, which covers all that the file holds: graphs with one checksum are equal. 0: the graph
  // is in no file.
  virtual uint64_t checksum() const { return 0; }
  // A checksum that leaves out the summary.
  virtual uint64_t content_checksum() const { return 0; }
  // Graphs with the same names checksum and equally many nodes have the same node in each row.
  virtual uint64_t names_checksum() const { return 0; }
  virtual const GraphView& view() const = 0;
  virtual const NodeNames& names() const = 0;
  // Returns DataLoss, naming the file, once it was cut short or written to since Open, or a touched block was damaged.
  // Returns a transient error once the disk failed to give some of it; opening it anew may help. Values that were read
  // before may then be anything: trust them only if this is Ok after the reading.
  virtual absl::Status CheckIntact() const = 0;
  // Verifies every block. `progress` hears of bytes done and in all and returns whether to go on; Cancelled if not.
  virtual absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const = 0;
  virtual uint64_t mapped_bytes() const = 0;
  // The file that it is mapped from. Empty: it is in no file, or derived from one that is.
  virtual std::filesystem::path path() const { return {}; }
  // Returns what the categories of its edges' columns and of its labels stand for; those of nodes are numbers. nullopt:
  // an older version imported it and did not keep them. Errors: DataLoss.
  virtual absl::StatusOr<std::optional<Categories>> categories() const { return std::optional<Categories>(); }
  // Returns dense node features; nullopt if there are none, or if an older store has no checksum for each page.
  virtual std::optional<StoredRows> stored_features() const { return std::nullopt; }
};

// Feature rows of a large graph, read in order rather than by a sample.
// Threads: safe anywhere.

// Rows [begin, end) as float32 into out[(end - begin) * width]. Errors: DataLoss.
absl::Status ReadRows(const DenseFeatures& features, uint64_t begin, uint64_t end, float* out);

struct SparseRows {
  std::vector<int64_t> offsets;   // [rows + 1], beginning at 0
  std::vector<uint32_t> columns;  // < width
  std::vector<float> values;      // empty: all are 1
};
absl::StatusOr<SparseRows> ReadRows(const SparseFeatures& features, uint64_t begin, uint64_t end);

// A graph made from another one, which it keeps alive. It answers as the other one does, except where it overrides a
// method. Threads: as Graph.
class DerivedGraph : public Graph {
 public:
  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  const NodeNames& names() const override { return graph_->names(); }
  uint64_t names_checksum() const override { return graph_->names_checksum(); }
  absl::Status CheckIntact() const override { return graph_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return graph_->VerifyAll(progress);
  }
  uint64_t mapped_bytes() const override { return graph_->mapped_bytes(); }
  absl::StatusOr<std::optional<Categories>> categories() const override { return graph_->categories(); }
  std::optional<StoredRows> stored_features() const override { return graph_->stored_features(); }

 protected:
  // Summary and view begin as the other's; the summary as `summary`, where it is given.
  explicit DerivedGraph(const std::shared_ptr<const Graph>& graph) : DerivedGraph(graph, graph->summary()) {}
  DerivedGraph(std::shared_ptr<const Graph> graph, GraphSummary summary)
      : graph_(std::move(graph)), summary_(std::move(summary)), view_(graph_->view()) {}

  const std::shared_ptr<const Graph> graph_;
  GraphSummary summary_;
  GraphView view_;
};

// The names that the source gives the rows of one large graph.
// Threads: safe anywhere.

// Returns the name of a row of the graph: its text or its number; the row itself if there are no names. Errors:
// DataLoss.
absl::StatusOr<std::string> NameOf(const NodeNames& names, NodeId row);

// For each row of `to` the row of `from` with the same name; kNoRow where `from` has none. Looks through all names of
// both, with 16 bytes of memory a node. Errors: DataLoss.
inline constexpr int64_t kNoRow = -1;
absl::StatusOr<std::vector<int64_t>> MatchNames(const Graph& from, const Graph& to);

// The rows of these names. Looks through all names: for what a person asks. Errors: InvalidArgument with a violation
// "names[i]" for each that is none; DataLoss.
absl::StatusOr<std::vector<NodeId>> FindNames(const Graph& graph, std::span<const std::string> wanted);

}  // namespace permafrost::data
