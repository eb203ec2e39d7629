// A dense table of features on its way into its section: as it comes, or converted; its rows in the order of the store.
// Threads: one at a time. Memory: 24 bytes a column where values are converted; pieces of rows; where rows must wait on
// disk (they are renumbered, or become int8, whose scales are known at the end only) what RowSpool takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/import/renumbering.h"
#include "data/import/row_spool.h"
#include "data/import/value_sets.h"
#include "data/source/import_monitor.h"
#include "data/store/graph_writer.h"
#include "data/store/types.h"

namespace permafrost::data {

// A table that is due: its section, how many rows it must have and why.
struct DueTable {
  SectionKind section;
  uint64_t rows = 0;
  std::string why;  // "as raw/num-node-list.csv says"
  // For node features only.
  FeatureType as = FeatureType::kAsIs;
  const Renumbering* renumbering = nullptr;  // none where there is none
  uint64_t memory_bytes = 0;                 // for rows that are renumbered
};

class FeatureSink {
 public:
  // The error for an element of the source, row * width + column.
  using Fault = std::function<absl::Status(uint64_t element, std::string_view what)>;

  // `directory`: for temporary files. Borrows all of it.
  FeatureSink(const DueTable& due, const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer)
      : due_(due), directory_(directory), monitor_(monitor), writer_(writer) {}

  // Begins a table of finite values of `type`, a dense one.
  absl::Status Begin(DataType type, uint64_t width);
  // Whole rows. Errors: what `fault` says for a value that the asked type cannot hold; of the disk; Cancelled.
  absl::Status Append(std::span<const std::byte> rows, const Fault& fault);
  // After the last row: `summary`, of what came, becomes that of what is stored.
  absl::Status Finish(FeatureSummary& summary);

 private:
  struct ColumnError {
    double largest = 0, squares = 0;
  };
  bool converts() const { return stored_ != type_; }
  void NoteError(size_t column, double difference) {
    ColumnError& error = errors_[column];
    if (difference > error.largest) error.largest = difference;
    error.squares += difference * difference;
  }
  // Rows of type_ into converted_.
  absl::Status Narrow(std::span<const std::byte> rows, const Fault& fault);
  absl::Status WriteScaled(const FeatureSummary& summary);
  void Quantize(std::span<const std::byte> rows);
  void Describe(FeatureSummary& summary) const;
  double Stored(double value, size_t column) const;

  const DueTable& due_;
  const std::filesystem::path& directory_;
  ImportMonitor& monitor_;
  GraphWriter& writer_;
  DataType type_ = DataType::kNone, stored_ = DataType::kNone;
  uint64_t width_ = 0, appended_ = 0;  // rows
  std::optional<RowSpool> spool_;
  std::vector<ColumnError> errors_;
  std::vector<float> scales_;
  std::vector<std::byte> converted_;
  // True for integer features of edges: models read those as categories, so `values_` keeps their values.
  bool keeps_values_ = false;
  ValueSets values_;
};

}  // namespace permafrost::data
