#include "train/tasks/node_features.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/other_features.h"

namespace permafrost::train {
namespace {

template <class Summary>
bool HasFeatures(const Summary& summary) {
  return summary.node_features.type != data::DataType::kNone && summary.node_features.width > 0;
}

// nullopt: none are made.
std::optional<data::MadeFeatures> MadeFor(spec::NodeInputs inputs, bool own_degree_columns = false) {
  switch (inputs) {
    case spec::NodeInputs::kLearned:
      return data::MadeFeatures::kOwnColumn;
    case spec::NodeInputs::kDegree:
      return own_degree_columns ? data::MadeFeatures::kOwnDegree : data::MadeFeatures::kDegree;
    case spec::NodeInputs::kConstant:
      return data::MadeFeatures::kConstant;
    default:
      return std::nullopt;
  }
}

}  // namespace

spec::NodeInputs NodeInputsOf(spec::NodeInputs inputs, const data::GraphSummary& summary) {
  if (inputs != spec::NodeInputs::kAuto) return inputs;
  return HasFeatures(summary) ? spec::NodeInputs::kFeatures : spec::NodeInputs::kLearned;
}

data::GraphSummary WithNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary) {
  const auto made = MadeFor(NodeInputsOf(model.node_inputs, summary), model.own_degree_columns);
  return made ? data::SummaryWith(*made, summary) : summary;
}

absl::StatusOr<std::shared_ptr<const data::Graph>> WithNodeInputs(const spec::ModelOptions& model,
                                                                  std::shared_ptr<const data::Graph> graph) {
  const auto made = MadeFor(NodeInputsOf(model.node_inputs, graph->summary()), model.own_degree_columns);
  if (!made) return graph;
  return data::WithFeatures(graph, *made);
}

data::GraphSetSummary WithNodeInputs(spec::NodeInputs inputs, const data::GraphSetSummary& summary) {
  const auto made = MadeFor(inputs);
  return made ? data::SummaryWith(*made, summary) : summary;
}

absl::StatusOr<std::shared_ptr<const data::GraphSet>> WithNodeInputs(spec::NodeInputs inputs,
                                                                     std::shared_ptr<const data::GraphSet> set) {
  const auto made = MadeFor(inputs);
  if (!made) return set;
  return data::WithFeatures(std::move(set), *made);
}

std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSetSummary& summary) {
  const char* const why = HasFeatures(summary) ? "as asked for" : "the set's nodes have no features";
  if (model.node_inputs == spec::NodeInputs::kDegree) {
    return absl::StrCat("nodes begin with weights of their number of in-edges, 0..", data::kDegreeCap, " (", why, ")");
  }
  if (model.node_inputs != spec::NodeInputs::kConstant) return "";
  // Means, largest values and attention of equal rows are that row.
  const bool sage = model.architecture == spec::Architecture::kSage;
  const bool attends =
      model.architecture == spec::Architecture::kGatv2 && summary.edge_features.type == data::DataType::kNone;
  const bool alike = (sage || attends) && model.norm == spec::Norm::kBatch;
  return absl::StrCat("nodes begin with 1 (", why, ")",
                      alike ? absl::StrCat("; warning: ", AbslView(spec::TraitsOf(model.architecture).name),
                                           " keeps equal rows nearly equal, which batch norm cannot scale; use "
                                           "node_inputs degree, or gin")
                            : "");
}

std::string TellNodeInputs(const spec::ModelOptions& model, const data::GraphSummary& summary) {
  const char* const why = HasFeatures(summary) ? "as asked for" : "the graph has no node features";
  const data::GraphSummary with = WithNodeInputs(model, summary);
  switch (NodeInputsOf(model.node_inputs, summary)) {
    case spec::NodeInputs::kLearned:
      return absl::StrCat("each of the ", summary.nodes, " nodes begins with weights of its own (", why, ")");
    case spec::NodeInputs::kDegree:
      return absl::StrCat("nodes begin with 1 in the column of their number of in-edges, 0..",
                          with.node_features.width - 1, " (", why, ")");
    case spec::NodeInputs::kConstant:
      return absl::StrCat("nodes begin with 1 (", why, ")");
    default:
      return "";
  }
}

}  // namespace permafrost::train
