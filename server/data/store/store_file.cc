#include "data/store/store_file.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/format.h"

namespace permafrost::data {
namespace {

uint64_t BlocksOf(const StoreFile::Section& section) {
  return (section.bytes.size() + section.block_bytes - 1) / section.block_bytes;
}

// Turns `mismatch` into the error for a file that this program cannot read although the file may be undamaged.
absl::Status NotReadHere(const absl::Status& mismatch) { return absl::FailedPreconditionError(mismatch.message()); }

}  // namespace

absl::StatusOr<std::unique_ptr<StoreFile>> StoreFile::Open(const std::filesystem::path& path, StoreLayout layout,
                                                           MappedFile::Access access) {
  PF_ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path, access));
  std::unique_ptr<StoreFile> file(new StoreFile(std::move(mapped)));
  absl::Status status = file->ReadHeader(layout);
  if (status.ok()) status = file->ReadTable();
  if (status.ok()) status = file->FindChecksums();
  // If the file changed during the reading, reports the change instead of the reading's own status.
  PF_RETURN_IF_ERROR(file->CheckIntact());
  if (!status.ok()) return Annotate(status, path.string());
  return file;
}

absl::Status StoreFile::ReadHeader(StoreLayout layout) {
  const std::byte* const data = file_->data();
  const uint64_t size = file_->size();
  if (size < kHeaderBytesV1) {
    return Mismatch("file length", size, absl::StrCat("at least a header's ", kHeaderBytesV1));
  }
  std::memcpy(&header_, data, offsetof(FileHeader, layout));
  if (header_.magic != kStoreMagic) return absl::DataLossError("magic: not a Permafrost graph store");
  if (header_.endianness == kOtherEndianness) {
    return NotReadHere(
        Mismatch("endianness", absl::StrFormat("%08x", header_.endianness),
                 absl::StrFormat("%08x: written by a machine of the other byte order", kStoreEndianness)));
  }
  if (header_.endianness != kStoreEndianness) {
    return Mismatch("endianness", absl::StrFormat("%08x", header_.endianness),
                    absl::StrFormat("%08x", kStoreEndianness));
  }
  if (first_version()) {
    header_.layout = StoreLayout::kGraphSet;
    std::memcpy(&header_.checksum, data + offsetof(FileHeader, layout), sizeof header_.checksum);
  } else if (header_.version == kStoreVersion || header_.version == 2) {
    if (size < kFirstSection) return Mismatch("file length", size, absl::StrCat("at least ", kFirstSection));
    std::memcpy(&header_, data, sizeof header_);
  } else if (header_.version > kStoreVersion) {
    return NotReadHere(
        Mismatch("version", header_.version,
                 absl::StrCat("1..", kStoreVersion, ": written by a newer version of this program, or damaged")));
  } else {
    return Mismatch("version", header_.version, absl::StrCat("1..", kStoreVersion));
  }
  if (header_.layout != layout) {
    const auto is = static_cast<uint32_t>(header_.layout), expected = static_cast<uint32_t>(layout);
    return Mismatch("layout", absl::StrCat(is, " (", AbslView(kStoreLayoutNames.Name(header_.layout)), ")"),
                    absl::StrCat(expected, " (", AbslView(kStoreLayoutNames.Name(layout)), ")"));
  }
  if (!first_version() && header_.block_bytes != BlockGuard::kBlockBytes) {
    return Mismatch("block_bytes", header_.block_bytes, BlockGuard::kBlockBytes);
  }
  if (header_.file_bytes != size) {
    return Mismatch("file length", size, absl::StrCat("the header's ", header_.file_bytes));
  }
  if (header_.section_count > kSectionKinds) {
    return Mismatch("section_count", header_.section_count, absl::StrCat("at most ", kSectionKinds));
  }
  if (size < table_end()) {
    return Mismatch("file length", size, absl::StrCat("room for ", header_.section_count, " section entries"));
  }
  StreamHash hash;
  hash.Update(data, header_bytes() - sizeof header_.checksum);
  hash.Update(data + header_bytes(), table_end() - header_bytes());
  if (hash.Digest() != header_.checksum) {
    return Mismatch("header checksum", HashHex(hash.Digest()), HashHex(header_.checksum));
  }
  return absl::OkStatus();
}

absl::Status StoreFile::ReadTable() {
  end_ = first_version() ? table_end() : kFirstSection;
  for (uint32_t i = 0; i < header_.section_count; ++i) {
    Section section;
    SectionEntry& entry = section.entry;
    entry.block_bytes = BlockGuard::kBlockBytes;
    std::memcpy(&entry, file_->data() + header_bytes() + i * entry_bytes(), entry_bytes());
    if (const auto kind = static_cast<uint32_t>(entry.kind); kind < 1 || kind > kSectionKinds) {
      return Mismatch(absl::StrCat("section entry ", i, ": kind"), kind, absl::StrCat("1..", kSectionKinds));
    }
    if (Find(entry.kind) != nullptr) return absl::DataLossError(SectionField(entry.kind, "stands twice in the table"));
    PF_RETURN_IF_ERROR(CheckEntry(entry, end_));
    section.bytes = {file_->data() + entry.offset, entry.bytes};
    section.block_bytes = first_version() ? BlockGuard::kWhole : entry.block_bytes;
    end_ = entry.offset + entry.bytes;
    sections_.push_back(section);
  }
  if (end_ != size()) return Mismatch("file length", size(), absl::StrCat("the sections' end, ", end_));
  return absl::OkStatus();
}

