// The files of a TUDataset: NAME_A.txt and those beside it, in a directory or a ZIP archive as distributed. They are
// found, and read as streams of features and of edges.
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

// Finds the files. Threads: pure, except for opened files.

struct TuFiles {
  // A table of nodes or of edges: whole numbers that are categories, and numbers that are measures.
  struct Features {
    std::optional<SourceFile> labels, attributes;
  };

  std::string name;  // "MUTAG"
  SourceFile edges, graph_of_node;
  std::optional<SourceFile> graph_labels, graph_attributes;
  Features node, edge;
  bool degrees = false;  // make node features of degrees

  std::string stem;                         // the path of every file up to its table: "raw/MUTAG"
  std::vector<std::string> all_of_archive;  // paths of its members

  // Edges and labels are read twice.
  int64_t bytes() const;
  SourceContents contents(const std::filesystem::path& source) const;
};

// NAME_graph_indicator.txt tells the name. A directory may have the files in raw/, as PyG lays them out; an archive in
// any folder. Takes what options.tu asks for. Errors: NotFound for missing files, InvalidArgument for several sets in
// one source, what is no ZIP archive, and options that no TUDataset can be asked for; what TypeOfSource and ListZip
// say.
absl::StatusOr<TuFiles> FindTuFiles(const ImportOptions& options, const ImportLimits& limits);

// True if the directory, or its raw/, has a NAME_graph_indicator.txt. Errors: as TypeOfSource.
absl::StatusOr<bool> IsTuDirectory(const std::filesystem::path& directory);
// True if the file is called NAME.zip.
bool IsZipName(const std::filesystem::path& file);

// Features of a TUDataset's nodes or edges: labels, which are categories, and attributes, which are measures, side by
// side as one table. Threads: one at a time. Memory: a row.

// The rows of a table that grows cell by cell. Labels alone: an int32 column each, counted from the column's smallest;
// with attributes, or where `one_hot`: float32 columns, attributes first, then a column for each number from a label's
// smallest to its largest, as PyG's TUDataset with use_node_attr.
class TuFeatures {
 public:
  // Reads the labels once through for their ranges. rows: how many each file must have; `why`: where that comes from.
  static absl::StatusOr<TuFeatures> Open(const TuFiles::Features& files, bool one_hot, int64_t rows,
                                         const std::string& why, ImportMonitor& monitor);

  // True if there is anything to read.
  bool any() const { return labels_.has_value() || attributes_.has_value(); }
  // Reads the next row. Errors: InvalidArgument naming file, row and cell.
  absl::Status Next();
  // After the last row.
  absl::Status ExpectEnd();
  // The row read last, and what is known of the table so far.
  std::span<const std::byte> row() const;
  const FeatureSummary& summary() const { return summary_; }
  // For errors about the row read last.
  const CsvRows& rows() const { return labels_ ? *labels_ : *attributes_; }
  // Returns the tables that say what the labels' columns stand for.
  std::vector<CategoryTable> categories() const;
  // "labels", "attributes and one-hot labels", ...
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
  ValueSets values_;           // of each
  size_t num_attributes_ = 0;  // 0: not known yet
  FeatureSummary summary_;
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
};

// The features of a TUDataset's edges, by row: as the file has them, or in any order, through a file without a name.
// Threads: one at a time. Memory: a row and a buffer. Borrows features and monitor.
class TuRows {
 public:
  TuRows(TuFeatures& features, std::filesystem::path directory, ImportMonitor& monitor)
      : features_(features), directory_(std::move(directory)), monitor_(monitor) {}

  // Reads all `rows` and keeps them on disk, so that any may be read. Errors: of the cells, the disk; Cancelled.
  absl::Status Keep(int64_t rows);
  // Reads row `row`: without Keep the next one.
  absl::Status Read(uint64_t row);
  std::span<const std::byte> row() const { return file_ ? std::span<const std::byte>(row_) : features_.row(); }

