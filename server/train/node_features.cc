#include "train/node_features.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/featured_graph.h"
#include "data/store/featured_set.h"

namespace permafrost::train {
namespace {

template <class Summary>
bool HasFeatures(const Summary& summary) {
  return summary.node_features.type != data::DataType::kNone && summary.node_features.width > 0;
}

// nullopt: none are made.
std::optional<data::MadeFeatures> MadeFor(nn::NodeInputs inputs, bool own_degree_columns = false) {
  switch (inputs) {
    case nn::NodeInputs::kLearned:
      return data::MadeFeatures::kOwnColumn;
    case nn::NodeInputs::kDegree:
      return own_degree_columns ? data::MadeFeatures::kOwnDegree : data::MadeFeatures::kDegree;
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

data::GraphSummary WithNodeInputs(const nn::ModelOptions& model, const data::GraphSummary& summary) {
  const auto made = MadeFor(NodeInputsOf(model.node_inputs, summary), model.own_degree_columns);
  return made ? data::SummaryWith(*made, summary) : summary;
}

absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(const nn::ModelOptions& model,
                                                                  std::shared_ptr<const data::Graph> graph) {
  const auto made = MadeFor(NodeInputsOf(model.node_inputs, graph->summary()), model.own_degree_columns);
  if (!made) return graph;
  return data::WithFeatures(graph, *made);
}

data::GraphSetSummary WithNodeInputs(nn::NodeInputs inputs, const data::GraphSetSummary& summary) {
  const auto made = MadeFor(inputs);
  return made ? data::SummaryWith(*made, summary) : summary;
}

absl::StatusOr<std::shared_ptr<const data::GraphSet>> WithNodeInputs(nn::NodeInputs inputs,
                                                                     std::shared_ptr<const data::GraphSet> set) {
  const auto made = MadeFor(inputs);
  if (!made) return set;
  return data::WithFeatures(std::move(set), *made);
}

std::string TellNodeInputs(const nn::ModelOptions& model, const data::GraphSetSummary& summary) {
  const char* const why = HasFeatures(summary) ? "as asked for" : "the set's nodes have no features";
  if (model.node_inputs == nn::NodeInputs::kDegree) {
    return absl::StrCat("nodes begin with weights of their number of in-edges, 0..", data::kDegreeCap, " (", why, ")");
  }
  if (model.node_inputs != nn::NodeInputs::kConstant) return "";
  // Means, largest values and attention of equal rows are that row.
  const bool sage = model.architecture == nn::Architecture::kSage;
  const bool attends =
      model.architecture == nn::Architecture::kGatv2 && summary.edge_features.type == data::DataType::kNone;
  const bool alike = (sage || attends) && model.norm == nn::Norm::kBatch;
  return absl::StrCat("nodes begin with 1 (", why, ")",
                      alike ? absl::StrCat("; warning: ", AbslView(nn::TraitsOf(model.architecture).name),
                                           " keeps equal rows nearly equal, which batch norm cannot scale; use "
                                           "node_inputs degree, or gin")
                            : "");
}

std::string TellNodeInputs(const nn::ModelOptions& model, const data::GraphSummary& summary) {
  const char* const why = HasFeatures(summary) ? "as asked for" : "the graph has no node features";
  const data::GraphSummary with = WithNodeInputs(model, summary);
  switch (NodeInputsOf(model.node_inputs, summary)) {
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
