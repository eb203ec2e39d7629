#include "data/store_writer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/summary_json.h"

namespace permafrost::data {
namespace {

absl::Status PadTo(FileWriter& out, uint64_t offset) {
  constexpr std::array<std::byte, kSectionAlignment> kZeros{};
  return out.Append(kZeros.data(), offset - out.size());
}

}  // namespace

std::filesystem::path StoreWriter::PartPath(SectionKind kind) const {
  return directory_ / absl::StrCat(AbslView(kSectionNames.Name(kind)), ".part");
}

absl::Status StoreWriter::Begin(SectionKind kind, ElementType type, uint32_t width) {
  parts_.erase(kind);
  PF_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(PartPath(kind)));
  parts_.emplace(kind, Part{type, width, std::move(file), StreamHash()});
  return absl::OkStatus();
}

absl::Status StoreWriter::Append(SectionKind kind, std::span<const std::byte> rows) {
  Part& part = parts_.at(kind);
  part.hash.Update(rows.data(), rows.size());
  return part.file.Append(rows.data(), rows.size());
}

absl::Status StoreWriter::AppendPart(SectionKind kind, FileWriter& out) const {
  PF_ASSIGN_OR_RETURN(const auto part, MappedFile::Open(PartPath(kind)));
  constexpr uint64_t kPieceBytes = 1 << 20;
  for (uint64_t at = 0; at < part->size(); at += kPieceBytes) {
    PF_RETURN_IF_ERROR(monitor_.CheckStop());
    PF_RETURN_IF_ERROR(out.Append(part->data() + at, std::min(kPieceBytes, part->size() - at)));
  }
  return part->CheckIntact();
}

absl::Status StoreWriter::Finish(GraphSetSummary& summary) {
  const std::string json = SummaryToJson(summary);
  PF_RETURN_IF_ERROR(Write(SectionKind::kSummary, ElementType::kBytes, std::span<const char>(json)));

  std::vector<SectionEntry> table;
  uint64_t end = sizeof(FileHeader) + parts_.size() * sizeof(SectionEntry);
  for (auto& [kind, part] : parts_) {
    PF_RETURN_IF_ERROR(part.file.Close());
    const uint64_t row_bytes = part.width * ElementBytes(part.type);
    const uint64_t bytes = part.file.size();
    table.push_back({.kind = kind,
                     .type = part.type,
                     .width = part.width,
                     .reserved = 0,
                     .rows = row_bytes == 0 ? 0 : bytes / row_bytes,
                     .offset = AlignSection(end),
                     .bytes = bytes,
                     .checksum = part.hash.Digest()});
    end = table.back().offset + bytes;
  }
  FileHeader header{.magic = kStoreMagic,
                    .version = kStoreVersion,
                    .endianness = kStoreEndianness,
                    .file_bytes = end,
                    .graphs = static_cast<uint64_t>(summary.all.graphs),
                    .nodes = static_cast<uint64_t>(summary.all.nodes),
                    .edges = static_cast<uint64_t>(summary.all.edges),
                    .targets = static_cast<uint32_t>(summary.num_targets),
                    .section_count = static_cast<uint32_t>(table.size()),
                    .checksum = 0};
  StreamHash hash;
  hash.Update(&header, offsetof(FileHeader, checksum));
  hash.Update(table.data(), table.size() * sizeof(SectionEntry));
  header.checksum = hash.Digest();

  PF_ASSIGN_OR_RETURN(FileWriter out, FileWriter::Create(directory_ / GraphSet::kFileName));
  PF_RETURN_IF_ERROR(out.Append(&header, sizeof header));
  PF_RETURN_IF_ERROR(out.Append(table.data(), table.size() * sizeof(SectionEntry)));
  for (const SectionEntry& entry : table) {
    PF_RETURN_IF_ERROR(PadTo(out, entry.offset));
    PF_RETURN_IF_ERROR(AppendPart(entry.kind, out));
    PF_RETURN_IF_ERROR(RemoveAll(PartPath(entry.kind)));
  }
  PF_RETURN_IF_ERROR(out.SyncAndClose());
  summary.store_bytes = end;
  return absl::OkStatus();
}

}  // namespace permafrost::data
