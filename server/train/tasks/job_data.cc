#include "train/tasks/job_data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/edge_rows.h"
#include "data/store/other_features.h"
#include "nn/models/model.h"

namespace permafrost::train {
namespace {

template <class Summary>
bool HasFeatures(const Summary& summary) {
  return summary.node_features.type != data::DataType::kNone && summary.node_features.width > 0;
}

// Returns the features that the server makes for these inputs, or nullopt if it makes none.
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

// The most categories of a column, since each takes a row of an embedding. A column with more values is an id or a
// measure.
constexpr int64_t kMaxCategories = 1'000'000;

// Checks that each graph fits the budget by itself.
void CheckBudget(const spec::BatchingOptions& batching, const data::SizeStatistics& train, std::string_view prefix,
                 Violations& violations) {
  const auto check = [&](const char* field, int64_t bound, int64_t largest, const char* rows) {
    if (bound == 0 || largest <= bound) return;
    violations.Add(absl::StrCat(AbslView(prefix), "batching.", field),
                   absl::StrCat(bound, " is less than the ", largest, " ", rows,
                                " of the train split's largest graph; accepted: at least ", largest));
  };
  check("max_nodes", batching.max_nodes, train.max_nodes, "nodes");
  check("max_edges", batching.max_edges, train.max_edges, "edges");
}

// The most classes: a label must be below this number to be a class. Any other label is a measure.
constexpr double kMaxGraphClasses = 1'000'000;

int64_t ClassesOf(const spec::TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                  Violations& violations) {
  const auto add = [&](std::string_view field, std::string_view what) {
    violations.Add(absl::StrCat(AbslView(prefix), AbslView(field)), what);
    return int64_t{1};
  };
  if (summary.num_targets > 1) {
    return add("loss", absl::StrCat("cross-entropy takes one class a graph, and the dataset has ", summary.num_targets,
                                    " targets; use bce, mse or l1"));
  }
  if (!summary.labels_known) {
    return add("dataset",
               "was imported by an older version, which did not say whether its labels are classes; import it again");
  }
  if (!summary.integer_labels || summary.min_label < 0 || summary.max_label >= kMaxGraphClasses) {
    return add("loss", absl::StrCat("cross-entropy takes whole numbers 0..", kMaxGraphClasses - 1,
                                    " as labels, and the dataset's are ", summary.integer_labels ? "" : "fractions in ",
                                    summary.min_label, "..", summary.max_label));
  }
  // Every number up to the largest label is a class, even if no graph has it.
  const auto classes = static_cast<int64_t>(summary.max_label) + 1;
  if (!options.class_weights.empty() && std::ssize(options.class_weights) != classes) {
    return add("class_weights",
               absl::StrCat("has ", options.class_weights.size(), " weights; the dataset has ", classes, " classes"));
  }
  return classes;
}

// Checks the range of the labels if the store has it. Stores of older versions lack it, so CheckBinary reads their
// labels.
void CheckBinaryRange(const data::GraphSetSummary& summary, std::string_view prefix, Violations& violations) {
  const bool any = summary.num_missing_labels < summary.all.graphs * summary.num_targets;
  if (!summary.labels_known || !any) return;
  if (summary.integer_labels && summary.min_label >= 0 && summary.max_label <= 1) return;
  violations.Add(
      absl::StrCat(AbslView(prefix), "loss"),
      absl::StrCat("bce takes labels 0 and 1, and the dataset's are ", summary.integer_labels ? "" : "fractions in ",
                   summary.min_label, "..", summary.max_label));
}

absl::Status NoTrainLabels(size_t rows, std::string_view what, std::string_view prefix) {
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "dataset"),
                 absl::StrCat("none of the ", rows, " ", AbslView(what),
                              " of its train split has a label; at least one is needed"));
  return violations.ToStatus();
}

bool AnyLabel(std::span<const float> labels) {
  return std::ranges::any_of(labels, [](float label) { return !std::isnan(label); });
}

