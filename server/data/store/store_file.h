// An open store file of either layout: header and section table checked, sections found, nothing else read.
// Threads: all methods are safe anywhere. Owns the mapping; sections live as long as the StoreFile.
// Invariant: every section lies within the file, as long as its table entry says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapped_file.h"
#include "data/store/block_guard.h"
#include "data/store/format.h"

namespace permafrost::data {

class StoreFile {
 public:
  struct Section {
    SectionEntry entry{};
    std::span<const std::byte> bytes;
    // As BlockGuard takes them.
    std::span<const uint64_t> checksums;
    uint64_t block_bytes = 0;

    template <class T>
    std::span<const T> As() const {
      return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
  };
  using CheckOf = std::function<BlockGuard::ContentCheck(const Section&)>;
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  // Reads header, table and block checksums. Versions 1 (a graph set) to 3; the layout must be `layout`.
  // Errors: those of MappedFile; naming the file and the field, DataLoss for what does not add up, and
  // FailedPrecondition for a later version or the other byte order.
  static absl::StatusOr<std::unique_ptr<StoreFile>> Open(const std::filesystem::path& path, StoreLayout layout,
                                                         MappedFile::Access access);
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;

  const FileHeader& header() const { return header_; }
  // The sections in the file's order, without block_checksums.
  const std::vector<Section>& sections() const { return sections_; }
  // nullptr where the file has none.
  const Section* Find(SectionKind kind) const;
  uint64_t size() const { return file_->size(); }
  const std::filesystem::path& path() const { return file_->path(); }
  // Returns a hash over the kinds, sizes and checksums of the sections. It leaves out the sections that say what others
  // hold, because a later version may word them otherwise. These are the summary, and the categories that stand as they
  // do in the source.
  uint64_t ContentChecksum() const;
  // Returns such a hash over the names of a large graph's nodes alone.
  uint64_t NamesChecksum() const;

  // The text of the section `summary`, verified. Errors name the file.
  absl::StatusOr<std::string_view> ReadSummary() const;
  std::unique_ptr<BlockGuard> Guard(const Section& section, BlockGuard::ContentCheck check) const;
  // DataLoss, naming the file, where the bytes between sections, which no checksum covers, are not zero.
  absl::Status CheckGaps() const;
  // Does what MappedFile::CheckIntact does; DataLoss also says what to do.
  absl::Status CheckIntact() const;
  // Verifies all sections, those too that were verified before, and the gaps. Cancelled when `progress`, which hears of
  // bytes, returns false.
  absl::Status VerifyAll(const CheckOf& check_of, const Progress& progress) const;

 private:
  explicit StoreFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  // These check; their errors lack the file's name.
  absl::Status ReadHeader(StoreLayout layout);
  absl::Status ReadTable();
  absl::Status CheckEntry(const SectionEntry& entry, uint64_t previous_end) const;
  static absl::Status CheckGroups(const SectionEntry& entry, uint64_t row_bytes);
  absl::Status FindChecksums();
  uint64_t ChecksumOfThose(bool (*wanted)(SectionKind)) const;

  bool first_version() const { return header_.version == 1; }
  uint64_t header_bytes() const { return first_version() ? kHeaderBytesV1 : sizeof(FileHeader); }
  uint64_t entry_bytes() const { return header_.version < kStoreVersion ? kEntryBytesV2 : sizeof(SectionEntry); }
  uint64_t table_end() const { return header_bytes() + header_.section_count * entry_bytes(); }

  const std::unique_ptr<MappedFile> file_;
  FileHeader header_{};
  std::vector<Section> sections_;
  uint64_t end_ = 0;  // of the last of them
};

}  // namespace permafrost::data
