// Writes one store file, section after section straight into its place, and header and table in front at last.
// Threads: one at a time. Memory: a buffer, and 8 bytes for each block written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/stop.h"
#include "data/store/block_hashes.h"
#include "data/store/format.h"

namespace permafrost::data {

class StoreFileWriter {
 public:
  static absl::StatusOr<StoreFileWriter> Create(const std::filesystem::path& path, std::stop_token stop);

  // Begins a section, and ends the one before.
  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width);
  // The same of rows that will be read from all over it: a checksum a page, and rows in such groups.
  absl::Status BeginPaged(SectionKind kind, ElementType type, uint32_t width, const RowGroups& groups);
  // Appends to the section begun last. Cancelled soon after the import shall stop.
  absl::Status Append(std::span<const std::byte> bytes);
  // Ends the section begun last. Internal error where its bytes are no whole rows.
  absl::Status End();
  // The entries of the sections that have ended.
  std::span<const SectionEntry> entries() const { return entries_; }

  // Writes block checksums, table and `header`, whose file_bytes, section_count and what tells the format it sets, and
  // syncs. Returns the file's length.
  absl::StatusOr<uint64_t> Finish(FileHeader header);

 private:
  StoreFileWriter(FileWriter file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  absl::Status Open(const SectionEntry& entry);
  absl::Status AppendPiece(std::span<const std::byte> bytes);
  uint64_t RowBytes() const { return open_.width * ElementBytes(open_.type); }

  FileWriter file_;
  std::stop_token stop_;
  std::vector<SectionEntry> entries_;
  SectionEntry open_{};    // `bytes` and `rows` unset; offset 0: none
  uint64_t appended_ = 0;  // bytes of rows in it
  BlockHashes hashes_;
  std::vector<uint64_t> checksums_;
};

}  // namespace permafrost::data
