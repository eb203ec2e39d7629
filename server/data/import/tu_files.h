// Finds the files of a TUDataset (NAME_A.txt and the files beside it) in a directory or in a ZIP archive as
// distributed. Reads them as streams of features and of edges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/feature_rows.h"
#include "data/import/graph_set_builder.h"
#include "data/import/import.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/types.h"

namespace permafrost::data {

// Finds the files. Threads: safe anywhere.

struct TuFiles {
  // The tables of nodes or of edges: labels are whole numbers that name categories; attributes are measured numbers.
  struct Features {
    std::optional<SourceFile> labels, attributes;
  };

  std::string name;  // "MUTAG"
  SourceFile edges, graph_of_node;
  std::optional<SourceFile> graph_labels, graph_attributes;
  Features node, edge;
  bool degrees = false;  // true if node features are made from degrees

  std::string stem;                         // beginning of all paths: "raw/MUTAG" of raw/MUTAG_A.txt
  std::vector<std::string> all_of_archive;  // for an archive: the paths of all members

  // Returns the number of bytes that an import reads. Edges, node labels and edge labels are read twice and count
  // twice.
  int64_t bytes() const;
  SourceContents contents(const std::filesystem::path& source) const;
};

// Finds the set by its NAME_graph_indicator.txt. A directory may hold the files in raw/, as PyG lays them out. An
// archive may hold them in any folder. Returns the tables that options.tu asks for. Errors: NotFound for missing
// files; InvalidArgument for several sets in one source, for a file that is not a ZIP archive, and for options that
// no TUDataset can satisfy; those of TypeOfSource and ListZip.
absl::StatusOr<TuFiles> FindTuFiles(const ImportOptions& options, const ImportLimits& limits);

// Returns true if the directory, or its raw/, has a NAME_graph_indicator.txt. Errors: same as TypeOfSource.
absl::StatusOr<bool> IsTuDirectory(const std::filesystem::path& directory);
// Returns true if the file is called NAME.zip.
bool IsZipName(const std::filesystem::path& file);

// Reads the features of a TUDataset's nodes or edges: labels (categories) and attributes (measures), side by side in
// one table. If there are only labels, each label becomes an int32 column that holds the label minus its smallest
// value. With attributes or `one_hot` the columns are float32. Attributes come first, then one-hot columns. Each
// label has one such column for every number from the label's minimum to its maximum, as in PyG's TUDataset with
// use_node_attr.
// Threads: one at a time. Memory: a row.
class TuFeatures {
 public:
  // Reads the labels once to find their ranges. `rows` is the number of rows that each file must have; `why` says
  // where that number comes from.
  static absl::StatusOr<TuFeatures> Open(const TuFiles::Features& files, bool one_hot, int64_t rows,
                                         const std::string& why, ImportMonitor& monitor);

  // Returns true if there are labels or attributes.
  bool any() const { return labels_.has_value() || attributes_.has_value(); }
  // Reads the next row. Errors: InvalidArgument naming file, row and cell.
  absl::Status Next();
  // Call it after the last row. Returns an error if a file has more rows.
  absl::Status ExpectEnd();
  // Returns the row read last.
  std::span<const std::byte> row() const;
  // Returns the summary of the table as far as it was read.
  const FeatureSummary& summary() const { return summary_; }
  // Returns a reader whose errors name the row read last.
  const CsvRows& rows() const { return labels_ ? *labels_ : *attributes_; }
  // Returns for each label column a table that says what the column's categories stand for.
  std::vector<CategoryTable> categories() const;
  // Returns what the features are made of: "labels", "attributes and one-hot labels", ...
  std::string origin() const;

 private:
  struct Label {
    int64_t min = 0, max = 0;
    int64_t categories() const { return max - min + 1; }
  };

  TuFeatures(bool one_hot, int64_t due, std::string why) : one_hot_(one_hot), due_(due), why_(std::move(why)) {}
  absl::Status ScanLabels(const SourceFile& file, ImportMonitor& monitor);
  // Calls take(column, value) for each cell of a row of labels.
  template <class Take>
  absl::Status ParseLabelRow(const CsvRows& rows, std::string_view line, size_t width, const Take& take) const;
  absl::Status ParseAttributes(std::string_view line);
  absl::Status SetUp();
  bool floats() const { return one_hot_ || attributes_.has_value(); }
  void Widen();

  bool one_hot_;
  int64_t due_;
  std::string why_;
  std::optional<CsvRows> labels_, attributes_;
  std::vector<Label> label_columns_;
  ValueSets values_;           // of each label column
  size_t num_attributes_ = 0;  // 0 until the first row is read
  FeatureSummary summary_;
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
};

// Reads the features of a TUDataset's edges, one row per call. Without Keep, rows are read in the file's order. Keep
// copies all rows to a file without a name; after that, rows can be read in any order.
// Threads: one at a time. Memory: a row and a buffer. Borrows features and monitor.
class TuRows {
 public:
  TuRows(TuFeatures& features, std::filesystem::path directory, ImportMonitor& monitor)
      : features_(features), directory_(std::move(directory)), monitor_(monitor) {}

