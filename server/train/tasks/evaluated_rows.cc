#include "train/tasks/evaluated_rows.h"

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/edge_rows.h"
#include "data/store/other_features.h"
#include "data/store/other_splits.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

using data::EdgeDirections;
using data::FeatureSummary;
using data::GraphSetSummary;
using data::GraphSummary;

class KnownRanges {
 public:
  explicit KnownRanges(std::string_view field) : field_(field) {}

  template <class... Text>
  void Add(const Text&... text) {
    violations_.Add(field_, absl::StrCat(text...));
  }
  absl::Status ToStatus() const { return violations_.ToStatus(); }

  void CheckEqual(std::string_view what, int64_t own, int64_t trained) {
    if (own == trained) return;
    Add("it has ", own, " ", AbslView(what), ", and the weights were trained on ", trained);
  }
  // Checks integer columns. Their values are categories, and each category has a row of weights.
  void CheckCategories(std::string_view table, const FeatureSummary& own, const FeatureSummary& trained) {
    const bool of_categories = data::IsCategorical(own.type);
    if (of_categories != data::IsCategorical(trained.type)) {
      Add("its ", AbslView(table), " features are ", AbslView(data::kDataTypeNames.Name(own.type)),
          ", and the weights were trained on ", AbslView(data::kDataTypeNames.Name(trained.type)));
      return;
    }
    if (!of_categories || own.max.empty() || own.width != trained.width) return;
    for (size_t c = 0; c < own.max.size(); ++c) {
      const double most = trained.max.empty() ? 0 : trained.max[c];
      if (own.min[c] >= 0 && own.max[c] <= most) continue;
      Add("its ", AbslView(table), " column ", c, " has integers ", own.min[c], "..", own.max[c],
          ", and the weights were trained on 0..", most);
      return;
    }
  }
  // Checks that classes are whole numbers from 0 on, and that the weights know all of them. `Summary` is of either
  // kind.
  template <class Summary>
  void CheckClasses(spec::Loss loss, int64_t present, const Summary& own, const Summary& trained) {
    if (!spec::HasClasses(loss) || present == 0) return;
    if (own.integer_labels && own.min_label >= 0 && own.max_label <= trained.max_label) return;
    Add("its labels are ", own.integer_labels ? "" : "fractions in ", own.min_label, "..", own.max_label,
        ", and the weights were trained on classes 0..", trained.max_label);
  }

 private:
  const std::string field_;
  Violations violations_;
};

// Returns the number of predicted rows: graphs of a set, or nodes of one large graph.
int64_t NumRows(const GraphSetSummary& set) { return set.all.graphs; }
int64_t NumRows(const GraphSummary& graph) { return graph.nodes; }

template <class Summary>
int64_t PresentLabels(const Summary& summary) {
  return NumRows(summary) * summary.num_targets - summary.num_missing_labels;
}

// If any row has a label, checks the targets and classes.
template <class Summary>
void CheckTargets(const Summary& trained, const Summary& own, spec::Loss loss, KnownRanges& check) {
  const int64_t present = PresentLabels(own);
  if (present > 0) check.CheckEqual("targets", own.num_targets, trained.num_targets);
  check.CheckClasses(loss, present, own, trained);
}

void CheckClassValues(const GraphSetSummary& trained, const GraphSetSummary& own, spec::Loss loss, KnownRanges& check) {
  if (PresentLabels(own) == 0 || own.class_values == trained.class_values) return;
  if (!spec::HasClasses(loss)) {
    const auto text = [](const std::vector<int64_t>& values) {
      return values.empty() ? "numbers of their own"
                            : absl::StrCat("0, 1, ..., which stand for the classes ", absl::StrJoin(values, ", "));
    };
    check.Add("its labels are ", text(own.class_values), ", and those that the weights were trained on are ",
              text(trained.class_values));
    return;
  }
  const auto text = [](const std::vector<int64_t>& values) {
    return values.empty() ? "themselves" : absl::StrJoin(values, ", ");
  };
  check.Add("its classes 0, 1, ... stand for ", text(own.class_values), ", and those of the weights for ",
            text(trained.class_values));
}

// Returns the directions of the edges. Summaries of older versions say only whether inverse edges were added.
template <class Summary>
EdgeDirections DirectionsOf(const Summary& summary) {
  if (summary.directions == EdgeDirections::kUnknown && summary.inverse_edges_added) return EdgeDirections::kAdded;
  return summary.directions;
}

// Checks that edges have the directions of the training. If the weights saw each edge with its inverse, refuses edges
// in one direction. If they saw edges in one direction, refuses added inverse edges.
template <class Summary>
void CheckDirections(const Summary& trained, const Summary& own, KnownRanges& check) {
  const EdgeDirections of_weights = DirectionsOf(trained), of_own = DirectionsOf(own);
  const bool undirected = of_weights == EdgeDirections::kAdded || of_weights == EdgeDirections::kListed;
  if (undirected && of_own == EdgeDirections::kKept) {
    check.Add(
        "its edges stay as they were listed (inverse_edges keep), some in one direction alone, and the weights "
        "were trained on edges with their inverses, which ",
        of_weights == EdgeDirections::kAdded ? "the import added" : "the source lists",
        "; accepted: the dataset imported with inverse_edges add");
  }
  if (of_weights == EdgeDirections::kKept && of_own == EdgeDirections::kAdded) {
    check.Add(
        "its import added inverse edges, and the weights were trained on edges as they were listed "
        "(inverse_edges keep), some in one direction alone; accepted: the dataset imported with inverse_edges "
        "keep");
  }
}

