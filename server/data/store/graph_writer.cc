#include "data/store/graph_writer.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "data/store/category_sections.h"
#include "data/store/graph_sections.h"
#include "data/store/store_error.h"
#include "data/store/store_file_writer.h"
#include "data/store/summary_json.h"

namespace permafrost::data {
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

}  // namespace permafrost::data
