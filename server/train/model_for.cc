#include "train/model_for.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/models/registry.h"
#include "train/run_memory.h"

namespace permafrost::train {
namespace {

// An embedding row for each category: beyond this a column is an id or a measure, not a category.
constexpr int64_t kMaxCategories = 1'000'000;

void AddEncoderInput(std::string_view table, const data::FeatureSummary& features, std::string_view field,
                     Violations& violations, nn::EncoderInput& input) {
  if (features.type == data::DataType::kFloat32) input.float_columns = features.width;
  if (features.type != data::DataType::kInt32) return;
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

// Batches on the host at once: those made ready ahead and the one in the step.
constexpr double kHostGraphSetBatches = 4;
// How far the largest batch lies above the mean one, in standard deviations.
constexpr double kBatchDeviations = 5;

// Bytes of a prepared batch that a row of `features` takes; integers are widened to 8 bytes.
double HostBytesPerRow(const data::FeatureSummary& features) {
  return static_cast<double>(features.width) *
         (features.type == data::DataType::kInt32 ? sizeof(int64_t) : sizeof(float));
}

// Rows of the largest of a run's batches of `graphs` graphs.
double LargestBatch(double graphs, double mean, double deviation, int64_t largest) {
  return std::min(graphs * mean + kBatchDeviations * std::sqrt(graphs) * deviation,
                  graphs * static_cast<double>(largest));
}

// A batch may hold so many rows: `bound`, where there is one.
double Within(double rows, int64_t bound) { return bound > 0 ? std::min(rows, static_cast<double>(bound)) : rows; }

// Each graph must find a place.
void CheckBudget(const data::BatchingOptions& batching, const data::SizeStatistics& train, std::string_view prefix,
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

RunMemory MemoryOf(const nn::GraphModelOptions& model, const TrainOptions& options,
                   const data::GraphSetSummary& summary) {
  const data::SizeStatistics& train = summary.splits[static_cast<size_t>(data::Split::kTrain)];
  const auto graphs = static_cast<double>(std::min(options.batch_size, train.graphs));
  const double nodes = Within(LargestBatch(graphs, train.mean_nodes, train.std_nodes, train.max_nodes),
                              options.batching.max_nodes),
               edges = Within(LargestBatch(graphs, train.mean_edges, train.std_edges, train.max_edges),
                              options.batching.max_edges);
  const auto predicted = static_cast<double>(summary.splits[1].graphs + summary.splits[2].graphs);
  return {
      .cost = nn::CostOf(model, {.nodes = std::vector(static_cast<size_t>(model.model.num_layers) + 1, nodes),
                                 .edges = edges,
                                 .graphs = graphs}),
      .batch_bytes = kHostGraphSetBatches * (nodes * (HostBytesPerRow(summary.node_features) + sizeof(int64_t)) +
                                             edges * (HostBytesPerRow(summary.edge_features) + 2 * sizeof(int64_t))),
      .result_bytes = predicted * static_cast<double>(model.num_targets) * sizeof(float)};
}

}  // namespace

absl::StatusOr<nn::GraphModelOptions> GraphModelFor(const TrainOptions& options, const data::GraphSetSummary& summary,
                                                    const MemoryLimits& limits, std::string_view prefix) {
  Violations violations;
  if (nn::IsNodeLevel(options.model.architecture)) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.architecture"),
                   absl::StrCat(AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                                " predicts for the nodes of one large graph, and the dataset is a set of ",
                                summary.all.graphs, " graphs; use ", ModelsOf(nn::ModelLevel::kGraph, " or ")));
    return violations.ToStatus();
  }
  nn::GraphModelOptions model{.model = options.model, .node = {}, .edge = {}, .num_targets = summary.num_targets};
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  if (summary.num_targets < 1) violations.Add(dataset_field, "has no labels; at least one target column is needed");
  const data::SizeStatistics& train = summary.splits[static_cast<size_t>(data::Split::kTrain)];
  if (train.graphs == 0) violations.Add(dataset_field, "its train split is empty; at least one graph is needed");
  AddEncoderInput("node feature", summary.node_features, dataset_field, violations, model.node);
  AddEncoderInput("edge feature", summary.edge_features, dataset_field, violations, model.edge);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  CheckBudget(options.batching, train, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  CheckFits(MemoryOf(model, options, summary), limits, absl::StrCat("batches of ", options.batch_size, " graphs"),
            prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

}  // namespace permafrost::train