void Check(const GraphSetSummary& trained, const GraphSetSummary& own, const spec::TrainOptions& options,
           KnownRanges& check) {
  const spec::NodeInputs inputs = options.model.node_inputs;
  // Degrees and constants do not depend on the dataset's features.
  if (inputs != spec::NodeInputs::kDegree && inputs != spec::NodeInputs::kConstant) {
    check.CheckEqual("node feature columns", own.node_features.width, trained.node_features.width);
    // A program itself determines which numbers it accepts.
    if (!spec::IsProgram(options)) check.CheckCategories("node", own.node_features, trained.node_features);
  }
  check.CheckEqual("edge feature columns", own.edge_features.width, trained.edge_features.width);
  // Positions need no check: if the set has none, a program that reads them cannot be bound.
  if (!spec::IsProgram(options)) check.CheckCategories("edge", own.edge_features, trained.edge_features);
  CheckDirections(trained, own, check);
  CheckTargets(trained, own, options.loss, check);
  CheckClassValues(trained, own, options.loss, check);
}

void CheckNodeInputs(const GraphSummary& trained, const GraphSummary& own, const spec::ModelOptions& model,
                     KnownRanges& check) {
  switch (NodeInputsOf(model.node_inputs, trained)) {
    case spec::NodeInputs::kLearned:
      if (own.nodes == trained.nodes) break;
      check.Add("it has ", own.nodes, " nodes, and each of the ", trained.nodes,
                " nodes that the weights were trained on begins with weights of its own; accepted: a dataset of the "
                "same nodes");
      break;
    case spec::NodeInputs::kDegree: {
      const int64_t columns = WithNodeInputs(model, own).node_features.width,
                    known = WithNodeInputs(model, trained).node_features.width;
      if (columns == known) break;
      check.Add("its nodes have up to ", own.max_degree, " in-edges, which are ", columns,
                " columns, and the weights are of ", known,
                " columns: the job is of an older version, which made as many as its own graph asked for; accepted: "
                "weights of a new job, whose columns are ",
                data::kDegreeCap + 1, " on every graph");
      break;
    }
    case spec::NodeInputs::kConstant:
      break;
    default:
      check.CheckEqual("node feature columns", own.node_features.width, trained.node_features.width);
  }
}

bool ReadsWeights(const spec::ModelOptions& model, const GraphSummary& trained) {
  return spec::TraitsOf(model.architecture).weighs_messages ||
         EdgeInputsOf(model, trained) == data::EdgeInputs::kWeights;
}

void Check(const GraphSummary& trained, const GraphSummary& own, const spec::TrainOptions& options,
           KnownRanges& check) {
  const spec::ModelOptions& model = options.model;
  CheckNodeInputs(trained, own, model, check);
  CheckDirections(trained, own, check);
  // The prediction of links needs no labels of nodes.
  if (!options.links.enabled) CheckTargets(trained, own, options.loss, check);
  // A program itself determines what it reads of edges.
  if (spec::IsProgram(options)) return;
  if (EdgeInputsOf(model, trained) == data::EdgeInputs::kFeatures) {
    check.CheckEqual("edge feature columns", own.edge_features.width, trained.edge_features.width);
    check.CheckCategories("edge", own.edge_features, trained.edge_features);
  }
  // A graph without an edge has no weights to compare.
  if (own.edges > 0 && ReadsWeights(model, trained) && own.weighted != trained.weighted) {
    check.Add("its edges have ", own.weighted ? "weights" : "no weights",
              ", and those that the weights were trained on ", trained.weighted ? "have" : "have none");
  }
}

// Takes the number of targets from `trained`. If the dataset has another number, none of its rows has a label
// (CheckKnows), so all labels are made missing.
template <class Summary>
void TakeTargetsOf(const Summary& trained, Summary& own) {
  if (own.num_targets != trained.num_targets) {
    own.num_targets = trained.num_targets;
    own.num_missing_labels = NumRows(own) * trained.num_targets;
  }
  own.integer_labels = trained.integer_labels;
  own.min_label = trained.min_label;
  own.max_label = trained.max_label;
}

// Takes from `trained` what determines the shape of a model.
GraphSetSummary WithRangesOf(const GraphSetSummary& trained, GraphSetSummary own) {
  own.node_features = trained.node_features;
  own.edge_features = trained.edge_features;
  own.labels_known = trained.labels_known;
  own.class_values = trained.class_values;
  TakeTargetsOf(trained, own);
  return own;
}

GraphSummary WithRangesOf(const GraphSummary& trained, GraphSummary own) {
  // If the widths differ, the model reads no edge features.
  if (own.edge_features.width == trained.edge_features.width) own.edge_features = trained.edge_features;
  TakeTargetsOf(trained, own);
  return own;
}

