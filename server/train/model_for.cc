// ModelFor: which model a set needs, and whether this machine can hold it.
#include <unistd.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/graph_set_task.h"

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

double PhysicalMemory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Batches on the host at once: those made ready ahead and the one in the step.
constexpr double kHostGraphSetBatches = 4;

// Bytes of a prepared batch that a row of `features` takes; integers are widened to 8 bytes.
double HostBytesPerRow(const data::FeatureSummary& features) {
  return static_cast<double>(features.width) *
         (features.type == data::DataType::kInt32 ? sizeof(int64_t) : sizeof(float));
}

// Bytes that the weights with their gradients, moments and best copy, the activations of one mean batch, and the
// batches on the host take at least. A model beyond this machine is refused at once rather than left to the kernel's
// out-of-memory killer.
double LeastBytes(const nn::GineOptions& model, int64_t batch_size, const data::GraphSetSummary& summary) {
  const data::SizeStatistics& train = summary.splits[static_cast<size_t>(data::Split::kTrain)];
  const auto hidden = static_cast<double>(model.model.hidden_channels),
             layers = static_cast<double>(model.model.num_layers);
  double parameters = layers * 2 * hidden * hidden;
  for (const nn::EncoderInput* input : {&model.node, &model.edge}) {
    parameters += static_cast<double>(input->float_columns) * hidden;
    for (const int64_t n : input->categories) parameters += static_cast<double>(n) * hidden;
  }
  const auto graphs = static_cast<double>(std::min(batch_size, train.graphs));
  const double activations = graphs * layers * hidden * (4 * train.mean_nodes + train.mean_edges);
  const double host = graphs * (train.mean_nodes * (HostBytesPerRow(summary.node_features) + sizeof(int64_t)) +
                                train.mean_edges * (HostBytesPerRow(summary.edge_features) + 2 * sizeof(int64_t)));
  return sizeof(float) * (5 * parameters + activations) + kHostGraphSetBatches * host;
}

}  // namespace

absl::StatusOr<nn::GineOptions> ModelFor(const TrainOptions& options, const data::GraphSetSummary& summary,
                                         std::string_view prefix) {
  Violations violations;
  if (nn::IsNodeLevel(options.model.architecture)) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.architecture"),
                   absl::StrCat(AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                                " predicts for the nodes of one large graph, and the dataset is a set of ",
                                summary.all.graphs, " graphs; use gine"));
    return violations.ToStatus();
  }
  nn::GineOptions model{.model = options.model, .node = {}, .edge = {}, .num_targets = summary.num_targets};
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  if (summary.num_targets < 1) violations.Add(dataset_field, "has no labels; at least one target column is needed");
  const data::SizeStatistics& train = summary.splits[static_cast<size_t>(data::Split::kTrain)];
  if (train.graphs == 0) violations.Add(dataset_field, "its train split is empty; at least one graph is needed");
  AddEncoderInput("node feature", summary.node_features, dataset_field, violations, model.node);
  AddEncoderInput("edge feature", summary.edge_features, dataset_field, violations, model.edge);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const double needed = LeastBytes(model, options.batch_size, summary), memory = PhysicalMemory();
  if (needed > memory) {
    violations.Add(absl::StrCat(AbslView(prefix), "model"),
                   absl::StrCat(options.model.num_layers, " layers of ", options.model.hidden_channels,
                                " channels with batches of ", options.batch_size, " graphs need at least ",
                                std::ceil(needed / 1e9), " GB; this machine has ", std::floor(memory / 1e9), " GB"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

}  // namespace permafrost::train