// Returns the number of the model's outputs per graph: the number of classes for cross-entropy, and otherwise of
// targets. Adds violations under `prefix` if labels do not suit the loss, or class weights do not suit the labels.
int64_t OutputsFor(const spec::TrainOptions& options, const data::GraphSetSummary& summary, std::string_view prefix,
                   Violations& violations) {
  if (summary.num_targets < 1) {
    violations.Add(absl::StrCat(AbslView(prefix), "dataset"), "has no labels; at least one target column is needed");
    return 1;
  }
  const spec::LabelKind labels = spec::TraitsOf(options.loss).labels;
  if (labels == spec::LabelKind::kClass) return ClassesOf(options, summary, prefix, violations);
  if (labels == spec::LabelKind::kBinary) CheckBinaryRange(summary, prefix, violations);
  return summary.num_targets;
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
  // The mean of equal rows equals each of the rows, and so do their maximum and their attention-weighted sum.
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

void AddEncoderInput(const spec::ModelOptions& model, std::string_view table, const data::FeatureSummary& features,
                     std::string_view field, Violations& violations, nn::EncoderInput& input) {
  if (features.type == data::DataType::kNone) return;
  if (!data::IsCategorical(features.type)) {
    input.float_columns = features.width;
    return;
  }
  for (int64_t c = 0; c < features.width; ++c) {
    // A table without rows has no maxima; the model then gets one category.
    const double low = features.min.empty() ? 0 : features.min[c], high = features.max.empty() ? 0 : features.max[c];
    if (low < 0 || high >= kMaxCategories) {
      // A program may accept any numbers; its trials use 0 and 1.
      if (spec::TraitsOf(model.architecture).is_program) {
        input.categories.push_back(2);
        continue;
      }
      violations.Add(field, absl::StrCat(AbslView(table), " column ", c, " has integers ", low, "..", high,
                                         "; an integer column is embedded by category, which takes 0..",
                                         kMaxCategories - 1, " (import it as floats to use its values)"));
      return;
    }
    input.categories.push_back(static_cast<int64_t>(high) + 1);
  }
}

absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const spec::TrainOptions& options,
                                                    const data::GraphSetSummary& stored, std::string_view prefix) {
  const data::GraphSetSummary summary = WithNodeInputs(options.model.node_inputs, stored);
  Violations violations;
  if (options.model.level != spec::ModelLevel::kGraph || !spec::TraitsOf(options.model.architecture).of_graphs) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.architecture"),
                   absl::StrCat(AbslView(spec::kArchitectureNames.Name(options.model.architecture)),
                                " was to predict for the nodes of one large graph, and the dataset is a set of ",
                                summary.all.graphs, " graphs; use ", ModelsOf(spec::ModelLevel::kGraph, " or ")));
    return violations.ToStatus();
  }
  nn::GraphModelOptions model{.model = options.model,
                              .node = {},
                              .edge = {},
                              .num_targets = summary.num_targets,
                              .max_graph_nodes = summary.all.max_nodes,
                              .position_columns = summary.position_columns};
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  model.num_targets = OutputsFor(options, summary, prefix, violations);
  const data::SizeStatistics& train = TrainSizes(options, summary, prefix, violations);
  if (train.graphs == 0) violations.Add(dataset_field, "its train split is empty; at least one graph is needed");
  if (options.model.node_inputs == spec::NodeInputs::kFeatures && summary.node_features.type == data::DataType::kNone) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.node_inputs"),
                   "features, and the dataset's nodes have none; accepted: degree, constant");
  }
  for (const auto& [table, features, input] : {std::tuple("node feature", &summary.node_features, &model.node),
                                               std::tuple("edge feature", &summary.edge_features, &model.edge)}) {
    AddEncoderInput(options.model, table, *features, dataset_field, violations, *input);
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  CheckBudget(options.batching, train, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

absl::Status CheckTrainLabels(const data::GraphSet& set, std::string_view prefix) {
  PF_ASSIGN_OR_RETURN(const auto graphs, set.split(data::Split::kTrain));
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto targets = static_cast<size_t>(set.summary().num_targets);
  const bool labelled = std::ranges::any_of(graphs, [&](uint32_t graph) {
    // CheckIntact below reports a file that has changed.
    if (graph >= labels.size() / std::max<size_t>(targets, 1)) return false;
    return AnyLabel(labels.subspan(graph * targets, targets));
  });
  PF_RETURN_IF_ERROR(set.CheckIntact());
  return labelled ? absl::OkStatus() : NoTrainLabels(graphs.size(), "graphs", prefix);
}

absl::Status CheckTrainLabels(const data::Graph& graph, std::string_view prefix) {
  const data::Column<data::NodeId>& nodes = graph.view().splits[static_cast<size_t>(data::Split::kTrain)];
  const data::Column<float>& labels = graph.view().labels;
  const auto targets = static_cast<uint64_t>(graph.view().num_targets);
  if (!nodes.Touch(0, nodes.size())) return nodes.status();
  bool labelled = false;
  for (uint64_t i = 0; i < nodes.size() && !labelled; ++i) {
    const uint64_t begin = uint64_t{nodes[i]} * targets;
    // The label is absent, or the file has changed, which CheckIntact reports below.
    if (begin + targets > labels.size()) continue;
    if (!labels.Touch(begin, begin + targets)) return labels.status();
    labelled = AnyLabel({labels.data() + begin, targets});
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return labelled ? absl::OkStatus() : NoTrainLabels(nodes.size(), "nodes", prefix);
}

absl::Status CheckBinary(const data::GraphSet& set, std::string_view prefix) {
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto other = std::ranges::find_if(labels, [](float l) { return !std::isnan(l) && l != 0 && l != 1; });
  if (other == labels.end()) return absl::OkStatus();
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "loss"),
                 absl::StrCat("bce takes labels 0 and 1, and graph ",
                              (other - labels.begin()) / set.summary().num_targets, " has ", *other));
  return violations.ToStatus();
}

std::string NoteOfNoValidation(std::string_view rows) {
  return absl::StrCat(
      "the job has no ", AbslView(rows),
      " to validate on: its validation loss and metrics are nan, and the last epoch counts as the best");
}

const data::SizeStatistics& TrainSizes(const spec::TrainOptions& options, const data::GraphSetSummary& summary,
                                       std::string_view prefix, Violations& violations) {
  const int64_t folds = options.cross_validation.folds;
  if (folds == 0) return summary.splits[static_cast<size_t>(data::Split::kTrain)];
  if (folds > summary.all.graphs) {
    violations.Add(absl::StrCat(AbslView(prefix), "cross_validation.folds"),
                   absl::StrCat(folds, " is more than the ", summary.all.graphs, " graphs of the dataset"));
  }
  return summary.all;
}

}  // namespace permafrost::train
