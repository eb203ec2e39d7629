// Features of a TUDataset's nodes or edges: labels, which are categories, and attributes, which are measures, side by
// side as one table. Threads: one at a time. Memory: a row.
#pragma once

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
#include "data/import/tu_files.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/store/types.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
