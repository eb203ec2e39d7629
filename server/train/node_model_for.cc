#include "train/node_model_for.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// More classes than this are a measure, not a class.
constexpr double kMaxClasses = 1'000'000;
// Batches on the host at once: those gathered ahead and the one in the step.
constexpr double kHostNodeBatches = 3;

void CheckLabels(const TrainOptions& options, const data::GraphSummary& graph, std::string_view dataset_field,
                 std::string_view prefix, Violations& violations) {
  const auto range = [&] { return absl::StrCat(graph.min_label, "..", graph.max_label); };
  if (graph.num_targets < 1) {
    violations.Add(dataset_field, "its nodes have no labels; at least one target column is needed");
    return;
  }
  const std::string loss_field = absl::StrCat(AbslView(prefix), "loss");
  switch (options.loss) {
    case nn::Loss::kCrossEntropy:
      if (graph.num_targets > 1) {
        violations.Add(loss_field, absl::StrCat("cross-entropy takes one class a node, and the dataset has ",
                                                graph.num_targets, " targets; use bce, mse or l1"));
      } else if (!graph.integer_labels || graph.min_label < 0 || graph.max_label >= kMaxClasses) {
        violations.Add(loss_field, absl::StrCat("cross-entropy takes whole numbers 0..", kMaxClasses - 1,
                                                " as labels, and the dataset's are ",
                                                graph.integer_labels ? "" : "fractions in ", range()));
      } else if (const auto classes = static_cast<int64_t>(graph.max_label) + 1;
                 !options.class_weights.empty() && std::ssize(options.class_weights) != classes) {
        violations.Add(
            absl::StrCat(AbslView(prefix), "class_weights"),
            absl::StrCat("has ", options.class_weights.size(), " weights; the dataset has ", classes, " classes"));
      }
      break;
    case nn::Loss::kBce:
      if (!graph.integer_labels || graph.min_label < 0 || graph.max_label > 1) {
        violations.Add(loss_field, absl::StrCat("bce takes labels 0 and 1, and the dataset's are ", range()));
      }
      break;
    case nn::Loss::kL1:
    case nn::Loss::kMse:
      break;
  }
}

// Rows and edges of a step, at most, but that degrees are taken at their mean.
struct StepRows {
  double nodes = 0;    // with features
  double targets = 0;  // of the first layer
  double edges = 0;
  double seeds = 0;
};

StepRows RowsOf(const std::vector<int64_t>& fan_outs, int64_t batch_size, const data::GraphSummary& graph) {
  const auto all_nodes = static_cast<double>(graph.nodes), all_edges = static_cast<double>(graph.edges);
  if (fan_outs.empty()) return {all_nodes, all_nodes, all_edges, all_nodes};
  const double degree = all_edges / std::max(1.0, all_nodes);
  double found = static_cast<double>(batch_size);
  StepRows rows{.nodes = found, .targets = found, .edges = 0, .seeds = found};
  for (const int64_t fan_out : fan_outs) {
    rows.targets = rows.nodes;
    found *= fan_out < 0 ? degree : std::min(static_cast<double>(fan_out), degree);
    rows.edges = std::min(all_edges, rows.edges + found);
    rows.nodes = std::min(all_nodes, rows.nodes + found);
  }
  return rows;
}

// Bytes that weights with their gradients, moments and best copy, the activations of a step, the batches on the host
// and what evaluation keeps take about.
double NeededBytes(const TrainOptions& options, const nn::NodeModelOptions& model, const data::GraphSummary& graph) {
  const auto hidden = static_cast<double>(options.model.hidden_channels);
  const auto in = static_cast<double>(model.in_channels), out = static_cast<double>(model.num_outputs);
  const auto layers = static_cast<double>(options.model.num_layers);
  const auto all_nodes = static_cast<double>(graph.nodes);
  const NodeTrainingOptions& nodes = options.nodes;
  const double parameters =
      2 * (in * hidden + std::max(0.0, layers - 2) * hidden * hidden + std::max(hidden, in) * out);
  const bool sparse = graph.node_features.type == data::DataType::kSparse;
  const double row = sparse ? 12 * static_cast<double>(graph.node_feature_nonzeros) / std::max(1.0, all_nodes) : 4 * in;
  double step = 0;
  for (const std::vector<int64_t>* fan_outs : {&nodes.fan_outs, &nodes.eval_fan_outs}) {
    if (fan_outs == &nodes.eval_fan_outs && fan_outs->empty()) continue;
    const StepRows rows = RowsOf(*fan_outs, options.batch_size, graph);
    // Of a block, each layer has a part of the rows of the one before; of a whole graph, all of them.
    const double deep = fan_outs->empty() ? layers : 1;
    const double activations =
        4 * (sparse ? rows.nodes : rows.targets) * hidden * 3 * deep + 4 * rows.targets * in + 4 * 4 * rows.seeds * out;
    const double host = rows.nodes * row + 8 * (rows.edges + rows.targets);
    const double ahead = static_cast<double>(nodes.look_ahead) * (4 * rows.nodes + 16 * rows.edges);
    step = std::max(step, activations + kHostNodeBatches * host + (fan_outs->empty() ? 0 : ahead));
  }
  const double kept = static_cast<double>(std::max(graph.split_nodes[1], graph.split_nodes[2])) * out * 4;
  double bytes = 4 * 5 * parameters + step + kept;
  if (nodes.layer_wise_evaluation) bytes += 4 * all_nodes * 4 * std::max(hidden, out);
  return bytes;
}

}  // namespace

