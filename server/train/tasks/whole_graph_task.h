// Jobs on one large graph that train on the whole graph in every step, as Kipf and Welling 2017 do. The graph must
// fit in the device's memory. The graph is read once, when the job begins. Threads: the device thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "nn/models/model.h"
#include "train/tasks/links.h"
#include "train/tasks/program_model.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Returns the only shape that batches of a whole graph have.
BatchShape ShapeOfWhole(const nn::NodeBlock& block);
// Checks that `shape` is the graph's `own` shape, since a whole graph is never padded. Errors: InvalidArgument.
absl::Status CheckWhole(const BatchShape& own, const BatchShape& shape);

// The whole graph with the labels of one split. Threads: the device thread. Borrows the block.
class WholeGraphBatch final : public HostBatch {
 public:
  // `ids` are the split's nodes. `labels` are the labels of these nodes, [ids, targets] on the CPU.
  WholeGraphBatch(const nn::NodeBlock& block, std::vector<uint32_t> ids, const at::Tensor& labels);

  BatchShape real() const override;
  // The whole graph needs no padding: there is only one shape.
  BatchShape least_padded() const override { return padded(); }
  BatchShape dynamic_shape() const override { return padded(); }
  BatchShape padded() const override { return ShapeOfWhole(*block_); }
  std::span<const uint32_t> ids() const override { return ids_; }
  std::span<const float> labels() const override { return own_labels_; }
  std::span<const int64_t> prediction_rows() const override { return rows_; }

 private:
  absl::Status Pad(const BatchShape& shape) override { return CheckWhole(padded(), shape); }
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  const nn::NodeBlock* block_;
  std::vector<uint32_t> ids_;
  std::vector<int64_t> rows_;
  std::vector<float> own_labels_;
  at::Tensor labels_;  // [nodes, targets], NaN outside the split
};

// The whole graph with pairs of its nodes. Threads: the device thread. Borrows the block.
class WholeLinkBatch final : public HostBatch {
 public:
  // `pairs` gives each end of a pair as a node id, and has no seeds.
  WholeLinkBatch(const nn::NodeBlock& block, data::LinkBatch pairs) : block_(&block), pairs_(std::move(pairs)) {}

  BatchShape real() const override;
  BatchShape least_padded() const override { return padded(); }
  BatchShape dynamic_shape() const override { return padded(); }
  BatchShape padded() const override { return ShapeOfWhole(*block_); }
  // ids() and labels() are empty, since no evaluation uses this batch.
  std::span<const uint32_t> ids() const override { return {}; }
  std::span<const float> labels() const override { return {}; }

 private:
  absl::Status Pad(const BatchShape& shape) override { return CheckWhole(padded(), shape); }
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  const nn::NodeBlock* block_;
  data::LinkBatch pairs_;
};

class WholeGraphTask final : public Task {
 public:
  // Errors: same as Task::Create.
  static absl::StatusOr<std::unique_ptr<WholeGraphTask>> Create(const spec::TrainOptions& options,
                                                                std::shared_ptr<const data::Graph> graph,
                                                                c10::Device device, bool trains,
                                                                const std::function<bool()>& keep_going);

  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override {
    return links_ != nullptr ? links_->NameRows(split, ids) : NameNodes(*graph_, ids, num_outputs_);
  }
  nn::TensorSet& tensors() override { return made_.model->tensors(); }
  std::string Describe() const override {
    return decodes_pairs() ? links_->Describe(*made_.model) : made_.model->Describe();
  }
  std::vector<std::string> notes() const override;
  int64_t num_outputs() const override { return links_ != nullptr ? 1 : num_outputs_; }
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  const graphcache::ShapeSchedule& plan() const override { return plan_; }
  graphcache::GraphSizes sizes() const override { return {}; }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  TorchThreads torch_threads() const override { return torch_threads_; }
  std::string NoDynamicReason() const override { return "there is one shape, that of the whole graph"; }
  int64_t batches_per_epoch() const override { return 1; }
  int64_t unranked(data::Split split) const override { return links_ != nullptr ? links_->unranked(split) : 0; }
  int64_t size(data::Split split) const override {
    return links_ != nullptr ? links_->size(split) : std::ssize(batch(split).ids());
  }
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;
  // If links are predicted, computes the outputs of all nodes once and scores the pairs from these outputs. If a
  // program scores pairs itself, it runs once per chunk of pairs.
  absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split split, bool keep_predictions,
                                                          const std::function<bool()>& keep_going) override;

 private:
  WholeGraphTask(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph,
                 std::unique_ptr<Links> links, int64_t num_outputs, MadeNodeModel made)
      : options_(options),
        graph_(std::move(graph)),
        links_(std::move(links)),
        num_outputs_(num_outputs),
        made_(std::move(made)) {}
  // Returns true if links are predicted, and the decoder scores links from the model's rows.
  bool decodes_pairs() const { return links_ != nullptr && !made_.scores_pairs; }
  // If `trains` is true, also reads the transposed edges, which gradients need.
  absl::Status Read(c10::Device device, bool trains);
  absl::Status ReadLabelsOf(std::array<std::vector<data::NodeId>, 3> splits);
  // Makes the probes of a capture for a job that predicts links.
  absl::Status MakeLinkProbes();
  const WholeGraphBatch& batch(data::Split split) const { return batches_[static_cast<size_t>(split)]; }

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;
  const std::unique_ptr<Links> links_;  // null if nodes are predicted
  const int64_t num_outputs_;
  const MadeNodeModel made_;
  std::string fusion_note_;
  TorchThreads torch_threads_ = TorchThreads::kAll;
  nn::NodeBlock block_;                   // on the device, without labels
  std::vector<WholeGraphBatch> batches_;  // by Split
  nn::NodeBlock other_block_;             // block_ with all sources and edge features 0, for a capture's second probe
  std::vector<WholeGraphBatch> other_;    // one batch, of other_block_
  std::vector<WholeLinkBatch> link_probes_;
  graphcache::ShapeSchedule plan_;
};

}  // namespace permafrost::train
