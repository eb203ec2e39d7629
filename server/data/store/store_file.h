// An open store file of either layout. Opening it checks the header, the section table and the block checksums, finds
// the sections, and reads nothing else.
// Threads: all methods are safe anywhere. Owns the mapping; sections live as long as the StoreFile.
// Invariant: every section lies within the file and is as long as its table entry says.
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
    // The arguments of the BlockGuard for this section.
    std::span<const uint64_t> checksums;
    uint64_t block_bytes = 0;

    template <class T>
    std::span<const T> As() const {
      return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
  };
  using CheckOf = std::function<BlockGuard::ContentCheck(const Section&)>;
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  // Opens a file of version 1, 2 or 3, and reads its header, table and block checksums. Its layout must be `layout`;
  // version 1 has graph sets only.
  // Errors: those of MappedFile; DataLoss for an inconsistent file; FailedPrecondition for a later version or the
  // other byte order. DataLoss and FailedPrecondition name the file and the field.
  static absl::StatusOr<std::unique_ptr<StoreFile>> Open(const std::filesystem::path& path, StoreLayout layout,
                                                         MappedFile::Access access);
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;

  const FileHeader& header() const { return header_; }
  // Returns the sections in the order of the file, without block_checksums.
  const std::vector<Section>& sections() const { return sections_; }
  // Returns null if the file has no such section.
  const Section* Find(SectionKind kind) const;
  uint64_t size() const { return file_->size(); }
  const std::filesystem::path& path() const { return file_->path(); }
  // Returns a hash over the kinds, sizes and checksums of the sections. The hash leaves out the sections `summary`
  // and `seen_categories`: they only repeat what other sections hold, and a later version may write them differently.
  uint64_t ContentChecksum() const;
  // Returns a hash like ContentChecksum, but only over the sections that name a large graph's nodes.
  uint64_t NamesChecksum() const;

  // Returns the text of the section `summary` after verifying it. Errors name the file.
  absl::StatusOr<std::string_view> ReadSummary() const;
  std::unique_ptr<BlockGuard> Guard(const Section& section, BlockGuard::ContentCheck check) const;
  // Returns DataLoss, naming the file, if bytes between sections are not zero. No checksum covers these bytes.
  absl::Status CheckGaps() const;
  // Same as MappedFile::CheckIntact. A DataLoss also says what the user can do about it.
  absl::Status CheckIntact() const;
  // Verifies the gaps and all sections, even sections that were verified before. Calls `progress` now and then with
  // the bytes done and the bytes in total. If `progress` returns false, VerifyAll returns Cancelled.
  absl::Status VerifyAll(const CheckOf& check_of, const Progress& progress) const;

 private:
  explicit StoreFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  // Steps of Open. Their errors do not name the file.
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
  uint64_t end_ = 0;  // the end of the last section read
};

}  // namespace permafrost::data
