#include "data/store/graph_set_writer.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/category_sections.h"
#include "data/store/summary_json.h"

namespace permafrost::data {
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