  // Reads all `rows` rows and keeps them on disk, so that Read can return any of them. Errors: InvalidArgument for a
  // wrong cell; those of the disk; Cancelled.
  absl::Status Keep(int64_t rows);
  // Reads row `row`. Without Keep, `row` must be the next row.
  absl::Status Read(uint64_t row);
  std::span<const std::byte> row() const { return file_ ? std::span<const std::byte>(row_) : features_.row(); }

 private:
  TuFeatures& features_;
  const std::filesystem::path directory_;
  ImportMonitor& monitor_;
  std::unique_ptr<NamelessFile> file_;  // the kept rows; null without Keep
  std::vector<std::byte> row_;
};

// Reads the edges of a TUDataset, graph by graph. Most files list edges in this order and are read as they are. If a
// file does not, its edges are sorted by graph, and the edges of one graph stay in the file's order. The sort uses a
// bounded amount of memory, and the disk for the rest.
// Threads: one at a time; sorts on several threads itself. Memory: memory_bytes for a sort, else one line.
class TuEdges {
 public:
  struct Edge {
    uint32_t graph = 0;
    uint32_t source = 0, target = 0;  // nodes within the graph
    uint32_t unused = 0;
    uint64_t row = 0;  // in the file, counted from 0
  };
  enum class Next : uint8_t {
    kEdge,
    kEnd,
    // All edges returned so far are void, since the file turned out to number nodes from 0 or to need sorting. Call
    // Begin again.
    kAnew,
  };

  // `sizes` must know the number of nodes of every graph. `directory` is for temporary files. Borrows everything
  // except `directory`.
  TuEdges(const SourceFile& file, const GraphSetBuilder& sizes, std::filesystem::path directory, uint64_t memory_bytes,
          ImportMonitor& monitor)
      : file_(file), sizes_(sizes), directory_(std::move(directory)), memory_bytes_(memory_bytes), monitor_(monitor) {}

  // Goes back to the first edge.
  absl::Status Begin();
  // Sets `edge` to the next edge. Graphs come in rising order. After the first kEnd, the file may be read again: it
  // must then have the same number of rows, and kAnew is not returned. Errors: InvalidArgument naming file, row and
  // cell; those of the disk, also in a sort; Cancelled.
  absl::StatusOr<Next> Read(Edge& edge);
  // Returns the number of edges in the file. Call it only after the first kEnd.
  int64_t rows() const { return *count_; }
  // Returns the largest node at an end of any edge, counted from 1 over the whole set. Call it only after the first
  // kEnd.
  int64_t largest_node() const { return largest_node_; }
  // Returns how often an edge begins in a smaller node than the edge before it. Call it only after the first kEnd.
  int64_t descents() const { return descents_; }
  // Returns true if the edges come in another order than the file's.
  bool sorted() const { return sorted_ != nullptr; }
  // Returns a reader whose errors name the row of the last edge. If the edges are sorted, the errors name the end of
  // the file.
  const CsvRows& file_rows() const { return *rows_; }

 private:
  // Updates largest_node_ and descents_ for an edge of the first reading.
  void Watch(const Edge& edge);
  absl::StatusOr<Edge> Parse(std::string_view line) const;
  absl::StatusOr<int64_t> ParseNode(std::string_view field, std::string_view cell) const;
  absl::StatusOr<Next> ReadSorted(Edge& edge);
  absl::StatusOr<Next> End();
  // Returns true if the line shows that ids begin at 0. From then on all ids are read as beginning at 0.
  bool FindsZero(std::string_view line);
  // Call it after an invalid row. Reads on, and returns true if a later row shows that ids begin at 0. The invalid
  // row may be valid with such ids. Errors: transient ones and Cancelled. Invalid rows in the rest of the file are
  // ignored, since the first invalid row is the one to report.
  absl::StatusOr<bool> ZeroFollows();
  // Reads and sorts the whole file. Returns false if ids turn out to begin at 0.
  absl::StatusOr<bool> Sort();

  const SourceFile& file_;
  const GraphSetBuilder& sizes_;
  const std::filesystem::path directory_;
  const uint64_t memory_bytes_;
  ImportMonitor& monitor_;
  int64_t first_node_ = 1;  // the smallest id: 1, or 0 once FindsZero returned true
  std::optional<int64_t> count_;
  std::optional<CsvRows> rows_;
  uint64_t read_ = 0;  // edges read since Begin
  int64_t largest_node_ = 0, descents_ = 0, last_source_ = 0;
  uint32_t graph_ = 0;                    // graph of the edge read last
  std::unique_ptr<NamelessFile> sorted_;  // the sorted edges; null if the file is read as it is
  std::vector<Edge> piece_;               // a piece of the sorted edges
  size_t at_ = 0;                         // position in piece_
};

}  // namespace permafrost::data
