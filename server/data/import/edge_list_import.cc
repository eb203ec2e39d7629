#include "data/import/import.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "data/import/dense_features.h"
#include "data/import/edge_text.h"
#include "data/import/graph_edges.h"
#include "data/source/source_file.h"

namespace permafrost::data {

namespace {

namespace fs = std::filesystem;

// Empty where there is none.
std::string TellComments(int64_t count, char comment) {
  if (count == 0) return "";
  return absl::StrCat(count, count == 1 ? " line that begins with " : " lines that begin with ",
                      Quote(std::string_view(&comment, 1)), count == 1 ? " was" : " were",
                      " passed over as comments (--comment none reads them)");
}

absl::Status ReadEdgeList(const ImportOptions& options, const SourceFile& file, const fs::path& directory,
                          ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
  PF_RETURN_IF_ERROR(CheckConverted(options, summary.node_features));
  PF_ASSIGN_OR_RETURN(const EdgeDialect dialect, FindFileDialect(file, options.edge_list, monitor));
  const NodeIds ids = dialect.ids;
  EdgesPlan plan{.options = options,
                 .directory = directory,
                 .memory_bytes = ImportMemory(options, monitor.limits()),
                 .weights = dialect.Has(EdgeColumn::kWeight),
                 .timestamps = dialect.Has(EdgeColumn::kTimestamp)};
  Renumbering renumbering;
  NumberTable numbers;
  TextTable texts;
  EdgeTextInput input{.file = file, .dialect = dialect, .memory_bytes = plan.memory_bytes};
  // The names have half of the memory beside the sort.
  if (ids != NodeIds::kRows) input.memory_bytes = plan.memory_bytes /= 2;
  if (ids == NodeIds::kNumbers) {
    PF_RETURN_IF_ERROR(CollectNumbers(input, numbers, monitor));
    input.numbers = &numbers;
    plan.least_nodes = numbers.size();
  } else if (ids == NodeIds::kText) {
    input.texts = &texts;
  } else {
    plan.least_nodes = static_cast<uint64_t>(options.edge_list.num_nodes);
  }
  int64_t comments = 0;
  const absl::Status written = WithRecord(plan, [&]<class Record>() -> absl::Status {
    PF_ASSIGN_OR_RETURN(auto source, EdgeTextSource<Record>::Open(input, monitor));
    PF_RETURN_IF_ERROR(WriteEdges<Record>(source, plan, monitor, writer, summary, renumbering));
    comments = source.comments();
    return absl::OkStatus();
  });
  PF_RETURN_IF_ERROR(written);
  const std::string passed_over = TellComments(comments, dialect.comment);
  if (summary.nodes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file.name,
                                                   ": edges: there is none, expected at least one line of "
                                                   "source and target, or edge_list.num_nodes above 0",
                                                   passed_over.empty() ? "" : "; ", passed_over));
  }
  if (!dialect.told.empty()) monitor.Note(dialect.told);
  if (!passed_over.empty()) monitor.Note(absl::StrCat(file.name, ": ", passed_over));
  if (ids == NodeIds::kNumbers && !numbers.IsRows()) {
    summary.named = true;
    return numbers.Write(renumbering, writer);
  }
  if (ids == NodeIds::kText) {
    summary.named = true;
    return texts.Write(renumbering, writer);
  }
  return WriteSourceRows(renumbering, writer, summary);
}

class FoundEdgeList final : public FoundGraph {
 public:
  FoundEdgeList(const ImportOptions& options, SourceFile file) : options_(options), file_(std::move(file)) {}
  // Numbers are read twice.
  int64_t bytes() const override { return (options_.edge_list.node_ids == NodeIds::kNumbers ? 2 : 1) * file_.bytes; }

 private:
  absl::Status Read(const fs::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                    GraphSummary& summary) override {
    return ReadEdgeList(options_, file_, directory, monitor, writer, summary);
  }

  const ImportOptions& options_;
  const SourceFile file_;
};

absl::StatusOr<std::unique_ptr<FoundSource>> FindEdgeListSource(const ImportOptions& options, const ImportLimits&) {
  PF_ASSIGN_OR_RETURN(auto file, FindFileAt(options.source, options.source.filename().string(), Packing::kFound));
  if (!file) return absl::NotFoundError(absl::StrCat(options.source.string(), ": not found"));
  return std::make_unique<FoundEdgeList>(options, *std::move(file));
}

}  // namespace

Importer EdgeListImporter() {
  return {.format = ImportFormat::kEdgeList, .known_by = "", .detect = nullptr, .find = &FindEdgeListSource};
}

}  // namespace permafrost::data
