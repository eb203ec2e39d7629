// The edges of a TUDataset, graph by graph. Most files list them so and are read as they stand; the edges of any other
// are sorted by their graph, those of one graph kept in the file's order, within a bound of memory and beyond it on
// disk.
// Threads: one at a time; sorts over several by itself. Memory: of a sort memory_bytes, else a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/graph_set_builder.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"

namespace permafrost::data {

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
