#include "data/import/link_files.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/npy_array.h"

namespace permafrost::data {
namespace {

constexpr SectionKind kLinkSections[] = {SectionKind::kTrainLinks, SectionKind::kValidLinks, SectionKind::kTestLinks};
constexpr SectionKind kNegativeSections[] = {SectionKind::kTrainLinks, SectionKind::kValidNegatives,
                                             SectionKind::kTestNegatives};
// Negatives of a link: more are no sample, and a row of them is held in memory.
constexpr uint64_t kMostNegatives = uint64_t{1} << 20;
constexpr uint64_t kMostRows = std::numeric_limits<uint32_t>::max() - 1;

std::string Stem(std::string_view name) { return absl::StrCat("split/", AbslView(kLinkFolder), "/", AbslView(name)); }

struct NodesDue {
  uint64_t nodes = 0;
  const std::string& why;
  const Renumbering& renumbering;
};

// Writes all elements, which are nodes, as a section of `width`.
absl::Status WriteNodes(NpyArray& array, SectionKind kind, uint64_t width, const NodesDue& due, GraphWriter& writer) {
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  PF_RETURN_IF_ERROR(writer.Begin(kind, ElementType::kUint32, static_cast<uint32_t>(width)));
  std::vector<int64_t> values;
  std::vector<NodeId> rows;
  for (uint64_t left = array.header().elements(); left > 0; left -= values.size()) {
    const uint64_t begin = array.position();
    values.resize(std::min(left, kAtOnce));
    PF_RETURN_IF_ERROR(array.ReadIntegers(values));
    rows.clear();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || static_cast<uint64_t>(values[i]) >= due.nodes) {
        return array.ElementError(begin + i,
                                  absl::StrCat(values[i], " is outside 0..", due.nodes - 1, " (", due.why, ")"));
      }
      rows.push_back(due.renumbering.New(static_cast<NodeId>(values[i])));
    }
    PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(rows))));
  }
  return array.ExpectEnd();
}

absl::Status WriteNegatives(const SourceFile& file, SectionKind kind, const NodesDue& due, ImportMonitor& monitor,
                            GraphWriter& writer, GivenLinksSummary::Part& part) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  const auto links = static_cast<uint64_t>(part.links);
  const bool pairs = shape.size() == 2 && shape[1] == 2;
  if (shape.size() != 2 || shape[0] > kMostRows || shape[1] == 0 || shape[1] > kMostNegatives ||
      (!pairs && shape[0] != links)) {
    return array.ShapeError(absl::StrCat("[", links, ", K], K targets of each link's source, K in 1..", kMostNegatives,
                                         " but 2, or [pairs, 2]"));
  }
  if (shape[0] == 0) return array.ExpectEnd();
  (pairs ? part.pairs : part.negatives) = static_cast<int64_t>(shape[pairs ? 0 : 1]);
  return WriteNodes(array, kind, shape[1], due, writer);
}

}  // namespace

int64_t LinkFiles::bytes() const {
  int64_t sum = 0;
  for (const SourceFile& file : links) sum += file.bytes;
  for (const auto& file : negatives) sum += file ? file->bytes : 0;
  return sum;
}

void LinkFiles::AddTo(SourceContents& contents) const {
  for (const SourceFile& file : links) contents.Add(file);
  for (const auto& file : negatives) contents.Add(file);
}

absl::StatusOr<std::optional<LinkFiles>> FindLinkFiles(const std::filesystem::path& source) {
  std::array<std::optional<SourceFile>, 3> links;
  LinkFiles files;
  bool any = false;
  for (const auto& [split, name] : kSplitNames.rows) {
    const auto at = static_cast<size_t>(split);
    PF_ASSIGN_OR_RETURN(links[at], FindNpy(source, Stem(name)));
    any = any || links[at];
    if (split == Split::kTrain) continue;
    PF_ASSIGN_OR_RETURN(files.negatives[at], FindNpy(source, absl::StrCat(Stem(name), "_negatives")));
    any = any || files.negatives[at];
  }
  if (!any) return std::nullopt;
  for (const auto& [split, name] : kSplitNames.rows) {
    auto& file = links[static_cast<size_t>(split)];
    if (!file) {
      return absl::NotFoundError(
          absl::StrCat(Stem(name), ".npy: not found; all of train, valid and test are needed, or none"));
    }
    files.links[static_cast<size_t>(split)] = *std::move(file);
  }
  return files;
}

absl::Status WriteLinks(const LinkFiles& files, uint64_t nodes, const std::string& why, const Renumbering& renumbering,
                        ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
  const NodesDue due{nodes, why, renumbering};
  summary.links.given = true;
  for (size_t split = 0; split < files.links.size(); ++split) {
    PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(files.links[split], /*member=*/"", monitor));
    const auto& shape = array.header().shape;
    if (shape.size() != 2 || shape[1] != 2 || shape[0] > kMostRows) {
      return array.ShapeError(absl::StrCat("[links, 2], source and target, of at most ", kMostRows, " links"));
    }
    GivenLinksSummary::Part& part = summary.links.parts[split];
    part.links = static_cast<int64_t>(shape[0]);
    PF_RETURN_IF_ERROR(WriteNodes(array, kLinkSections[split], 2, due, writer));
    if (!files.negatives[split]) continue;
    PF_RETURN_IF_ERROR(WriteNegatives(*files.negatives[split], kNegativeSections[split], due, monitor, writer, part));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