 private:
  TuFeatures& features_;
  const std::filesystem::path directory_;
  ImportMonitor& monitor_;
  std::unique_ptr<NamelessFile> file_;  // of kept rows
  std::vector<std::byte> row_;
};

// The edges of a TUDataset, graph by graph. Most files list them so and are read as they stand; the edges of any other
// are sorted by their graph, those of one graph kept in the file's order, within a bound of memory and beyond it on
// disk.
// Threads: one at a time; sorts over several by itself. Memory: of a sort memory_bytes, else a line.
class TuEdges {
 public:
  struct Edge {
    uint32_t graph = 0;
    uint32_t source = 0, target = 0;  // within their graph
    uint32_t unused = 0;
    uint64_t row = 0;  // of the file, from 0
  };
  enum class Next : uint8_t {
    kEdge,
    kEnd,
    // The edges given so far are void, since the file turned out to number nodes from 0, or to need sorting: Begin
    // again.
    kAnew,
  };

  // `sizes` knows the nodes of every graph. Borrows all but the directory, which is for temporary files.
  TuEdges(const SourceFile& file, const GraphSetBuilder& sizes, std::filesystem::path directory, uint64_t memory_bytes,
          ImportMonitor& monitor)
      : file_(file), sizes_(sizes), directory_(std::move(directory)), memory_bytes_(memory_bytes), monitor_(monitor) {}

  // Goes to the first edge.
  absl::Status Begin();
  // Sets `edge` to the next one, whose graph is never below that of the one before. Once the end was reached, later
  // readings must find as many rows, and give no kAnew. Errors: InvalidArgument naming file, row and cell; of the disk,
  // of a sort's too; Cancelled.
  absl::StatusOr<Next> Read(Edge& edge);
  // Edges of the file, after the first kEnd.
  int64_t rows() const { return *count_; }
  // After the first kEnd: the largest node of the set that an edge has, counted from 1, and how often an edge begins in
  // a smaller node than the one before it.
  int64_t largest_node() const { return largest_node_; }
  int64_t descents() const { return descents_; }
  // True if edges come in another order than the file's.
  bool sorted() const { return sorted_ != nullptr; }
  // For errors about the edge read last. If edges are sorted, they name the file's end instead.
  const CsvRows& file_rows() const { return *rows_; }

 private:
  // Takes note of an edge that is read for the first time.
  void Watch(const Edge& edge);
  absl::StatusOr<Edge> Parse(std::string_view line) const;
  absl::StatusOr<int64_t> ParseNode(std::string_view field, std::string_view cell) const;
  absl::StatusOr<Next> ReadSorted(Edge& edge);
  absl::StatusOr<Next> End();
  // True if the line says that ids begin at 0; they are then taken so.
  bool FindsZero(std::string_view line);
  // After a row that cannot be: whether a later one says that ids begin at 0, so that it can. Errors: transient, and
  // Cancelled; what is wrong with the rest of the file is none, since the row before it is told first.
  absl::StatusOr<bool> ZeroFollows();
  // Reads the whole file. False if ids turn out to begin at 0.
  absl::StatusOr<bool> Sort();

  const SourceFile& file_;
  const GraphSetBuilder& sizes_;
  const std::filesystem::path directory_;
  const uint64_t memory_bytes_;
  ImportMonitor& monitor_;
  int64_t first_node_ = 1;  // the smallest id
  std::optional<int64_t> count_;
  std::optional<CsvRows> rows_;
  uint64_t read_ = 0;  // edges since Begin
  int64_t largest_node_ = 0, descents_ = 0, last_source_ = 0;
  uint32_t graph_ = 0;                    // of the edge read last
  std::unique_ptr<NamelessFile> sorted_;  // edges, once they are sorted
  std::vector<Edge> piece_;               // read from there
  size_t at_ = 0;                         // in the piece
};

}  // namespace permafrost::data
