#include "train/node_features.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/store/featured_graph.h"

namespace permafrost::train {
namespace {

bool HasFeatures(const data::GraphSummary& summary) {
  return summary.node_features.type != data::DataType::kNone && summary.node_features.width > 0;
}

// nullopt: none are made.
std::optional<data::MadeFeatures> MadeFor(nn::NodeInputs inputs) {
  switch (inputs) {
    case nn::NodeInputs::kLearned:
      return data::MadeFeatures::kOwnColumn;
    case nn::NodeInputs::kDegree:
      return data::MadeFeatures::kDegree;
    case nn::NodeInputs::kConstant:
      return data::MadeFeatures::kConstant;
    default:
      return std::nullopt;
  }
}

}  // namespace

nn::NodeInputs NodeInputsOf(nn::NodeInputs inputs, const data::GraphSummary& summary) {
  if (inputs != nn::NodeInputs::kAuto) return inputs;
  return HasFeatures(summary) ? nn::NodeInputs::kFeatures : nn::NodeInputs::kLearned;
}

data::GraphSummary WithNodeInputs(nn::NodeInputs inputs, const data::GraphSummary& summary) {
  const auto made = MadeFor(inputs);
  return made ? data::SummaryWith(*made, summary) : summary;
}

absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(nn::NodeInputs inputs,
                                                                  std::shared_ptr<const data::Graph> graph) {
  const auto made = MadeFor(inputs);
  if (!made) return graph;
  return data::WithFeatures(std::move(graph), *made);
}

std::string TellNodeInputs(nn::NodeInputs inputs, const data::GraphSummary& summary) {
  const char* const why = HasFeatures(summary) ? "as asked for" : "the graph has no node features";
  const data::GraphSummary with = WithNodeInputs(NodeInputsOf(inputs, summary), summary);
  switch (NodeInputsOf(inputs, summary)) {
    case nn::NodeInputs::kLearned:
      return absl::StrCat("each of the ", summary.nodes, " nodes begins with weights of its own (", why, ")");
    case nn::NodeInputs::kDegree:
      return absl::StrCat("nodes begin with 1 in the column of their number of in-edges, 0..",
                          with.node_features.width - 1, " (", why, ")");
    case nn::NodeInputs::kConstant:
      return absl::StrCat("nodes begin with 1 (", why, ")");
    default:
      return "";
  }
}

}  // namespace permafrost::train