absl::StatusOr<nn::NodeModelOptions> NodeModelFor(const TrainOptions& options, const data::GraphSummary& summary,
                                                  std::string_view prefix) {
  Violations violations;
  const std::string dataset_field = absl::StrCat(AbslView(prefix), "dataset");
  if (!nn::IsNodeLevel(options.model.architecture)) {
    violations.Add(absl::StrCat(AbslView(prefix), "model.architecture"),
                   absl::StrCat(AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                                " predicts for whole graphs of a set, and the dataset is one graph of ", summary.nodes,
                                " nodes; use sage or gcn"));
    return violations.ToStatus();
  }
  if (summary.node_features.type == data::DataType::kNone || summary.node_features.width == 0) {
    violations.Add(dataset_field, "its nodes have no features; at least one feature column is needed");
  }
  if (summary.split_nodes[static_cast<size_t>(data::Split::kTrain)] == 0) {
    violations.Add(dataset_field, "its train split is empty; at least one node is needed");
  }
  if (options.nodes.weighted && !summary.weighted) {
    violations.Add(absl::StrCat(AbslView(prefix), "neighbor_sampling.weighted"),
                   "the dataset's edges have no weights to draw by");
  }
  CheckLabels(options, summary, dataset_field, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  nn::NodeModelOptions model{.model = options.model,
                             .in_channels = summary.node_features.width,
                             .num_outputs = options.loss == nn::Loss::kCrossEntropy
                                                ? static_cast<int64_t>(summary.max_label) + 1
                                                : summary.num_targets};
  const double needed = NeededBytes(options, model, summary);
  if (const auto limit = static_cast<double>(MemoryLimit()); needed > limit) {
    violations.Add(absl::StrCat(AbslView(prefix), "model"),
                   absl::StrCat("needs about ", std::ceil(needed / 1e8) / 10, " GB (",
                                options.nodes.fan_outs.empty() ? "the whole graph in every step" : "a sampled batch",
                                "); this process may use ", std::floor(limit / 1e8) / 10, " GB"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return model;
}

bool UsesEdgeWeights(const TrainOptions& options, const data::Graph& graph) {
  return options.model.architecture == nn::Architecture::kGcn && graph.summary().weighted;
}

absl::StatusOr<at::Tensor> ReadLabels(const data::Graph& graph, std::span<const data::NodeId> nodes) {
  const data::Column<float>& column = graph.view().labels;
  const int64_t targets = graph.view().num_targets;
  at::Tensor labels = at::empty({std::ssize(nodes), targets}, at::kFloat);
  float* out = labels.mutable_data_ptr<float>();
  for (const data::NodeId node : nodes) {
    const uint64_t begin = uint64_t{node} * static_cast<uint64_t>(targets),
                   end = begin + static_cast<uint64_t>(targets);
    if (!column.Touch(begin, end)) return column.status();
    out = std::copy(column.data() + begin, column.data() + end, out);
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return labels;
}

absl::StatusOr<std::array<std::vector<data::NodeId>, 3>> ReadSplits(const data::Graph& graph) {
  std::array<std::vector<data::NodeId>, 3> splits;
  for (size_t i = 0; i < splits.size(); ++i) {
    const data::Column<data::NodeId>& column = graph.view().splits[i];
    if (!column.Touch(0, column.size())) return column.status();
    splits[i].assign(column.data(), column.data() + column.size());
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return splits;
}

}  // namespace permafrost::train
