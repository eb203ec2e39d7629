#include "train/task.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/store/node_names.h"
#include "data/store/other_splits.h"
#include "train/graph_labels.h"
#include "train/graph_set_task.h"
#include "train/index_limits.h"
#include "train/initial_weights.h"
#include "train/link_check.h"
#include "train/model_for.h"
#include "train/node2vec_task.h"
#include "train/node_features.h"
#include "train/node_model_for.h"
#include "train/node_task.h"
#include "train/whole_graph_task.h"

namespace permafrost::train {

absl::StatusOr<const graphcache::StepInputs*> HostBatch::PadTo(const BatchShape& shape, int64_t step) {
  PF_RETURN_IF_ERROR(Pad(shape));
  return TakeInputs(step);
}

absl::StatusOr<const graphcache::StepInputs*> HostBatch::PadDynamic(int64_t step) {
  PF_RETURN_IF_ERROR(PadToDynamic());
  return TakeInputs(step);
}

const graphcache::StepInputs* HostBatch::TakeInputs(int64_t step) {
  step_ = step;
  inputs_ = Inputs(step_);
  return &inputs_;
}

absl::StatusOr<std::vector<std::string>> NamesOfNodes(const data::Graph& graph, std::span<const uint32_t> nodes) {
  std::vector<std::string> names;
  for (const uint32_t node : nodes) {
    PF_ASSIGN_OR_RETURN(std::string name, data::NameOf(graph.names(), node));
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> PredictionColumns(int64_t outputs) {
  std::vector<std::string> columns;
  for (int64_t t = 0; t < outputs; ++t) columns.push_back(absl::StrCat("prediction_", t));
  return columns;
}

absl::StatusOr<NamedRows> NameNodes(const data::Graph& graph, std::span<const uint32_t> nodes, int64_t outputs) {
  PF_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesOfNodes(graph, nodes));
  return NamedRows{.columns = {"node"}, .names = std::move(names), .values = PredictionColumns(outputs)};
}

std::vector<data::Split> SplitsOf(Mode mode) {
  if (mode == Mode::kTrain) return {data::Split::kTrain};
  return {data::Split::kValid, data::Split::kTest};
}

namespace {

absl::StatusOr<std::unique_ptr<Task>> MakeTask(const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                                               c10::Device device, int threads, const std::function<bool()>& keep_going,
                                               const PlanContext& context) {
  const auto* stored = std::get_if<std::shared_ptr<const data::Graph>>(&dataset);
  if (Walks(options) && stored != nullptr) {
    if (context.rows != nullptr) context.rows->Drop();
    return Node2VecTask::Create(options, *stored, device, threads);
  }
  spec::TrainOptions own = options;
  if (stored != nullptr) own.model.node_inputs = NodeInputsOf(options.model.node_inputs, (*stored)->summary());
  // Rows of another job's graph would take the memory that this one was admitted by. Made features are in memory.
  const bool samples = stored != nullptr && !options.nodes.fan_outs.empty();
  const bool reads = samples && own.model.node_inputs == spec::NodeInputs::kFeatures;
  if (context.rows != nullptr && !reads) context.rows->Drop();
  if (const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset)) {
    PF_ASSIGN_OR_RETURN(auto folded, data::WithFold(*set, options.cross_validation));
    return GraphSetTask::Create(options, std::move(folded), device, keep_going, context);
  }
  PF_ASSIGN_OR_RETURN(auto graph, WithNodeInputs(own.model, *stored));
  if (!samples) return WholeGraphTask::Create(own, std::move(graph), device, context.limits.trains, keep_going);
  PlanContext own_context = context;
  if (!reads) own_context.rows = nullptr;
  return NodeTask::Create(own, std::move(graph), device, threads, keep_going, own_context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Task>> Task::Create(const spec::TrainOptions& options,
                                                   const data::OpenedDataset& dataset, c10::Device device, int threads,
                                                   const std::function<bool()>& keep_going,
                                                   const PlanContext& context) {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<Task> task, MakeTask(options, dataset, device, threads, keep_going, context));
  PF_RETURN_IF_ERROR(FixParameters(options, "spec.", task->tensors()));
  return task;
}

absl::Status Task::Check(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                         const MemoryLimits& limits, std::string_view prefix) {
  if (Walks(options)) return CheckNode2Vec(options, summary, limits, prefix);
  if (const auto* set = std::get_if<data::GraphSetSummary>(&summary)) {
    return GraphModelFor(options, *set, prefix).status();
  }
  const auto& graph = std::get<data::GraphSummary>(summary);
  PF_RETURN_IF_ERROR(NodeModelFor(options, graph, limits, prefix).status());
  return CheckWholeGraphIndex(options, graph, limits, prefix);
}

namespace {

std::vector<std::string> NotesOfValidation(std::string_view rows, int64_t validate) {
  if (validate > 0) return {};
  return {NoteOfNoValidation(rows)};
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Task::CheckFits(const spec::TrainOptions& options,
                                                         const data::OpenedDataset& dataset, const PlanContext& context,
                                                         std::string_view prefix,
                                                         const std::function<bool()>& keep_going) {
  const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset);
  if (set == nullptr) {
    const auto& graph = std::get<std::shared_ptr<const data::Graph>>(dataset);
    if (Walks(options)) {
      PF_RETURN_IF_ERROR(CheckWalkable(*graph, prefix));
      return std::vector<std::string>();
    }
    if (options.links.enabled) return CheckLinks(options, graph, prefix, keep_going);
    PF_RETURN_IF_ERROR(CheckTrainLabels(*graph, prefix));
    return NotesOfValidation("nodes", graph->summary().split_nodes[static_cast<size_t>(data::Split::kValid)]);
  }
  PF_ASSIGN_OR_RETURN(const nn::GraphModelOptions model, GraphModelFor(options, (*set)->summary(), prefix));
  PF_ASSIGN_OR_RETURN(auto folded, data::WithFold(*set, options.cross_validation));
  PF_RETURN_IF_ERROR(CheckTrainLabels(*folded, prefix));
  if (spec::TraitsOf(options.loss).labels == spec::LabelKind::kBinary && !folded->summary().labels_known) {
    PF_RETURN_IF_ERROR(CheckBinary(*folded, prefix));
  }
  const int64_t validate = folded->summary().splits[static_cast<size_t>(data::Split::kValid)].graphs;
  PF_ASSIGN_OR_RETURN(const data::GraphExtents graphs, data::GraphExtents::Create(std::move(folded)));
  PF_RETURN_IF_ERROR(PlanJob(options, model, graphs, context, prefix, keep_going).status());
  return NotesOfValidation("graphs", validate);
}

}  // namespace permafrost::train
