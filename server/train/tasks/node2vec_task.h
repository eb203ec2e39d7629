// node2vec jobs. They learn an embedding of each node of one large graph, by skip-gram over random walks. Batches of
// walks are drawn ahead of the step. Threads: same as Task.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "data/batching/pair_batch.h"
#include "data/sampling/epoch_order.h"
#include "nn/loss.h"
#include "train/planning/run_size.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Returns Ok if a node2vec job can learn from this graph within `limits`, otherwise InvalidArgument with violations
// under `prefix`.
absl::Status CheckNode2Vec(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                           const MemoryLimits& limits, std::string_view prefix);
// Checks that the graph stores out-edges, along which walks go. Only the graph itself tells this, not its summary.
// Errors: same as CheckNode2Vec.
absl::Status CheckWalkable(const data::Graph& graph, std::string_view prefix);

// Adds the parameter "embedding.weight", [nodes, hidden_channels], to `tensors`, and draws its values from the job's
// seed. The distribution is that of torch.nn.Embedding.
at::Tensor AddEmbedding(const spec::TrainOptions& options, int64_t nodes, c10::Device device, nn::TensorSet& tensors);

// A batch of walks from seeds. All batches have one shape. Threads: one at a time. Borrows the batch and the seeds
// that it is bound to.
class WalkHostBatch final : public HostBatch {
 public:
  WalkHostBatch(const nn::WalkLayout& layout, int64_t length) : layout_(layout), length_(length) {}
  void Bind(const data::WalkBatch& host, std::span<const uint32_t> seeds) {
    host_ = &host;
    seeds_ = seeds;
  }

  // In these shapes, `nodes` counts entries of walks, `edges` counts pairs, and `graphs` counts seeds. Negative walks
  // count too.
  BatchShape real() const override { return ShapeOf(host_->seeds); }
  // All batches are made at this one shape. The step ignores the padding.
  BatchShape least_padded() const override { return padded(); }
  BatchShape dynamic_shape() const override { return padded(); }
  BatchShape padded() const override { return ShapeOf(host_->room); }
  std::span<const uint32_t> ids() const override { return seeds_; }
  std::span<const float> labels() const override { return {}; }
  BatchShape ShapeOf(int64_t seeds) const;

 private:
  absl::Status Pad(const BatchShape& shape) override;
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  nn::WalkLayout layout_;
  int64_t length_;
  const data::WalkBatch* host_ = nullptr;
  std::span<const uint32_t> seeds_;
};

class Node2VecTask final : public Task {
 public:
  // Errors: same as Task::Create.
  static absl::StatusOr<std::unique_ptr<Node2VecTask>> Create(const spec::TrainOptions& options,
                                                              const std::shared_ptr<const data::Graph>& graph,
                                                              c10::Device device, int threads);

  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override;
  nn::TensorSet& tensors() override { return tensors_; }
  std::string Describe() const override;
  int64_t num_outputs() const override { return table_.size(1); }
  // Returns the embeddings of the batch's seeds, padding included. There are no labels.
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  std::optional<RowStep> StepRows(const graphcache::StepInputs& inputs) override;
  const graphcache::ShapeSchedule& plan() const override { return plan_; }
  graphcache::GraphSizes sizes() const override { return {}; }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  std::string NoDynamicReason() const override { return "every batch of walks is of one shape"; }
  int64_t batches_per_epoch() const override { return epochs_.batches_per_epoch(); }
  // The train split has all nodes, since labels play no part.
  int64_t size(data::Split split) const override;
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;
  // Evaluates on walks of its own, which are the same in every evaluation. The predictions are the embeddings of the
  // split's nodes.
  absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split split, bool keep_predictions,
                                                          const std::function<bool()>& keep_going) override;

 private:
  Node2VecTask(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph,
               std::array<std::vector<data::NodeId>, 3> splits, c10::Device device);
  int64_t room() const;
  // Returns the seeds of an evaluation. It has a limited number of seeds, which bounds the number of scores.
  std::vector<data::NodeId> EvaluatedSeeds(data::Split split) const;

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;
  const std::array<std::vector<data::NodeId>, 3> splits_;
  const c10::Device device_;
  const nn::WalkLayout layout_;
  const std::vector<uint32_t> nodes_;  // all nodes
  const data::EpochOrder epochs_;
  nn::TensorSet tensors_;
  const at::Tensor table_;
  // Batchers for the stream's thread, for probes, and for evaluations. Evaluations walk once from each seed.
  std::unique_ptr<data::WalkBatcher> batcher_, prober_, evaluator_;
  std::array<data::WalkBatch, 2> probes_;
  std::vector<WalkHostBatch> probe_views_;
  graphcache::ShapeSchedule plan_;
};

}  // namespace permafrost::train
