// Node-level jobs: one large graph, predictions for its nodes, on sampled blocks or on the whole graph at once.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/batching/block_batch.h"
#include "data/batching/block_stream.h"
#include "data/rows/row_caches.h"
#include "data/rows/row_counters.h"
#include "data/sampling/epoch_order.h"
#include "nn/models/node_model.h"
#include "train/block_rungs.h"
#include "train/job_plan.h"
#include "train/node_inputs.h"
#include "train/task.h"

namespace permafrost::train {

inline bool HasSparseFeatures(const data::GraphSummary& graph) { return graph.node_feature_nonzeros > 0; }

// A sampled block. Threads: one at a time. Borrows the batcher, the rungs and what it is bound to.
class SampledBatch final : public HostBatch {
 public:
  SampledBatch(const data::BlockBatcher& batcher, const BlockRungs& rungs, c10::Device device)
      : HostBatch(device), batcher_(&batcher), rungs_(&rungs) {}
  // Makes this the batch `host`, until it is bound to another.
  void Bind(data::BlockBatch& host) { host_ = &host; }

  BatchShape real() const override { return host_->real_shape(); }
  // The shape of its rung.
  BatchShape least_padded() const override;
  BatchShape dynamic_shape() const override { return dynamic_sizes().shape(); }
  BatchShape padded() const override { return host_->padded.shape(); }
  std::span<const uint32_t> ids() const override;
  std::span<const float> labels() const override;

 private:
  absl::Status Pad(const BatchShape& shape) override;
  absl::Status PadToDynamic() override { return PadToSizes(dynamic_sizes()); }
  absl::Status PadToSizes(const data::BlockSizes& sizes);
  data::BlockSizes dynamic_sizes() const;
  graphcache::StepInputs Inputs(const int64_t& step, c10::Device device) const override;

  const data::BlockBatcher* batcher_;
  const BlockRungs* rungs_;
  data::BlockBatch* host_ = nullptr;
  mutable RowKeys keys_;
};

// Jobs that sample.
class NodeTask final : public Task {
 public:
  // Errors: as Task::Create.
  static absl::StatusOr<std::unique_ptr<NodeTask>> Create(const TrainOptions& options,
                                                          std::shared_ptr<const data::Graph> graph, c10::Device device,
                                                          int threads, const std::function<bool()>& keep_going,
                                                          const PlanContext& context);

  nn::TensorSet& tensors() override { return model_->tensors(); }
  std::string Describe() const override { return model_->Describe(); }
  std::string_view reading() const override { return features_.line; }
  int64_t num_outputs() const override { return num_outputs_; }
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  const graphcache::ShapePlan& plan() const override { return plan_; }
  graphcache::GraphSizes sizes() const override { return {}; }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  void PrepareDynamic(Mode mode, bool dynamic) override { part(mode).dynamic = dynamic; }
  int64_t batches_per_epoch() const override { return epochs_.batches_per_epoch(); }
  int64_t size(data::Split split) const override;
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;
  absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split split, bool keep_predictions,
                                                          const std::function<bool()>& keep_going) override;

 private:
  // A batch that was sampled to plan the rungs.
  struct Probe {
    std::vector<data::NodeId> seeds;
    uint64_t stream = 0;
    data::BlockSizes sizes;
  };
  // Batches of one mode, with the rungs that they are rounded up to.
  struct ModeParts {
    std::unique_ptr<data::BlockBatcher> stream, prober;  // one for the stream's thread, one for this
    BlockRungs rungs;
    std::vector<Probe> probes;
    std::atomic<bool> dynamic{false};  // batches are made ready at their own sizes, not at those of a rung
  };

  NodeTask(const TrainOptions& options, std::shared_ptr<const data::Graph> graph,
           std::array<std::vector<data::NodeId>, 3> splits, const nn::NodeModelOptions& model, c10::Device device);
  bool sparse() const { return HasSparseFeatures(graph_->summary()); }
  ModeParts& part(Mode mode) { return parts_[static_cast<size_t>(mode)]; }
  // Finds out how features are read.
  absl::Status OpenFeatures(const nn::NodeModelOptions& model, const PlanContext& context,
                            const std::function<bool()>& keep_going);
  absl::Status MakeParts(int threads, const std::function<bool()>& keep_going);
  // Samples some batches of the mode's splits and plans its rungs.
  absl::Status PlanRungs(Mode mode, const std::function<bool()>& keep_going);
  // Of batches of equally many seeds, which become probes.
  absl::StatusOr<BlockRungs> PlanChain(ModeParts& parts, const data::NeighborSamplingOptions& sampling,
                                       std::span<std::vector<data::NodeId>> batches,
                                       const std::function<bool()>& keep_going);
  // What this run read so far; looks after the memory of the cache by the way. nullopt: features are mapped.
  std::optional<data::RowReading> Reading();
  std::unique_ptr<BatchStream> Stream(Mode mode, data::EpochOrder epochs, int64_t epoch, int64_t first,
                                      uint64_t first_stream);

  const TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;
  const c10::Device device_;
  const int64_t num_outputs_;
  const std::array<std::vector<data::NodeId>, 3> splits_;
  const data::EpochOrder epochs_;
  const std::unique_ptr<nn::NodeModel> model_;
  data::RowCaches* row_caches_ = nullptr;
  data::RowCaches::Session features_;  // before what gathers by it
  data::RowCounters features_before_;  // as the run found them
  std::array<ModeParts, 2> parts_;     // by Mode
  graphcache::ShapePlan plan_;
  std::array<data::BlockBatch, 2> probes_;
  std::vector<SampledBatch> probe_views_;
};

}  // namespace permafrost::train
