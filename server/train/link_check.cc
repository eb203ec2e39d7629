#include "train/link_check.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sampling/link_sampling.h"
#include "train/graph_labels.h"
#include "train/links.h"

namespace permafrost::train {
namespace {

// So many edges are divided at once, and whoever submits does not notice.
constexpr int64_t kFewEdges = 1'000'000;

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckLinks(const spec::TrainOptions& options,
                                                    const std::shared_ptr<const data::Graph>& graph,
                                                    std::string_view prefix, const std::function<bool()>& keep_going) {
  bool divides = graph->summary().edges <= kFewEdges;
  if (!divides) {
    PF_ASSIGN_OR_RETURN(const std::vector<data::NodeId> hubs, data::NodesLinkedToAll(graph->view(), keep_going));
    divides = !hubs.empty();
  }
  if (!divides) {
    const bool validates = options.links.given ? graph->summary().links.of(data::Split::kValid).links > 0
                                               : options.links.split.valid_part > 0;
    return validates ? std::vector<std::string>() : std::vector{NoteOfNoValidation("links")};
  }
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Links> links, Links::Create(options, graph, keep_going));
  Violations violations;
  for (const auto& [split, what] :
       {std::pair(data::Split::kValid, "validate on"), std::pair(data::Split::kTest, "test on")}) {
    const int64_t size = links->size(split);
    if (size == 0 || links->unranked(split) < size) continue;
    violations.Add(absl::StrCat(AbslView(prefix), "link_prediction"),
                   absl::StrCat("none of the ", size, " links to ", what,
                                " can be ranked: each begins at a node that has an edge to every other node, which "
                                "leaves no pair without an edge beside it; accepted: links of other nodes, negatives "
                                "that the dataset gives, or parts of 0"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  std::vector<std::string> notes = links->notes();
  if (links->size(data::Split::kValid) == 0) notes.push_back(NoteOfNoValidation("links"));
  return notes;
}

}  // namespace permafrost::train
