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

absl::StatusOr<StoreFileWriter> StoreFileWriter::Create(const std::filesystem::path& path, std::stop_token stop) {
  PF_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  PF_RETURN_IF_ERROR(file.Skip(kFirstSection));
  return StoreFileWriter(std::move(file), std::move(stop));
}

absl::Status StoreFileWriter::Align() {
  constexpr std::array<std::byte, kSectionAlignment> kZeros{};
  return file_.Append(kZeros.data(), AlignSection(file_.size()) - file_.size());
}

absl::Status StoreFileWriter::Begin(SectionKind kind, ElementType type, uint32_t width) {
  PF_RETURN_IF_ERROR(End());
  if (FindEntry(entries_, kind) != nullptr) return absl::InternalError(SectionField(kind, "is written twice"));
  PF_RETURN_IF_ERROR(Align());
  open_ = {.kind = kind,
           .type = type,
           .width = width,
           .reserved = 0,
           .rows = 0,
           .offset = file_.size(),
           .bytes = 0,
           .checksum = 0};
  return absl::OkStatus();
}

absl::Status StoreFileWriter::Append(std::span<const std::byte> bytes) {
  constexpr size_t kPieceBytes = 1 << 20;
  do {
    PF_RETURN_IF_ERROR(CheckStop(stop_));
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    hashes_.Update(piece);
    PF_RETURN_IF_ERROR(file_.Append(piece.data(), piece.size()));
    bytes = bytes.subspan(piece.size());
  } while (!bytes.empty());
  return absl::OkStatus();
}

absl::Status StoreFileWriter::End() {
  if (open_.offset == 0) return absl::OkStatus();
  SectionEntry entry = std::exchange(open_, {});
  entry.bytes = file_.size() - entry.offset;
  const uint64_t row_bytes = entry.width * ElementBytes(entry.type);
  if (row_bytes == 0 ? entry.bytes != 0 : entry.bytes % row_bytes != 0) {
    return absl::InternalError(SectionField(
        entry.kind, absl::StrCat("bytes: ", entry.bytes, " were written, which are no whole rows of ", row_bytes)));
  }
  entry.rows = row_bytes == 0 ? 0 : entry.bytes / row_bytes;
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
