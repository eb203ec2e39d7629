// Node-level jobs that train on the whole graph in every step, as Kipf and Welling 2017 do, for graphs that fit the
// device. Everything is read once, when the job begins. Threads: the device thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "nn/models/node_model.h"
#include "train/task.h"

namespace permafrost::train {

// The whole graph with the labels of one split. Threads: the device thread. Borrows the block.
class WholeGraphBatch final : public HostBatch {
 public:
  // `ids`: the split's nodes; labels: [ids, targets], on the CPU.
  WholeGraphBatch(const nn::NodeBlock& block, std::vector<uint32_t> ids, const at::Tensor& labels);

  BatchShape real() const override;
  // The whole graph needs no padding: there is only one shape.
  BatchShape least_padded() const override { return padded(); }
  BatchShape dynamic_shape() const override { return padded(); }
  BatchShape padded() const override;
  std::span<const uint32_t> ids() const override { return ids_; }
  std::span<const float> labels() const override { return own_labels_; }
  std::span<const int64_t> prediction_rows() const override { return rows_; }

 private:
  absl::Status Pad(const BatchShape& shape) override;
  graphcache::StepInputs Inputs(const int64_t& step, c10::Device device) const override;

  const nn::NodeBlock* block_;
  std::vector<uint32_t> ids_;
  std::vector<int64_t> rows_;
  std::vector<float> own_labels_;
  at::Tensor labels_;  // [nodes, targets], NaN beyond the split
};

class WholeGraphTask final : public Task {
 public:
  // Errors: as Task::Create.
  static absl::StatusOr<std::unique_ptr<WholeGraphTask>> Create(const TrainOptions& options,
                                                                const std::shared_ptr<const data::Graph>& graph,
                                                                c10::Device device);

  absl::StatusOr<std::vector<std::string>> NamesOf(std::span<const uint32_t> ids) const override {
    return NamesOfNodes(*graph_, ids);
  }
  nn::TensorSet& tensors() override { return model_->tensors(); }
  std::string Describe() const override { return model_->Describe(); }
  int64_t num_outputs() const override { return num_outputs_; }
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  const graphcache::ShapePlan& plan() const override { return plan_; }
  graphcache::GraphSizes sizes() const override { return {}; }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  std::string NoDynamicReason() const override { return "there is one shape, that of the whole graph"; }
  int64_t batches_per_epoch() const override { return 1; }
  int64_t size(data::Split split) const override { return std::ssize(batch(split).ids()); }
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;

 private:
  WholeGraphTask(std::shared_ptr<const data::Graph> graph, int64_t num_outputs, int64_t epochs,
                 std::unique_ptr<nn::NodeModel> model)
      : graph_(std::move(graph)), num_outputs_(num_outputs), epochs_(epochs), model_(std::move(model)) {}
  absl::Status Read(const TrainOptions& options, const data::Graph& graph, c10::Device device);
  const WholeGraphBatch& batch(data::Split split) const { return batches_[static_cast<size_t>(split)]; }

  const std::shared_ptr<const data::Graph> graph_;  // for names
  const int64_t num_outputs_;
  const int64_t epochs_;
  const std::unique_ptr<nn::NodeModel> model_;
  nn::NodeBlock block_;                   // on the device, without labels
  std::vector<WholeGraphBatch> batches_;  // by Split
  nn::NodeBlock other_block_;             // with other features, for a capture's second probe
  std::vector<WholeGraphBatch> other_;    // one
  graphcache::ShapePlan plan_;
};

}  // namespace permafrost::train
