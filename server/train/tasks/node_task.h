// Jobs on one large graph that sample blocks of it, around the nodes that they predict for or the ends of links.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "collective/group.h"
#include "data/batching/block_batch.h"
#include "data/batching/pair_batch.h"
#include "data/rows/row_cache.h"
#include "data/rows/row_caches.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/epoch_order.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "train/planning/block_rungs.h"
#include "train/planning/job_schedule.h"
#include "train/tasks/feature_table.h"
#include "train/tasks/links.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/program_model.h"
#include "train/tasks/sampled_passes.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Jobs that sample.
class NodeTask final : public Task {
 public:
  // Errors: as Task::Create.
  static absl::StatusOr<std::unique_ptr<NodeTask>> Create(const spec::TrainOptions& options,
                                                          std::shared_ptr<const data::Graph> graph, c10::Device device,
                                                          int threads, const std::function<bool()>& keep_going,
                                                          const PlanContext& context);

  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override {
    return links_ != nullptr ? links_->NameRows(split, ids) : NameNodes(*graph_, ids, num_outputs_);
  }
  nn::TensorSet& tensors() override { return made_.model->tensors(); }
  std::string Describe() const override {
    return decodes_pairs() ? links_->Describe(*made_.model) : made_.model->Describe();
  }
  std::string_view reading() const override { return table_.defined() ? table_line_ : features_.line; }
  std::vector<std::string> notes() const override;
  int64_t num_outputs() const override { return links_ != nullptr ? 1 : num_outputs_; }
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  const graphcache::ShapeSchedule& plan() const override { return plan_; }
  graphcache::GraphSizes sizes() const override { return {}; }
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  bool pads() const override { return form_.pads; }
  TorchThreads torch_threads() const override { return torch_threads_; }
  void Prepare(Mode mode, bool dynamic, const std::vector<BatchShape>& ladder) override;
  int64_t batches_per_epoch() const override { return epochs_.batches_per_epoch(); }
  int64_t size(data::Split split) const override;
  int64_t unranked(data::Split split) const override { return links_ != nullptr ? links_->unranked(split) : 0; }
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;
  absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split split, bool keep_predictions,
                                                          const std::function<bool()>& keep_going) override;

 private:
  // Streams of sampling: training batches count from 0; others must not meet them.
  static constexpr uint64_t kEvalStreams = uint64_t{1} << 62, kProbeStreams = kEvalStreams + (uint64_t{1} << 61);
  // A batch that was sampled to plan the rungs.
  struct Probe {
    std::vector<data::NodeId> seeds;
    std::vector<int64_t> times;  // of the seeds, or empty
    int64_t most_seeds = 0;      // of a batch of as many links, or as many nodes
    bool full = false;           // whether the whole batch is of the job's batch size
    data::LinkBatch pairs;       // where links are predicted
    uint64_t stream = 0;
    data::BlockSizes sizes;
  };
  // Batches of one mode, with the rungs that they are rounded up to.
  struct ModeParts {
    std::unique_ptr<data::BlockBatcher> stream, prober;  // one for the stream's thread, one for this
    BlockRungs rungs;
    std::vector<Probe> probes;
    std::vector<data::BlockSizes> alike;  // BlockRungs::Alike of the probes, in their order
    std::vector<data::BlockSizes> kept;   // sizes of the first probes, as an equal job sampled them; or empty
    // The sizes that batches are made ready at: their own, or the rung of the ladder that is to serve theirs; without a
    // ladder at their own rung.
    mutable absl::Mutex mu;
    bool dynamic ABSL_GUARDED_BY(mu) = false;
    std::vector<BatchShape> ladder ABSL_GUARDED_BY(mu);
  };

  NodeTask(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph, std::unique_ptr<Links> links,
           std::array<std::vector<data::NodeId>, 3> splits, int64_t num_outputs, MadeNodeModel made, c10::Device device,
           BlockForm form, collective::Group* group);
  int64_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  ModeParts& part(Mode mode) { return parts_[static_cast<size_t>(mode)]; }
  const ModeParts& part(Mode mode) const { return parts_[static_cast<size_t>(mode)]; }
  // Returns whether batches carry the weights of their edges.
  bool ReadsWeights() const { return made_.reads_edge_weights && UsesEdgeWeights(options_, *graph_); }
  // Puts the features where the device gathers them, if it is to gather them and memory allows it.
  absl::Status ReadTable(const JobNodeModel& model, const PlanContext& context,
                         const std::function<bool()>& keep_going);
  // True: batches of the mode carry the numbers of their rows in the table; else the host gathers their features. Means
  // are made of a table only if all of it lies on the device: otherwise more rows than means would cross from the host.
  bool UsesTable(Mode mode) const { return table_.defined() && (GathersRows(mode) || table_makes_means_); }
  bool MeansElsewhere(Mode mode) const { return UsesTable(mode) && !GathersRows(mode); }
  // True: batches of the mode have plain rows of features, and no means.
  bool GathersRows(Mode mode) const;
  FeatureTable TableOf(Mode mode) const { return UsesTable(mode) ? table_ : FeatureTable(); }
  // Finds out how features are read.
  absl::Status OpenFeatures(const JobNodeModel& model, const PlanContext& context,
                            const std::function<bool()>& keep_going);
  // Returns how often the batches of an epoch and of its evaluation are expected to draw each node.
  absl::StatusOr<std::vector<float>> ExpectedDraws(const std::function<bool()>& keep_going) const;
  absl::Status MakeParts(int threads, const std::function<bool()>& keep_going);
  // Returns a probe of these nodes or links, this rank's share of a batch, not sampled yet. full: whether the batch of
  // all ranks is of the job's batch size.
  absl::StatusOr<Probe> ProbeOf(std::span<const uint32_t> ids, int64_t epoch, bool full) const;
  // Makes an artificial block of this shape for a program. It is valid until the next call whose `probe` is equally odd
  // or even.
  absl::StatusOr<HostBatch*> ExactProbe(Mode mode, size_t probe, const BatchShape& shape);
  // Samples some batches of the mode's splits and plans its rungs.
  absl::Status PlanRungs(Mode mode, const std::function<bool()>& keep_going);
  // Returns the sizes that it sampled ahead, to be kept.
  SampledSizes Sampled() const;
  // Plans the rungs of batches of equally many nodes or links, which become probes.
  absl::StatusOr<BlockRungs> PlanChain(ModeParts& parts, const data::NeighborSamplingOptions& sampling,
                                       std::span<Probe> batches, const std::function<bool()>& keep_going);
  // The batches of the whole run by the rungs that sampled ones are rounded up to, counted up from those.
  std::vector<graphcache::PlannedShape> ExpectedBatches(Mode mode) const;
  // Returns the same, with the planned rungs to which no batch came.
  std::vector<graphcache::ShapeCount> RungCounts(Mode mode) const;
  // Returns the sizes at which a batch with these real sizes is made ready.
  data::BlockSizes ReadyAt(Mode mode, const data::BlockSizes& real) const;
  // Plans evaluation outside the graph cache, by samples: of links with times, and of a program's links.
  absl::Status PlanLinkEvaluation(int threads, const std::function<bool()>& keep_going);
  // Returns whether links are scored by rows of the model's.
  bool decodes_pairs() const { return links_ != nullptr && !made_.scores_pairs; }
  // Runs a program on the evaluation's sample for these seeds. pairs: of the seeds, on the host, or undefined.
  absl::StatusOr<at::Tensor> ForwardOfSample(std::span<const data::NodeId> seeds, uint64_t stream,
                                             const nn::NodePairs& pairs);
  // Returns a program's rows of all nodes, [nodes, channels] on the device, computed from evaluation's samples.
  absl::StatusOr<at::Tensor> PredictBySamples(const std::function<bool()>& keep_going);
  // Evaluates a program that scores pairs itself: those of a batch by a sample of their ends.
  absl::StatusOr<Evaluation> EvaluatePairsBySamples(data::Split split, bool keep_predictions,
                                                    const std::function<bool()>& keep_going);
  absl::StatusOr<Evaluation> EvaluateTimedLinks(data::Split split, bool keep_predictions,
                                                const std::function<bool()>& keep_going);
  // Returns what this run read so far; looks after the memory of the cache by the way. nullopt: features are mapped.
  std::optional<data::RowReading> Reading();
  // Returns the first pass of the plan, or what is left of it. keeps: the passes after it are made ready ahead, too.
  std::unique_ptr<BatchStream> Batches(Mode mode, SampledPasses::Plan plan, bool keeps);

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;  // where links are predicted, without those held out
  const std::unique_ptr<Links> links_;              // nullptr: nodes are predicted
  const data::SeedTimes times_;                     // of nodes
  const c10::Device device_;
  const int64_t num_outputs_;
  const std::array<std::vector<data::NodeId>, 3> splits_;
  collective::Group* const group_;  // nullptr: no other rank trains this job
  const data::EpochOrder epochs_;   // of this rank
  const MadeNodeModel made_;
  const BlockForm form_;
  std::string padding_note_, fusion_note_;
  TorchThreads torch_threads_ = TorchThreads::kAll;
  FeatureTable table_;  // undefined: there is none
  bool table_makes_means_ = false;
  std::string table_line_;
  data::RowCaches* row_caches_ = nullptr;
  data::RowCaches::Session features_;  // before what gathers by it
  data::RowCounters features_before_;  // as the run found them
  std::array<ModeParts, 2> parts_;     // by Mode
  graphcache::ShapeSchedule plan_;
  std::array<data::BlockBatch, 2> probes_;
  std::array<data::LinkBatch, 2> probe_pairs_;
  std::vector<SampledBatch> probe_views_;
  // True: batches of a mode are made ready while the other's are used. Memory may be too short for that.
  bool keeps_passes_ = false;
  int64_t validations_ = 0;  // begun so far
  int64_t epoch_ = 0;        // that training is at
  // By Mode: those that are kept, or nullptr. Before all else these end.
  std::array<std::shared_ptr<SampledPasses>, 2> passes_;
};

}  // namespace permafrost::train
