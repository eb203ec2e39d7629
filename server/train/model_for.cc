#include "train/model_for.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/edge_rows.h"
#include "nn/models/registry.h"
#include "train/graph_labels.h"
#include "train/node_features.h"

namespace permafrost::train {
namespace {

// An embedding row for each category: beyond this a column is an id or a measure, not a category.
constexpr int64_t kMaxCategories = 1'000'000;

// Each graph must find a place.
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

}  // namespace

void AddEncoderInput(std::string_view table, const data::FeatureSummary& features, std::string_view field,
                     Violations& violations, nn::EncoderInput& input) {
  if (features.type == data::DataType::kNone) return;
  if (!data::IsCategorical(features.type)) {
    input.float_columns = features.width;
    return;
  }
  for (int64_t c = 0; c < features.width; ++c) {
    // A table without rows has no maxima; one category serves it.
    const double low = features.min.empty() ? 0 : features.min[c], high = features.max.empty() ? 0 : features.max[c];
    if (low < 0 || high >= kMaxCategories) {
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
  nn::GraphModelOptions model{.model = options.model, .node = {}, .edge = {}, .num_targets = summary.num_targets};
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  model.num_targets = OutputsFor(options, summary, prefix, violations);
  const data::SizeStatistics& train = TrainSizes(options, summary, prefix, violations);
  if (train.graphs == 0) violations.Add(dataset_field, "its train split is empty; at least one graph is needed");
  if (options.model.node_inputs == spec::NodeInputs::kFeatures && summary.node_features.type == data::DataType::kNone) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.node_inputs"),
                   "features, and the dataset's nodes have none; accepted: degree, constant");
  }
  AddEncoderInput("node feature", summary.node_features, dataset_field, violations, model.node);
  AddEncoderInput("edge feature", summary.edge_features, dataset_field, violations, model.edge);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  CheckBudget(options.batching, train, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

}  // namespace permafrost::train
