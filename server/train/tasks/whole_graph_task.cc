#include "train/tasks/whole_graph_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nn/models/model.h"
#include "nn/ops/lowering.h"
#include "train/tasks/layer_wise.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/program_trials.h"
#include "train/tasks/step_inputs.h"

namespace permafrost::train {
namespace {

// A stream of one batch, or of none.
template <class Batch>
class OneBatch final : public BatchStream {
 public:
  explicit OneBatch(absl::StatusOr<std::optional<Batch>> batch) : batch_(std::move(batch)) {}
  absl::StatusOr<HostBatch*> Next() override {
    PF_RETURN_IF_ERROR(batch_.status());
    if (!*batch_ || std::exchange(given_, true)) return nullptr;
    return &**batch_;
  }

 private:
  absl::StatusOr<std::optional<Batch>> batch_;
  bool given_ = false;
};

// Converts a block to the form that programs read. The target of each edge replaces the CSR offsets, and features
// become dense.
void FlattenBlock(int64_t columns, nn::NodeBlock& block) {
  const int64_t nodes = block.row_ends.back();
  block.row_ends = {nodes, nodes};
  const auto rows_of = [](const at::Tensor& offsets, int64_t entries) {
    return at::repeat_interleave(offsets.diff(), std::optional<int64_t>(entries));
  };
  block.edge_targets = rows_of(std::exchange(block.offsets, {}), block.sources.size(0));
  if (!block.feature_offsets.defined()) return;
  const at::Tensor at_columns = std::exchange(block.feature_columns, {});
  const at::Tensor at_rows = rows_of(std::exchange(block.feature_offsets, {}), at_columns.size(0));
  at::Tensor values = std::exchange(block.feature_values, {});
  if (!values.defined())
    values = at::ones({at_columns.size(0)}, at::TensorOptions(at::kFloat).device(at_rows.device()));
  block.features = at::zeros({nodes, columns}, values.options());
  block.features.index_put_({at_rows, at_columns}, values, /*accumulate=*/true);
}

}  // namespace

WholeGraphBatch::WholeGraphBatch(const nn::NodeBlock& block, std::vector<uint32_t> ids, const at::Tensor& labels)
    : block_(&block),
      ids_(std::move(ids)),
      rows_(ids_.begin(), ids_.end()),
      own_labels_(labels.const_data_ptr<float>(), labels.const_data_ptr<float>() + labels.numel()) {
  labels_ = at::full({block.row_ends.front(), labels.size(1)}, std::numeric_limits<float>::quiet_NaN())
                .index_copy_(0, at::tensor(rows_, at::kLong), labels)
                .to(block.sources.device());
}

BatchShape ShapeOfWhole(const nn::NodeBlock& block) {
  return {block.row_ends.back(), block.sources.size(0), block.row_ends.front()};
}

absl::Status CheckWhole(const BatchShape& own, const BatchShape& shape) {
  if (shape == own) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a whole graph of ", ToString(own, kCountedSeeds),
                                                 " is never padded, to ", ToString(shape, kCountedSeeds),
                                                 " or any other"));
}

BatchShape WholeGraphBatch::real() const {
  BatchShape shape = padded();
  shape.graphs = std::ssize(ids_);
  return shape;
}

graphcache::StepInputs WholeGraphBatch::Inputs(const int64_t& step) const {
  nn::NodeBlock block = *block_;
  block.labels = labels_;
  block.step = StepView(step);
  graphcache::StepInputs inputs = MakeInputs(block);
  MarkResident(inputs);
  return inputs;
}

BatchShape WholeLinkBatch::real() const {
  BatchShape shape = padded();
  shape.graphs = static_cast<int64_t>(pairs_.links);
  return shape;
}

graphcache::StepInputs WholeLinkBatch::Inputs(const int64_t& step) const {
  nn::NodeBlock block = *block_;
  block.step = StepView(step);
  graphcache::StepInputs inputs = MakeInputs(block);
  MarkResident(inputs);
  SetPairs(pairs_, inputs);
  return inputs;
}

