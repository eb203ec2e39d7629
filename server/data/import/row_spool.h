// Rows of equal length that come in the order of the source and are taken in the order of the store, through a file
// that has no name.
// Threads: one at a time. Memory: memory_bytes, and a row for each part of the file.
// Cost where rows are renumbered: each is written and read once more, none by itself. Rows go to as many parts of the
// file as make each fit half of the memory when it is read; the other half are the parts' buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stop.h"
#include "data/import/renumbering.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {

struct RowSpoolOptions {
  std::filesystem::path directory;
  uint64_t rows = 0, row_bytes = 0;
  uint64_t memory_bytes = 0;
};

class RowSpool {
 public:
  // Borrows the renumbering, which is none or of all `rows`.
  static absl::StatusOr<RowSpool> Create(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop);

  // Takes in the next rows, whole ones. Errors: of the disk; Cancelled.
  absl::Status Append(std::span<const std::byte> rows);
  // After the last row, once: all of them in the store's order, some at a time.
  absl::Status Drain(const std::function<absl::Status(std::span<const std::byte> rows)>& take);

 private:
  RowSpool(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop, NamelessFile file);
  // Rows of the store [part * rows_of_part_, ...), each behind its number there.
  struct Part {
    uint64_t written = 0;  // bytes
    std::vector<std::byte> buffer;
  };
  uint64_t record_bytes() const { return sizeof(NodeId) + options_.row_bytes; }
  absl::Status Flush(size_t part);
  absl::Status DrainPart(size_t part, std::vector<std::byte>& rows);

  RowSpoolOptions options_;
  const Renumbering* renumbering_;
  std::stop_token stop_;
  NamelessFile file_;
  uint64_t rows_of_part_ = 0, buffer_bytes_ = 0;
  std::vector<Part> parts_;  // none where rows are not renumbered
  uint64_t appended_ = 0;
};

}  // namespace permafrost::data
