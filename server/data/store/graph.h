// One large graph in a store: memory-mapped, columnar, and checked block by block at the first touch.
// Words: "edges" are directed edges as stored (with inverses, if the import added them). The page cache is the buffer
// pool: nothing is read before someone asks for it, and nothing is copied.
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

// The largest number of feature columns. It is bounded because the summary keeps the range of each column.
inline constexpr uint64_t kMaxFeatureColumns = uint64_t{1} << 22;
inline constexpr uint64_t kMaxNodes = uint64_t{UINT32_MAX};  // so that a row and a number of rows both fit into 32 bits

// The neighbours of every node in one direction. Ids are not compressed, because reading compressed ids slows
// sampling. On the graph of bench/power_law.py, differences between neighbours coded as varints took 2.4 bytes an
// edge instead of 4. Drawing a fan-out of neighbours for each node, in row order, then took more than twice the time.
struct Adjacency {
  Column<uint64_t> offsets;    // [nodes + 1]
  Column<NodeId> neighbors;    // [edges], rising for each node; parallel edges are adjacent
  Column<float> weights;       // [edges], or absent
  Column<int64_t> timestamps;  // [edges], or absent
  Column<uint64_t> edge_ids;   // [edges] the edge's row of edge_features; if absent, edge i has row i

  bool present() const { return !offsets.empty(); }
  struct Extent {
    uint64_t begin = 0, end = 0;
    uint64_t size() const { return end - begin; }
  };
  // Returns the range of a node's edges in the columns; node < nodes. The range lies within the columns, whatever the
  // file says. If the offsets are damaged, the range is empty, and `ok` is set to false.
  Extent Of(NodeId node, bool& ok) const {
    if (!offsets.Touch(node, uint64_t{node} + 2)) {
      ok = false;
      return {};
    }
    const uint64_t begin = std::min(offsets[node], neighbors.size());
    return {begin, std::clamp(offsets[uint64_t{node} + 1], begin, neighbors.size())};
  }
};

// Feature rows as stored: either dense, [rows, width] of one type, or sparse (kSparse), where a row is a list of
// (column, value) pairs.
struct DenseFeatures {
  DataType type = DataType::kNone;  // never kSparse
  int64_t width = 0;
  Column<std::byte> bytes;
  RowGroups groups;      // how the rows, of width * ElementBytes(type) bytes, lie in `bytes`
  Column<float> scales;  // [width] for kInt8, else absent

  uint64_t row_bytes() const { return static_cast<uint64_t>(width) * ElementBytes(type); }
  uint64_t OffsetOf(uint64_t row) const { return groups.OffsetOf(row, row_bytes()); }
};
struct SparseFeatures {
  int64_t width = 0;
  Column<uint64_t> offsets;  // [rows + 1]
  Column<uint32_t> columns;  // [nonzeros] < width, rising within a row
  Column<float> values;      // [nonzeros]; if absent, all values are 1
};
// monostate means that there are no features.
using Features = std::variant<std::monostate, DenseFeatures, SparseFeatures>;

// Links that the source divided into splits, with their negatives: pairs without an edge, against which the links are
// evaluated.
struct GivenLinks {
  std::array<Column<NodeId>, 3> links;  // by Split: [links, 2] source, target
  // By Split. The training split has none, and the other two may have none. GivenLinksSummary tells the form.
  std::array<Column<NodeId>, 3> negatives;
};

// A whole graph, as columns. Samplers and batchers need nothing else, so tests can build a GraphView over vectors.
struct GraphView {
  uint64_t nodes = 0, edges = 0;
  // The sources of the edges that end in each node (CSC). Message passing gathers over these edges.
  Adjacency in;
  // The targets of the edges that begin in each node (CSR). Random walks follow these edges. If the graph is
  // symmetric, `out` has the same columns as `in`.
  Adjacency out;
  Features node_features;
  Features positions;           // of the nodes: dense float32, or monostate
  DenseFeatures edge_features;  // in-edge i has row in.edge_ids[i], or row i without edge_ids
  // One map for each column of edge_features. It translates the column's categories when they are read. Null if
  // categories are read as stored.
  const std::vector<CategoryMap>* edge_categories = nullptr;
  int64_t num_targets = 0;
  Column<float> labels;                  // [nodes, num_targets], NaN where missing; absent if all are missing
  Column<int64_t> times;                 // [nodes], in the units of the edges' timestamps; or absent
  std::array<Column<NodeId>, 3> splits;  // by Split; rising rows
  GivenLinks given_links;                // absent unless summary.links.given
};