absl::Status StoreFile::CheckEntry(const SectionEntry& entry, uint64_t previous_end) const {
  const auto field = [&entry](std::string_view name) { return SectionField(entry.kind, name); };
  if (ElementBytes(entry.type) == 0) {
    return Mismatch(field("type"), static_cast<uint32_t>(entry.type),
                    absl::StrCat("1..", kElementTypeNames.rows.size()));
  }
  if (entry.reserved != 0) return Mismatch(field("reserved"), entry.reserved, 0);
  if (entry.reserved2 != 0) return Mismatch(field("reserved2"), entry.reserved2, 0);
  if (entry.block_bytes != kPageBytes && entry.block_bytes != BlockGuard::kBlockBytes) {
    return Mismatch(field("block_bytes"), entry.block_bytes, absl::StrCat(kPageBytes, " or ", BlockGuard::kBlockBytes));
  }
  if (const uint64_t begin = AlignSection(previous_end, entry.block_bytes); entry.offset != begin) {
    return Mismatch(field("offset"), entry.offset, begin);
  }
  if (entry.offset > size() || entry.bytes > size() - entry.offset) {
    return Mismatch(field("bytes"), entry.bytes, absl::StrCat("at most the rest of a file of ", size()));
  }
  // The check divides instead of multiplying, since a product of damaged counts may wrap around.
  const uint64_t row_bytes = entry.width * ElementBytes(entry.type);
  if (entry.groups != RowGroups()) return CheckGroups(entry, row_bytes);
  if (row_bytes == 0 ? entry.bytes != 0 : (entry.bytes % row_bytes != 0 || entry.bytes / row_bytes != entry.rows)) {
    return Mismatch(field("bytes"), entry.bytes, absl::StrCat(entry.rows, " rows of ", row_bytes));
  }
  return absl::OkStatus();
}

absl::Status StoreFile::CheckGroups(const SectionEntry& entry, uint64_t row_bytes) {
  const RowGroups& groups = entry.groups;
  const auto field = [&entry](std::string_view name) { return SectionField(entry.kind, name); };
  if (entry.block_bytes != kPageBytes) {
    return Mismatch(field("block_bytes"), entry.block_bytes, absl::StrCat(kPageBytes, ", beside groups of rows"));
  }
  const bool fits = groups.rows > 0 && groups.bytes > 0 && groups.bytes % kPageBytes == 0 && row_bytes > 0 &&
                    row_bytes <= groups.bytes / groups.rows;
  if (!fits) {
    return Mismatch(field("groups"), absl::StrCat(groups.rows, " rows of ", row_bytes, " in ", groups.bytes, " bytes"),
                    "whole pages that hold them");
  }
  // The section ends with its last row. The number of groups is compared first, since a product of damaged counts may
  // wrap around.
  const bool many = entry.rows > 0 && (entry.rows - 1) / groups.rows > entry.bytes / groups.bytes;
  if (many || entry.bytes != groups.TotalBytes(entry.rows, row_bytes)) {
    return Mismatch(field("bytes"), entry.bytes,
                    absl::StrCat(entry.rows, " rows of ", row_bytes, ", ", groups.rows, " of them in ", groups.bytes));
  }
  return absl::OkStatus();
}

absl::Status StoreFile::FindChecksums() {
  if (first_version()) {
    for (Section& section : sections_) section.checksums = {&section.entry.checksum, 1};
    return absl::OkStatus();
  }
  if (sections_.empty() || sections_.back().entry.kind != SectionKind::kBlockChecksums) {
    return absl::DataLossError(SectionField(SectionKind::kBlockChecksums, "is not the last section"));
  }
  const Section table = sections_.back();
  sections_.pop_back();
  if (table.entry.type != ElementType::kUint64 || table.entry.width != 1) {
    return Mismatch(SectionField(SectionKind::kBlockChecksums, "type"),
                    AbslView(kElementTypeNames.Name(table.entry.type)), "uint64, of width 1");
  }
  uint64_t blocks = 0;
  for (const Section& section : sections_) {
    if (section.entry.checksum != 0) return Mismatch(SectionField(section.entry.kind, "checksum"), "set", 0);
    blocks += BlocksOf(section);
  }
  if (table.entry.rows != blocks) {
    return Mismatch(SectionField(SectionKind::kBlockChecksums, "rows"), table.entry.rows, blocks);
  }
  AdviseWillNeed(table.bytes);
  if (const uint64_t is = Hash64(table.bytes.data(), table.bytes.size()); is != table.entry.checksum) {
    return Mismatch(
        SectionField(SectionKind::kBlockChecksums, absl::StrCat("bytes 0..", table.bytes.size(), ": checksum")),
        HashHex(is), HashHex(table.entry.checksum));
  }
  std::span<const uint64_t> checksums = table.As<uint64_t>();
  for (Section& section : sections_) {
    const uint64_t count = BlocksOf(section);
    section.checksums = checksums.first(count);
    checksums = checksums.subspan(count);
  }
  return absl::OkStatus();
}