absl::StatusOr<std::unique_ptr<WholeGraphTask>> WholeGraphTask::Create(const spec::TrainOptions& options,
                                                                       std::shared_ptr<const data::Graph> graph,
                                                                       c10::Device device, bool trains,
                                                                       const std::function<bool()>& keep_going) {
  PF_ASSIGN_OR_RETURN(const JobNodeModel model, NodeModelFor(options, graph->summary(), kNoLimits, "spec."));
  const NodeProgramData data = ProgramDataOf(graph->summary());
  PF_ASSIGN_OR_RETURN(JobFusion fusion, FusionOf(options, model, data, device, "spec."));
  PF_ASSIGN_OR_RETURN(MadeNodeModel made, MakeModel(options, model, data, device, "spec.", {.fused = fusion.fused}));
  const spec::TrainOptions own = WithProgram(options, model, made);
  std::unique_ptr<Links> links;
  if (options.links.enabled) {
    PF_ASSIGN_OR_RETURN(links, Links::Create(own, graph, keep_going));
    graph = links->messages();
  }
  std::unique_ptr<WholeGraphTask> task(
      new WholeGraphTask(own, std::move(graph), std::move(links), model.num_outputs, std::move(made)));
  task->fusion_note_ = std::move(fusion.note);
  if (task->links_ != nullptr) task->links_->AddDecoder(*task->made_.model, options.seed, device);
  PF_RETURN_IF_ERROR(task->Read(device, trains));
  if (model.program && device.is_cpu()) {
    BatchShape largest = task->plan_.train_ceiling;
    if (task->made_.scores_pairs) largest.edges = std::max(largest.edges, task->links_->pairs());
    task->torch_threads_ = ThreadsFor(model.program->Step(largest).operator_values);
  }
  return task;
}

absl::Status WholeGraphTask::Read(c10::Device device, bool trains) {
  const uint64_t nodes = graph_->view().nodes;
  const bool weights = made_.reads_edge_weights && UsesEdgeWeights(options_, *graph_);
  PF_ASSIGN_OR_RETURN(const nn::LayerWiseModel::InputRows rows, ReadFeatureRows(*graph_, 0, nodes));
  PF_ASSIGN_OR_RETURN(const nn::LayerWiseModel::Chunk edges,
                      ReadInEdges(*graph_, 0, nodes, weights, EdgeInputsOf(options_.model, graph_->summary())));
  const auto on_device = [device](const at::Tensor& t) { return t.defined() ? t.to(device) : t; };
  const auto num_nodes = static_cast<int64_t>(nodes);
  block_.row_ends.assign(static_cast<size_t>(options_.model.num_layers + 1), num_nodes);
  block_.features = on_device(rows.dense);
  block_.feature_offsets = on_device(rows.feature_offsets);
  block_.feature_columns = on_device(rows.feature_columns);
  block_.feature_values = on_device(rows.feature_values);
  if (made_.reads_positions) {
    const auto& dense = std::get<data::DenseFeatures>(graph_->view().positions);
    const at::Tensor positions = at::empty({num_nodes, dense.width}, at::kFloat);
    PF_RETURN_IF_ERROR(data::ReadRows(dense, 0, nodes, positions.mutable_data_ptr<float>()));
    block_.positions = on_device(positions);
  }
  block_.offsets = on_device(edges.offsets);
  block_.sources = on_device(edges.sources);
  block_.edge_weights = on_device(edges.edge_weights);
  block_.edge_features = on_device(edges.edge_features);
  block_.row_keys = at::arange(num_nodes, at::TensorOptions().dtype(at::kLong).device(device));
  const bool program = spec::IsProgram(options_);
  if (program) FlattenBlock(graph_->summary().node_features.width, block_);
  // Gives the edges other sources, so that a capture does not treat sources as constants.
  other_block_ = block_;
  other_block_.sources = at::zeros_like(block_.sources);
  if (block_.edge_features.defined()) other_block_.edge_features = at::zeros_like(block_.edge_features);
  for (nn::NodeBlock* block : {&block_, &other_block_}) {
    if (trains && !program) block->transpose = nn::TransposeCsr(block->offsets, block->sources, num_nodes);
  }
  plan_.train_rungs = {ShapeOfWhole(block_)};
  plan_.train_ceiling = plan_.train_rungs.front();
  plan_.train_shapes = 1;
  if (links_ != nullptr) return MakeLinkProbes();
  plan_.eval_rungs = plan_.train_rungs;
  PF_ASSIGN_OR_RETURN(auto splits, ReadSplits(*graph_));
  return ReadLabelsOf(std::move(splits));
}

