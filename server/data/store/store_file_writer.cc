#include "data/store/store_file_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "data/store/block_guard.h"
#include "data/store/graph_sections.h"
#include "data/store/store_error.h"

namespace permafrost::data {
namespace {

constexpr std::array<std::byte, kPageBytes> kZeros{};

}  // namespace

absl::StatusOr<StoreFileWriter> StoreFileWriter::Create(const std::filesystem::path& path, std::stop_token stop) {
  PF_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  PF_RETURN_IF_ERROR(file.Skip(kFirstSection));
  return StoreFileWriter(std::move(file), std::move(stop));
}

absl::Status StoreFileWriter::Begin(SectionKind kind, ElementType type, uint32_t width) {
  return Open({.kind = kind, .type = type, .width = width, .block_bytes = BlockGuard::kBlockBytes});
}

absl::Status StoreFileWriter::BeginPaged(SectionKind kind, ElementType type, uint32_t width, const RowGroups& groups) {
  return Open({.kind = kind, .type = type, .width = width, .block_bytes = kPageBytes, .groups = groups});
}

absl::Status StoreFileWriter::Open(const SectionEntry& entry) {
  PF_RETURN_IF_ERROR(End());
  if (FindEntry(entries_, entry.kind) != nullptr) {
    return absl::InternalError(SectionField(entry.kind, "is written twice"));
  }
  const uint64_t begin = AlignSection(file_.size(), entry.block_bytes);
  PF_RETURN_IF_ERROR(file_.Append(kZeros.data(), begin - file_.size()));
  open_ = entry;
  open_.offset = begin;
  appended_ = 0;
  hashes_.set_block_bytes(entry.block_bytes);
  return absl::OkStatus();
}

absl::Status StoreFileWriter::AppendPiece(std::span<const std::byte> bytes) {
  hashes_.Update(bytes);
  return file_.Append(bytes.data(), bytes.size());
}

absl::Status StoreFileWriter::Append(std::span<const std::byte> bytes) {
  constexpr size_t kPieceBytes = 1 << 20;
  const uint64_t group_bytes = open_.groups.rows * RowBytes();
  do {
    PF_RETURN_IF_ERROR(CheckStop(stop_));
    size_t count = std::min(bytes.size(), kPieceBytes);
    if (group_bytes > 0 && !bytes.empty()) {
      const uint64_t in_group = appended_ % group_bytes;
      if (in_group == 0 && appended_ > 0) {
        for (uint64_t gap = open_.groups.bytes - group_bytes; gap > 0;) {
          const uint64_t zeros = std::min<uint64_t>(gap, kZeros.size());
          PF_RETURN_IF_ERROR(AppendPiece(std::span(kZeros).first(zeros)));
          gap -= zeros;
        }
      }
      count = std::min<size_t>(count, group_bytes - in_group);
    }
    PF_RETURN_IF_ERROR(AppendPiece(bytes.first(count)));
    appended_ += count;
    bytes = bytes.subspan(count);
  } while (!bytes.empty());
  return absl::OkStatus();
}

absl::Status StoreFileWriter::End() {
  if (open_.offset == 0) return absl::OkStatus();
  const uint64_t row_bytes = RowBytes();
  SectionEntry entry = std::exchange(open_, {});
  entry.bytes = file_.size() - entry.offset;
  if (row_bytes == 0 ? appended_ != 0 : appended_ % row_bytes != 0) {
    return absl::InternalError(SectionField(
        entry.kind, absl::StrCat("bytes: ", appended_, " were written, which are no whole rows of ", row_bytes)));
  }
  entry.rows = row_bytes == 0 ? 0 : appended_ / row_bytes;
  const std::vector<uint64_t> blocks = hashes_.Take();
  checksums_.insert(checksums_.end(), blocks.begin(), blocks.end());
  entries_.push_back(entry);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> StoreFileWriter::Finish(FileHeader header) {
  PF_RETURN_IF_ERROR(End());
  const std::vector<uint64_t> checksums = std::exchange(checksums_, {});
  const auto bytes = std::as_bytes(std::span(checksums));
  PF_RETURN_IF_ERROR(Begin(SectionKind::kBlockChecksums, ElementType::kUint64, 1));
  PF_RETURN_IF_ERROR(Append(bytes));
  PF_RETURN_IF_ERROR(End());
  entries_.back().checksum = Hash64(bytes.data(), bytes.size());

  header.magic = kStoreMagic;
  header.version = kStoreVersion;
  header.endianness = kStoreEndianness;
  header.file_bytes = file_.size();
  header.section_count = static_cast<uint32_t>(entries_.size());
  header.block_bytes = BlockGuard::kBlockBytes;
  const size_t table_bytes = entries_.size() * sizeof(SectionEntry);
  StreamHash hash;
  hash.Update(&header, offsetof(FileHeader, checksum));
  hash.Update(entries_.data(), table_bytes);
  header.checksum = hash.Digest();
  PF_RETURN_IF_ERROR(file_.PutAt(0, &header, sizeof header));
  PF_RETURN_IF_ERROR(file_.PutAt(sizeof header, entries_.data(), table_bytes));
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  PF_RETURN_IF_ERROR(file_.SyncAndClose());
  return header.file_bytes;
}

}  // namespace permafrost::data