const StoreFile::Section* StoreFile::Find(SectionKind kind) const {
  const auto it = std::ranges::find_if(sections_, [kind](const Section& s) { return s.entry.kind == kind; });
  return it == sections_.end() ? nullptr : &*it;
}

uint64_t StoreFile::ContentChecksum() const {
  return ChecksumOfThose(
      [](SectionKind kind) { return kind != SectionKind::kSummary && kind != SectionKind::kSeenCategories; });
}

uint64_t StoreFile::NamesChecksum() const {
  return ChecksumOfThose([](SectionKind kind) {
    return kind == SectionKind::kNodeNumbers || kind == SectionKind::kNodeNameOffsets ||
           kind == SectionKind::kNodeNameText;
  });
}

uint64_t StoreFile::ChecksumOfThose(bool (*wanted)(SectionKind)) const {
  StreamHash hash;
  for (const Section& section : sections_) {
    if (!wanted(section.entry.kind)) continue;
    const uint64_t is[] = {static_cast<uint64_t>(section.entry.kind), static_cast<uint64_t>(section.entry.type),
                           section.entry.width, section.entry.rows};
    hash.Update(is, sizeof is);
    hash.Update(section.checksums.data(), section.checksums.size_bytes());
  }
  return hash.Digest();
}

absl::StatusOr<std::string_view> StoreFile::ReadSummary() const {
  const Section* section = Find(SectionKind::kSummary);
  if (section == nullptr) {
    return absl::DataLossError(absl::StrCat(path().string(), ": ", SectionField(SectionKind::kSummary, "is missing")));
  }
  const auto guard = Guard(*section, nullptr);
  if (!guard->Touch(0, section->bytes.size())) {
    PF_RETURN_IF_ERROR(CheckIntact());
    return guard->status();
  }
  const auto text = section->As<char>();
  return std::string_view(text.data(), text.size());
}

std::unique_ptr<BlockGuard> StoreFile::Guard(const Section& section, BlockGuard::ContentCheck check) const {
  return std::make_unique<BlockGuard>(
      absl::StrCat(path().string(), ": section ", AbslView(kSectionNames.Name(section.entry.kind))), section.bytes,
      section.checksums, section.block_bytes, std::move(check));
}

absl::Status StoreFile::CheckGaps() const {
  const auto check = [this](uint64_t begin, uint64_t end, std::string_view where) {
    for (uint64_t at = begin; at < end; ++at) {
      if (file_->data()[at] == std::byte{0}) continue;
      return Annotate(Mismatch(absl::StrCat(AbslView(where), ": byte ", at, " of the file"), "not zero", 0),
                      path().string());
    }
    return absl::OkStatus();
  };
  uint64_t end = table_end();
  for (const Section& section : sections_) {
    PF_RETURN_IF_ERROR(check(end, section.entry.offset, SectionField(section.entry.kind, "gap before it")));
    end = section.entry.offset + section.entry.bytes;
  }
  if (first_version()) return absl::OkStatus();
  return check(end, AlignSection(end, BlockGuard::kBlockBytes),
               SectionField(SectionKind::kBlockChecksums, "gap before it"));
}

absl::Status StoreFile::CheckIntact() const {
  const absl::Status status = file_->CheckIntact();
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(status.message(), "; import it again"));
}

absl::Status StoreFile::VerifyAll(const CheckOf& check_of, const Progress& progress) const {
  // The kernel is asked to load this many bytes ahead of the bytes that are hashed.
  constexpr uint64_t kPieceBytes = 4 << 20;
  uint64_t total = 0, done = 0;
  for (const Section& section : sections_) total += section.bytes.size();
  for (const Section& section : sections_) {
    const auto guard = Guard(section, check_of(section));
    const uint64_t bytes = section.bytes.size();
    AdviseWillNeed(section.bytes.first(std::min(bytes, kPieceBytes)));
    for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
      const uint64_t end = std::min(bytes, at + kPieceBytes);
      AdviseWillNeed(section.bytes.subspan(end, std::min(bytes - end, kPieceBytes)));
      if (!guard->Touch(at, end)) {
        PF_RETURN_IF_ERROR(CheckIntact());
        return guard->status();
      }
      done += end - at;
      if (progress && !progress(done, total)) return absl::CancelledError("the verification was cancelled");
    }
  }
  absl::Status gaps = CheckGaps();
  PF_RETURN_IF_ERROR(CheckIntact());
  return gaps;
}

}  // namespace permafrost::data