absl::Status WholeGraphTask::ReadLabelsOf(std::array<std::vector<data::NodeId>, 3> splits) {
  for (auto& split : splits) {
    PF_ASSIGN_OR_RETURN(const at::Tensor labels, ReadLabels(*graph_, split));
    if (other_.empty()) other_.emplace_back(other_block_, split, labels);
    batches_.emplace_back(block_, std::move(split), labels);
  }
  return absl::OkStatus();
}

absl::Status WholeGraphTask::MakeLinkProbes() {
  for (const nn::NodeBlock* block : {&block_, &other_block_}) {
    data::LinkBatch pairs;
    PF_RETURN_IF_ERROR(links_->MakeWholeBatch(/*epoch=*/0, pairs));
    if (block == &other_block_) std::ranges::fill(pairs.sources, 0);
    link_probes_.emplace_back(*block, std::move(pairs));
  }
  return absl::OkStatus();
}

std::vector<std::string> WholeGraphTask::notes() const {
  std::vector<std::string> notes = links_ != nullptr ? links_->notes() : std::vector<std::string>();
  for (const std::string& note : {made_.note, fusion_note_}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

Task::Output WholeGraphTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::NodeBlock block = NodeBlockOf(inputs);
  const at::Tensor made = made_.model->Forward(block, mode);
  return {decodes_pairs() ? links_->Predict(made, block.pairs) : made, block.labels, made_.model->TakeLoss()};
}

absl::StatusOr<std::array<HostBatch*, 2>> WholeGraphTask::Probes(Mode /*mode*/, const BatchShape& /*shape*/) {
  if (links_ != nullptr) return std::array<HostBatch*, 2>{link_probes_.data(), link_probes_.data() + 1};
  return std::array<HostBatch*, 2>{batches_.data(), other_.data()};
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> WholeGraphTask::Schedules(
    const std::function<bool()>& /*keep_going*/) {
  const BatchShape& shape = plan_.train_ceiling;
  const int64_t epochs = options_.epochs, rows = epochs * graphcache::Rows(shape);
  return std::vector<graphcache::PlannedSchedule>{
      {.batching = "whole graph",
       .train = {{.shape = shape, .batches = epochs, .real_rows = rows, .dynamic_rows = rows}},
       .first_epoch_shapes = 1,
       .epochs = epochs,
       .ceiling = shape,
       .eval_rungs = plan_.eval_rungs,
       .eval_shapes = std::ssize(plan_.eval_rungs)}};
}

absl::StatusOr<HostBatch*> WholeGraphTask::DynamicProbe(Mode /*mode*/, size_t /*probe*/) {
  return absl::UnimplementedError(NoDynamicReason());
}

std::unique_ptr<BatchStream> WholeGraphTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  if (links_ != nullptr) {
    using Made = absl::StatusOr<std::optional<WholeLinkBatch>>;
    const auto make = [&]() -> Made {
      if (first_batch > 0) return std::nullopt;
      data::LinkBatch pairs;
      PF_RETURN_IF_ERROR(links_->MakeWholeBatch(epoch, pairs));
      return WholeLinkBatch(block_, std::move(pairs));
    };
    return std::make_unique<OneBatch<WholeLinkBatch>>(make());
  }
  return std::make_unique<OneBatch<WholeGraphBatch>>(first_batch == 0 ? std::optional(batch(data::Split::kTrain))
                                                                      : std::nullopt);
}

std::unique_ptr<BatchStream> WholeGraphTask::EvalBatches(data::Split split) {
  return std::make_unique<OneBatch<WholeGraphBatch>>(size(split) > 0 ? std::optional(batch(split)) : std::nullopt);
}

absl::StatusOr<std::optional<Evaluation>> WholeGraphTask::EvaluateWhole(data::Split split, bool keep_predictions,
                                                                        const std::function<bool()>& keep_going) {
  if (links_ == nullptr) return std::nullopt;
  if (!keep_going()) return absl::CancelledError("evaluation stopped");
  const at::NoGradGuard no_grad;
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  if (decodes_pairs()) {
    return links_->EvaluateRows(made_.model->Forward(block_, Mode::kEval), split, keep_predictions, keep_going);
  }
  nn::NodeBlock block = block_;
  const auto score = [&](const nn::NodePairs& pairs) {
    const c10::Device device = block.sources.device();
    block.pairs = {pairs.sources.to(device), pairs.targets.to(device)};
    return made_.model->Forward(block, Mode::kEval);
  };
  return links_->EvaluatePairs(score, split, keep_predictions, keep_going);
}

}  // namespace permafrost::train
