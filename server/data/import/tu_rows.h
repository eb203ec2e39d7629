// The features of a TUDataset's edges, by row: as the file has them, or in any order, through a file without a name.
// Threads: one at a time. Memory: a row and a buffer. Borrows features and monitor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "data/import/tu_features.h"
#include "data/sort/nameless_file.h"
#include "data/source/import_monitor.h"

namespace permafrost::data {

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