// Names that the source gave its nodes, if they differ from the nodes' rows.
struct NodeNames {
  Column<uint64_t> numbers;  // [nodes], or absent
  Column<uint64_t> offsets;  // [nodes + 1] into `text`, or absent
  Column<char> text;
};

// The number of links and negatives in each split. Negatives come in one of two forms: for each link, or for all
// links together.
struct GivenLinksSummary {
  bool given = false;
  struct Part {
    int64_t links = 0;
    int64_t negatives = 0;  // negative targets for the source of each link
    int64_t pairs = 0;      // negative pairs that all links share
    bool operator==(const Part&) const = default;
  };
  std::array<Part, 3> parts;  // by Split; the training split has no negatives
  const Part& of(Split split) const { return parts[static_cast<size_t>(split)]; }
  bool operator==(const GivenLinksSummary&) const = default;
};

struct GraphSummary {
  int64_t nodes = 0, edges = 0;
  // True if every edge has an inverse with an equal weight and timestamp. An edge and its inverse then count as one
  // undirected edge.
  bool symmetric = false;
  bool inverse_edges_added = false;
  EdgeDirections directions = EdgeDirections::kUnknown;
  bool weighted = false, timestamped = false;
  bool node_times = false;
  bool named = false;                  // the store keeps nodes' names, text or numbers, since they differ from the rows
  NodeOrder order = NodeOrder::kNone;  // if not kNone, `named` is true
  int64_t self_loops = 0, isolated_nodes = 0, max_degree = 0;  // max_degree is an in-degree
  int64_t duplicate_edges = 0;  // number of edges that the import dropped, if asked to coalesce
  int64_t equal_edges = 0;      // number of stored edges with the same two ends as an earlier edge
  FeatureSummary node_features, edge_features;
  int64_t node_feature_nonzeros = 0;  // only if node features are sparse
  int64_t position_columns = 0;       // 0 if the nodes have no positions
  int64_t num_targets = 0, num_missing_labels = 0;
  double min_label = 0, max_label = 0;
  bool integer_labels = false;           // all labels that are present are whole numbers
  std::array<int64_t, 3> split_nodes{};  // by Split
  std::string split_name;
  GivenLinksSummary links;
  // Lines that the import told its user. See GraphSetSummary::notes.
  std::vector<std::string> notes;
  // True if the import kept the tables of categories (Graph::categories). Older versions did not.
  bool categories_known = false;
  uint64_t adjacency_bytes = 0;  // bytes of all sections that hold edges and offsets
  uint64_t store_bytes = 0;
};

// The place of a table of rows in its file, for readers that bypass the mapping.
struct StoredRows {
  std::filesystem::path path;
  uint64_t offset = 0;  // offset of the first row, a multiple of kPageBytes
  uint64_t bytes = 0, rows = 0, row_bytes = 0;
  RowGroups groups;
  std::span<const uint64_t> page_checksums;  // XXH3-64 of each page of the table; the last page may be shorter
};

// One large graph. Threads: all methods are safe anywhere. Owns the mapping; views live as long as the Graph.
class Graph {
 public:
  // The name of the file in a dataset's directory.
  static constexpr std::string_view kFileName = "graph.pfg";

  // Opens the graph in a dataset's directory, and reads its header, section table, block checksums and summary only.
  // Errors: NotFound; DataLoss, naming the inconsistent field; FailedPrecondition for a later version or the other
  // byte order; those of SystemError.
  static absl::StatusOr<std::shared_ptr<const Graph>> Open(const std::filesystem::path& directory);
  virtual ~Graph() = default;