data::Split SplitOfRows(EvaluatedRows rows) {
  return rows == EvaluatedRows::kTrain   ? data::Split::kTrain
         : rows == EvaluatedRows::kValid ? data::Split::kValid
                                         : data::Split::kTest;
}

absl::StatusOr<data::OtherSplits> SplitsWith(EvaluatedRows rows, int64_t all, std::span<const uint32_t> of_split) {
  std::vector<uint32_t> chosen(of_split.begin(), of_split.end());
  if (rows == EvaluatedRows::kAll) {
    chosen.resize(static_cast<size_t>(all));
    std::iota(chosen.begin(), chosen.end(), 0U);
  }
  const std::string_view name = kEvaluatedRowsNames.Name(rows);
  if (chosen.empty()) {
    Violations violations;
    violations.Add("rows", absl::StrCat(AbslView(name), ": the dataset has no such rows"));
    return violations.ToStatus();
  }
  data::OtherSplits splits{.rows = {}, .name = absl::StrCat(AbslView(name), " rows, evaluated")};
  splits.rows[static_cast<size_t>(data::Split::kTrain)] = chosen;
  splits.rows[static_cast<size_t>(EvaluatedAs(rows))] = std::move(chosen);
  return splits;
}

absl::StatusOr<data::OpenedDataset> OnlyRowsOf(std::shared_ptr<const data::GraphSet> set, EvaluatedRows rows,
                                               const spec::CrossValidation& folds, const GraphSetSummary& trained) {
  PF_ASSIGN_OR_RETURN(set, data::WithFold(std::move(set), folds));
  PF_ASSIGN_OR_RETURN(const auto of_split, set->split(SplitOfRows(rows)));
  PF_ASSIGN_OR_RETURN(data::OtherSplits splits, SplitsWith(rows, set->summary().all.graphs, of_split));
  const uint64_t identity[] = {set->checksum(), static_cast<uint64_t>(rows)};
  PF_ASSIGN_OR_RETURN(std::shared_ptr<const data::GraphSet> chosen,
                      data::WithSplits(set, std::move(splits), WithRangesOf(trained, set->summary()),
                                       Hash64(identity, sizeof(identity))));
  return data::OpenedDataset(std::move(chosen));
}

absl::StatusOr<data::OpenedDataset> OnlyRowsOf(std::shared_ptr<const data::Graph> graph, EvaluatedRows rows,
                                               const GraphSummary& trained) {
  const data::Column<data::NodeId>& split = graph->view().splits[static_cast<size_t>(SplitOfRows(rows))];
  if (!split.Touch(0, split.size())) return split.status();
  const std::vector<uint32_t> of_split(split.data(), split.data() + split.size());
  PF_RETURN_IF_ERROR(graph->CheckIntact());
  PF_ASSIGN_OR_RETURN(data::OtherSplits splits, SplitsWith(rows, graph->summary().nodes, of_split));
  GraphSummary summary = WithRangesOf(trained, graph->summary());
  return data::OpenedDataset(data::WithSplits(std::move(graph), std::move(splits), std::move(summary)));
}

}  // namespace

data::Split EvaluatedAs(EvaluatedRows rows) {
  return rows == EvaluatedRows::kValid ? data::Split::kValid : data::Split::kTest;
}

absl::Status CheckKnows(const data::ImportedSummary& trained, const data::ImportedSummary& own,
                        const spec::TrainOptions& options, std::string_view field) {
  KnownRanges check(field);
  if (trained.index() != own.index()) {
    const bool set = std::holds_alternative<GraphSetSummary>(own);
    check.Add("it is ", set ? "a set of graphs" : "one large graph", ", and the weights were trained on ",
              set ? "one large graph" : "a set of graphs");
  } else if (const auto* set = std::get_if<GraphSetSummary>(&own)) {
    Check(std::get<GraphSetSummary>(trained), *set, options, check);
  } else {
    Check(std::get<GraphSummary>(trained), std::get<GraphSummary>(own), options, check);
  }
  return check.ToStatus();
}

absl::StatusOr<data::OpenedDataset> OnlyRows(const data::OpenedDataset& dataset, EvaluatedRows rows,
                                             const spec::CrossValidation& folds, const data::ImportedSummary& trained) {
  if (const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset)) {
    return OnlyRowsOf(*set, rows, folds, std::get<GraphSetSummary>(trained));
  }
  return OnlyRowsOf(std::get<std::shared_ptr<const data::Graph>>(dataset), rows, std::get<GraphSummary>(trained));
}

bool HasLabels(const data::ImportedSummary& summary) {
  return std::visit([](const auto& known) { return PresentLabels(known) > 0; }, summary);
}

data::OpenedDataset AsTrained(const data::OpenedDataset& dataset, const data::ImportedSummary& trained) {
  const auto& graph = std::get<std::shared_ptr<const data::Graph>>(dataset);
  return data::OpenedDataset(data::WithSummary(graph, WithRangesOf(std::get<GraphSummary>(trained), graph->summary())));
}

}  // namespace permafrost::train
