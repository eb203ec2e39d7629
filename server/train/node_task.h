// Jobs on one large graph that sample blocks of it, around the nodes that they predict for or the ends of links.
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
#include "train/links.h"
#include "train/sampled_stream.h"
#include "train/task.h"

namespace permafrost::train {

// Jobs that sample.
class NodeTask final : public Task {
 public:
  // Errors: as Task::Create.
  static absl::StatusOr<std::unique_ptr<NodeTask>> Create(const TrainOptions& options,
                                                          std::shared_ptr<const data::Graph> graph, c10::Device device,
                                                          int threads, const std::function<bool()>& keep_going,
                                                          const PlanContext& context);

  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override {
    return links_ != nullptr ? links_->NameRows(split, ids) : NameNodes(*graph_, ids, num_outputs_);
  }
  nn::TensorSet& tensors() override { return model_->tensors(); }
  std::string Describe() const override { return links_ != nullptr ? links_->Describe(*model_) : model_->Describe(); }
  std::string_view reading() const override { return features_.line; }
  int64_t num_outputs() const override { return links_ != nullptr ? 1 : num_outputs_; }
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
    std::vector<int64_t> times;  // of the seeds, or empty
    int64_t most_seeds = 0;      // of a batch of as many links, or as many nodes
    bool full = false;           // whether the batch is of the job's batch size
    data::LinkBatch pairs;       // where links are predicted
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

  NodeTask(const TrainOptions& options, std::shared_ptr<const data::Graph> graph, std::unique_ptr<Links> links,
           std::array<std::vector<data::NodeId>, 3> splits, const nn::NodeModelOptions& model, c10::Device device);
  bool sparse() const { return HasSparseFeatures(graph_->summary()); }
  ModeParts& part(Mode mode) { return parts_[static_cast<size_t>(mode)]; }
  // Finds out how features are read.
  absl::Status OpenFeatures(const nn::NodeModelOptions& model, const PlanContext& context,
                            const std::function<bool()>& keep_going);
  absl::Status MakeParts(int threads, const std::function<bool()>& keep_going);
  // Of so many seed nodes, or empty: every edge is before them.
  std::vector<int64_t> TimesOf(size_t seeds) const {
    return std::vector<int64_t>(options_.nodes.seed_time ? seeds : 0, options_.nodes.seed_time.value_or(0));
  }
  // The batch of these nodes or links of a training epoch, not sampled yet.
  absl::StatusOr<Probe> ProbeOf(std::span<const uint32_t> ids, int64_t epoch) const;
  // Samples some batches of the mode's splits and plans its rungs.
  absl::Status PlanRungs(Mode mode, const std::function<bool()>& keep_going);
  // Of batches of equally many nodes or links, which become probes.
  absl::StatusOr<BlockRungs> PlanChain(ModeParts& parts, const data::NeighborSamplingOptions& sampling,
                                       std::span<Probe> batches, const std::function<bool()>& keep_going);
  // Of links with times, whose evaluation is sampled outside the graph cache.
  absl::Status PlanLinkEvaluation(int threads, const std::function<bool()>& keep_going);
  absl::StatusOr<Evaluation> EvaluateTimedLinks(data::Split split, bool keep_predictions,
                                                const std::function<bool()>& keep_going);
  // What this run read so far; looks after the memory of the cache by the way. nullopt: features are mapped.
  std::optional<data::RowReading> Reading();
  std::unique_ptr<BatchStream> Stream(Mode mode, data::EpochOrder epochs, int64_t epoch, int64_t first,
                                      uint64_t first_stream);

  const TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;  // where links are predicted, without those held out
  const std::unique_ptr<Links> links_;              // nullptr: nodes are predicted
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
  std::array<data::LinkBatch, 2> probe_pairs_;
  std::vector<SampledBatch> probe_views_;
};

}  // namespace permafrost::train
