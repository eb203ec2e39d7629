#include "data/store/store_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/block_guard.h"
#include "data/store/format.h"
#include "data/store/store_sections.h"

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

namespace {

namespace fs = std::filesystem;

class GraphWriterImpl final : public GraphWriter {
 public:
  GraphWriterImpl(fs::path directory, StoreFileWriter file, std::stop_token stop, bool packed_rows)
      : directory_(std::move(directory)), file_(std::move(file)), stop_(std::move(stop)), packed_rows_(packed_rows) {}

  static fs::path TemporaryPath(const fs::path& directory) {
    return directory / absl::StrCat(std::string(Graph::kFileName), ".part");
  }

  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width) override {
    if (kind == SectionKind::kSummary || kind == SectionKind::kBlockChecksums) {
      return absl::InternalError(SectionField(kind, "is written by Finish"));
    }
    if (kind != SectionKind::kNodeFeatures) return file_.Begin(kind, type, width);
    return file_.BeginPaged(kind, type, width, packed_rows_ ? RowGroups() : GroupsFor(width * ElementBytes(type)));
  }
  absl::Status Append(std::span<const std::byte> bytes) override { return file_.Append(bytes); }
  Categories& categories() override { return categories_ ? *categories_ : categories_.emplace(); }
  absl::Status Finish(GraphSummary& summary) override;

 private:
  const fs::path directory_;
  StoreFileWriter file_;
  std::stop_token stop_;
  const bool packed_rows_;
  std::optional<Categories> categories_;
};

absl::Status GraphWriterImpl::Finish(GraphSummary& summary) {
  if (categories_) {
    TakeCategories(*categories_, summary);
    const CategorySections sections = SectionsOf(*categories_);
    for (const auto& [kind, text] : {std::pair(SectionKind::kNumberedCategories, &sections.numbered),
                                     std::pair(SectionKind::kSeenCategories, &sections.seen)}) {
      if (!text->empty()) PF_RETURN_IF_ERROR(Write(kind, ElementType::kBytes, std::span<const char>(*text)));
    }
  }
  const std::string json = GraphSummaryToJson(summary);
  PF_RETURN_IF_ERROR(file_.Begin(SectionKind::kSummary, ElementType::kBytes, 1));
  PF_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(json))));
  PF_RETURN_IF_ERROR(file_.End());
  if (const absl::Status check = CheckGraphSections(summary, file_.entries()); !check.ok()) {
    return absl::InternalError(absl::StrCat("the import made no whole graph: ", check.message()));
  }
  const uint64_t adjacency_bytes = AdjacencyBytes(file_.entries());
  PF_ASSIGN_OR_RETURN(const uint64_t store_bytes, file_.Finish({.graphs = 1,
                                                                .nodes = static_cast<uint64_t>(summary.nodes),
                                                                .edges = static_cast<uint64_t>(summary.edges),
                                                                .targets = static_cast<uint32_t>(summary.num_targets),
                                                                .layout = StoreLayout::kGraph}));
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  PF_RETURN_IF_ERROR(Rename(TemporaryPath(directory_), directory_ / Graph::kFileName));
  summary.adjacency_bytes = adjacency_bytes;
  summary.store_bytes = store_bytes;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GraphWriter>> GraphWriter::Create(const fs::path& directory, std::stop_token stop,
                                                                 bool packed_rows) {
  PF_ASSIGN_OR_RETURN(StoreFileWriter file, StoreFileWriter::Create(GraphWriterImpl::TemporaryPath(directory), stop));
  return std::make_unique<GraphWriterImpl>(directory, std::move(file), std::move(stop), packed_rows);
}

std::filesystem::path GraphSetWriter::PartPath(SectionKind kind) const {
  return directory_ / absl::StrCat(AbslView(kSectionNames.Name(kind)), ".part");
}

absl::Status GraphSetWriter::Begin(SectionKind kind, ElementType type, uint32_t width) {
  parts_.erase(kind);
  PF_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(PartPath(kind)));
  parts_.emplace(kind, Part{type, width, std::move(file)});
  return absl::OkStatus();
}

absl::Status GraphSetWriter::Append(SectionKind kind, std::span<const std::byte> rows) {
  return parts_.at(kind).file.Append(rows.data(), rows.size());
}

absl::Status GraphSetWriter::AppendPart(SectionKind kind, StoreFileWriter& out) const {
  PF_ASSIGN_OR_RETURN(const auto part, MappedFile::Open(PartPath(kind)));
  PF_RETURN_IF_ERROR(out.Append({part->data(), part->size()}));
  return part->CheckIntact();
}

absl::Status GraphSetWriter::Finish(GraphSetSummary& summary) {
  if (categories_) {
    TakeCategories(*categories_, summary);
    const CategorySections sections = SectionsOf(*categories_);
    for (const auto& [kind, text] : {std::pair(SectionKind::kNumberedCategories, &sections.numbered),
                                     std::pair(SectionKind::kSeenCategories, &sections.seen)}) {
      if (!text->empty()) PF_RETURN_IF_ERROR(Write(kind, ElementType::kBytes, std::span<const char>(*text)));
    }
  }
  const std::string json = SummaryToJson(summary);
  PF_RETURN_IF_ERROR(Write(SectionKind::kSummary, ElementType::kBytes, std::span<const char>(json)));
  PF_ASSIGN_OR_RETURN(StoreFileWriter out, StoreFileWriter::Create(directory_ / GraphSet::kFileName, stop_));
  for (auto& [kind, part] : parts_) {
    PF_RETURN_IF_ERROR(part.file.Close());
    PF_RETURN_IF_ERROR(out.Begin(kind, part.type, part.width));
    PF_RETURN_IF_ERROR(AppendPart(kind, out));
    PF_RETURN_IF_ERROR(RemoveAll(PartPath(kind)));
  }
  PF_ASSIGN_OR_RETURN(summary.store_bytes, out.Finish({.graphs = static_cast<uint64_t>(summary.all.graphs),
                                                       .nodes = static_cast<uint64_t>(summary.all.nodes),
                                                       .edges = static_cast<uint64_t>(summary.all.edges),
                                                       .targets = static_cast<uint32_t>(summary.num_targets),
                                                       .layout = StoreLayout::kGraphSet}));
  return absl::OkStatus();
}

}  // namespace permafrost::data