  virtual const GraphSummary& summary() const = 0;
  // Returns the checksum of the header, or 0 if the graph is in no file. It covers everything in the file: graphs
  // with equal checksums are equal.
  virtual uint64_t checksum() const { return 0; }
  // Returns a checksum that does not cover the summary.
  virtual uint64_t content_checksum() const { return 0; }
  // Returns a checksum of the nodes' names. If two graphs have equally many nodes and equal checksums of names, each
  // row is the same node in both.
  virtual uint64_t names_checksum() const { return 0; }
  virtual const GraphView& view() const = 0;
  virtual const NodeNames& names() const = 0;
  // Returns DataLoss, naming the file, if the file was cut short or written to after Open, or if a touched block was
  // damaged. Returns a transient error if the disk failed to deliver a part of the file; opening the file again may
  // help. After either error, values that were read before may be wrong. Trust values only if a CheckIntact after
  // reading them returns Ok.
  virtual absl::Status CheckIntact() const = 0;
  // Verifies every block. Calls `progress` now and then with the bytes done and the bytes in total. If `progress`
  // returns false, VerifyAll returns Cancelled.
  virtual absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const = 0;
  virtual uint64_t mapped_bytes() const = 0;
  // Returns the file that the graph is mapped from. The path is empty if the graph is in no file, or was derived from
  // another graph.
  virtual std::filesystem::path path() const { return {}; }
  // Returns the tables of categories of the edge features and of the labels. Node features of a large graph are
  // numbers, not categories. Returns nullopt if an older version imported the graph, without these tables. Errors:
  // DataLoss.
  virtual absl::StatusOr<std::optional<Categories>> categories() const { return std::optional<Categories>(); }
  // Returns where the dense node features lie. Returns nullopt if there are none, or if the store is of an older
  // version, which has no checksums of pages.
  virtual std::optional<StoredRows> stored_features() const { return std::nullopt; }
};

// Reads ranges of feature rows in order, rather than rows that a sample chose.
// Threads: safe anywhere.

// Reads rows [begin, end) as float32 into `out`, [end - begin, width]. Errors: DataLoss.
absl::Status ReadRows(const DenseFeatures& features, uint64_t begin, uint64_t end, float* out);

struct SparseRows {
  std::vector<int64_t> offsets;   // [rows + 1], the first one is 0
  std::vector<uint32_t> columns;  // < width
  std::vector<float> values;      // empty if all values are 1
};
absl::StatusOr<SparseRows> ReadRows(const SparseFeatures& features, uint64_t begin, uint64_t end);

// A graph that is derived from another graph and keeps it alive. Methods that a subclass does not override return the
// original graph's values. However, checksum() and content_checksum() return 0, and path() is empty. Threads: same as
// Graph.
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
  // The view begins as a copy of the original graph's view. The summary begins as `summary` or, if none is given, as
  // a copy of the original graph's summary.
  explicit DerivedGraph(const std::shared_ptr<const Graph>& graph) : DerivedGraph(graph, graph->summary()) {}
  DerivedGraph(std::shared_ptr<const Graph> graph, GraphSummary summary)
      : graph_(std::move(graph)), summary_(std::move(summary)), view_(graph_->view()) {}

  const std::shared_ptr<const Graph> graph_;
  GraphSummary summary_;
  GraphView view_;
};

// Names that the source gives the rows of one large graph.
// Threads: safe anywhere.

// Returns the name of a row as text. If the graph has no names, the row's number is its name. Errors: DataLoss.
absl::StatusOr<std::string> NameOf(const NodeNames& names, NodeId row);

// Returns, for each row of `to`, the row of `from` with the same name, or kNoRow if `from` has no such name. Reads
// all names of both graphs, and takes 16 bytes of memory a node. Errors: DataLoss.
inline constexpr int64_t kNoRow = -1;
absl::StatusOr<std::vector<int64_t>> MatchNames(const Graph& from, const Graph& to);

// Returns the rows of these names. Reads all names of the graph, so it is meant for what a person asks. Errors:
// InvalidArgument with a violation "names[i]" for each name that the graph does not have; DataLoss.
absl::StatusOr<std::vector<NodeId>> FindNames(const Graph& graph, std::span<const std::string> wanted);

}  // namespace permafrost::data
