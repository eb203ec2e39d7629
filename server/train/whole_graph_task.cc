#include "train/whole_graph_task.h"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nn/models/registry.h"
#include "train/layer_wise.h"
#include "train/node_inputs.h"
#include "train/node_model_for.h"

namespace permafrost::train {
namespace {

// One batch, or none.
class OneBatch final : public BatchStream {
 public:
  explicit OneBatch(const WholeGraphBatch* batch) {
    if (batch != nullptr) batch_ = *batch;
  }
  absl::StatusOr<HostBatch*> Next() override {
    if (!batch_ || std::exchange(given_, true)) return nullptr;
    return &*batch_;
  }

 private:
  std::optional<WholeGraphBatch> batch_;
  bool given_ = false;
};

}  // namespace

WholeGraphBatch::WholeGraphBatch(const nn::NodeBlock& block, std::vector<uint32_t> ids, const at::Tensor& labels)
    : HostBatch(block.sources.device()),
      block_(&block),
      ids_(std::move(ids)),
      rows_(ids_.begin(), ids_.end()),
      own_labels_(labels.const_data_ptr<float>(), labels.const_data_ptr<float>() + labels.numel()) {
  labels_ = at::full({block.row_ends.front(), labels.size(1)}, std::numeric_limits<float>::quiet_NaN())
                .index_copy_(0, at::tensor(rows_, at::kLong), labels)
                .to(block.sources.device());
}

BatchShape WholeGraphBatch::padded() const {
  return {block_->row_ends.back(), block_->sources.size(0), block_->row_ends.front()};
}

BatchShape WholeGraphBatch::real() const {
  BatchShape shape = padded();
  shape.graphs = std::ssize(ids_);
  return shape;
}

absl::Status WholeGraphBatch::Pad(const BatchShape& shape) {
  if (shape == padded()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a whole graph of ", ToString(padded()), " is never padded, to ", ToString(shape), " or any other"));
}

graphcache::StepInputs WholeGraphBatch::Inputs(const int64_t& step, c10::Device device) const {
  nn::NodeBlock block = *block_;
  block.labels = labels_;
  const at::Tensor host = at::from_blob(const_cast<int64_t*>(&step), {1}, at::kLong);
  block.step = device.is_cpu() ? host : host.to(device);
  return MakeInputs(block);
}

absl::StatusOr<std::unique_ptr<WholeGraphTask>> WholeGraphTask::Create(const TrainOptions& options,
                                                                       const std::shared_ptr<const data::Graph>& graph,
                                                                       c10::Device device) {
  PF_ASSIGN_OR_RETURN(const nn::NodeModelOptions model, NodeModelFor(options, graph->summary(), kNoLimits, "spec."));
  std::unique_ptr<WholeGraphTask> task(
      new WholeGraphTask(graph, model.num_outputs, options.epochs, nn::MakeNodeModel(model, options.seed, device)));
  PF_RETURN_IF_ERROR(task->Read(options, *graph, device));
  return task;
}

absl::Status WholeGraphTask::Read(const TrainOptions& options, const data::Graph& graph, c10::Device device) {
  const uint64_t nodes = graph.view().nodes;
  const bool weights = UsesEdgeWeights(options, graph);
  PF_ASSIGN_OR_RETURN(const nn::NodeModel::InputRows rows, ReadFeatureRows(graph, 0, nodes));
  PF_ASSIGN_OR_RETURN(const nn::NodeModel::Chunk edges, ReadInEdges(graph, 0, nodes, weights));
  PF_ASSIGN_OR_RETURN(auto splits, ReadSplits(graph));
  const auto on_device = [device](const at::Tensor& t) { return t.defined() ? t.to(device) : t; };
  const auto num_nodes = static_cast<int64_t>(nodes);
  block_.row_ends.assign(static_cast<size_t>(options.model.num_layers + 1), num_nodes);
  block_.features = on_device(rows.dense);
  block_.feature_offsets = on_device(rows.feature_offsets);
  block_.feature_columns = on_device(rows.feature_columns);
  block_.feature_values = on_device(rows.feature_values);
  block_.offsets = on_device(edges.offsets);
  block_.sources = on_device(edges.sources);
  block_.edge_weights = on_device(edges.edge_weights);
  block_.row_keys = at::arange(num_nodes, at::TensorOptions().dtype(at::kLong).device(device));
  // The same edges with other sources: what a capture must not take for constant.
  other_block_ = block_;
  other_block_.sources = at::zeros_like(block_.sources);
  for (nn::NodeBlock* block : {&block_, &other_block_}) {
    block->transpose = nn::TransposeCsr(block->offsets, block->sources, num_nodes);
  }
  for (auto& split : splits) {
    PF_ASSIGN_OR_RETURN(const at::Tensor labels, ReadLabels(graph, split));
    if (other_.empty()) other_.emplace_back(other_block_, split, labels);
    batches_.emplace_back(block_, std::move(split), labels);
  }
  plan_.train_rungs = {batches_.front().padded()};
  plan_.train_ceiling = plan_.train_rungs.front();
  plan_.train_shapes = 1;
  plan_.eval_rungs = plan_.train_rungs;
  return absl::OkStatus();
}

Task::Output WholeGraphTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::NodeBlock block = NodeBlockOf(inputs);
  return {model_->Forward(block, mode), block.labels};
}

absl::StatusOr<std::array<HostBatch*, 2>> WholeGraphTask::Probes(Mode /*mode*/, const BatchShape& /*shape*/) {
  return std::array<HostBatch*, 2>{batches_.data(), other_.data()};
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> WholeGraphTask::Schedules(
    const std::function<bool()>& /*keep_going*/) {
  const BatchShape& shape = plan_.train_ceiling;
  const int64_t rows = epochs_ * graphcache::Rows(shape);
  return std::vector<graphcache::PlannedSchedule>{
      {.batching = "whole graph",
       .train = {{.shape = shape, .batches = epochs_, .real_rows = rows, .dynamic_rows = rows}},
       .first_epoch_shapes = 1,
       .epochs = epochs_,
       .ceiling = shape,
       .eval_rungs = plan_.eval_rungs,
       .eval_shapes = 1}};
}

absl::StatusOr<HostBatch*> WholeGraphTask::DynamicProbe(Mode /*mode*/, size_t /*probe*/) {
  return absl::UnimplementedError(NoDynamicReason());
}

std::unique_ptr<BatchStream> WholeGraphTask::TrainBatches(int64_t /*epoch*/, int64_t first_batch) {
  return std::make_unique<OneBatch>(first_batch == 0 ? &batch(data::Split::kTrain) : nullptr);
}

std::unique_ptr<BatchStream> WholeGraphTask::EvalBatches(data::Split split) {
  return std::make_unique<OneBatch>(size(split) > 0 ? &batch(split) : nullptr);
}

}  // namespace permafrost::train
