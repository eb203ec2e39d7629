// Jobs on one large graph that sample blocks around seed nodes. The seeds are the nodes to predict, or the ends of
// links.
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

class NodeTask final : public Task {
 public:
  // Errors: same as Task::Create.
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
  // The first sample numbers of evaluation and of probes. Training batches count from 0, so these begin far above.
  static constexpr uint64_t kEvalStreams = uint64_t{1} << 62, kProbeStreams = kEvalStreams + (uint64_t{1} << 61);
  // A batch that is sampled before the first step, to plan the rungs.
  struct Probe {
    std::vector<data::NodeId> seeds;
    std::vector<int64_t> times;  // one for each seed, or empty
    int64_t most_seeds = 0;      // the most seeds of any batch with this number of links or nodes
    bool full = false;           // whether the batch of all ranks has the job's batch size
    data::LinkBatch pairs;       // set if links are predicted
    uint64_t stream = 0;
    data::BlockSizes sizes;
  };
  // The makers of one mode's batches, and the rungs to which batches are rounded up.
  struct ModeParts {
    // The batchers. The stream's thread uses `stream`, and the device thread uses `prober`.
    std::unique_ptr<data::BlockBatcher> stream, prober;
    BlockRungs rungs;
    std::vector<Probe> probes;
    std::vector<data::BlockSizes> alike;  // BlockRungs::Alike of the probes, in the order of the probes
    std::vector<data::BlockSizes> kept;   // sizes of the first probes, stored by an equal job; or empty
    // `dynamic` and `ladder` determine the sizes to which the stream pads batches. If `dynamic`, a batch is padded to
    // its dynamic_sizes. Otherwise it is padded to the rung of `ladder` that is to serve it or, without a ladder, to
    // its own rung.
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
  // If the device is to gather the features, and memory allows it, reads the features into table_.
  absl::Status ReadTable(const JobNodeModel& model, const PlanContext& context,
                         const std::function<bool()>& keep_going);
  // Returns true if batches of the mode carry row numbers of table_, and false if the host gathers their features.
  // Batches that begin with means use table_ only if the whole table lies on the device. Otherwise the host computes
  // the means, since sending them to the device takes less than sending rows.
  bool UsesTable(Mode mode) const { return table_.defined() && (GathersRows(mode) || table_makes_means_); }
  bool MeansElsewhere(Mode mode) const { return UsesTable(mode) && !GathersRows(mode); }
  // Returns true if batches of the mode hold rows of features without means.
  bool GathersRows(Mode mode) const;
  FeatureTable TableOf(Mode mode) const { return UsesTable(mode) ? table_ : FeatureTable(); }
  // Decides whether features are read through the mapping or through a row cache, and opens the cache.
  absl::Status OpenFeatures(const JobNodeModel& model, const PlanContext& context,
                            const std::function<bool()>& keep_going);
  // Returns, for each node, how many times the batches of an epoch and of its evaluation are expected to contain it.
  absl::StatusOr<std::vector<float>> ExpectedDraws(const std::function<bool()>& keep_going) const;
  absl::Status MakeParts(int threads, const std::function<bool()>& keep_going);
  // Returns a probe, not sampled yet, of the nodes or links `ids`, which are this rank's share of a batch. `full` is
  // as in Probe.
  absl::StatusOr<Probe> ProbeOf(std::span<const uint32_t> ids, int64_t epoch, bool full) const;
  // Makes an artificial block of exactly this shape, for a program. The block is valid until the next call with a
  // `probe` of the same parity.
  absl::StatusOr<HostBatch*> ExactProbe(Mode mode, size_t probe, const BatchShape& shape);
  // Samples some batches of the mode's splits and plans the mode's rungs from them.
  absl::Status PlanRungs(Mode mode, const std::function<bool()>& keep_going);
  // Returns the sizes of all probes, for the plan to keep.
  SampledSizes Sampled() const;
  // Samples `batches`, which have equally many nodes or links, and plans their rungs. The batches become probes of
  // `parts`.
  absl::StatusOr<BlockRungs> PlanChain(ModeParts& parts, const data::NeighborSamplingOptions& sampling,
                                       std::span<Probe> batches, const std::function<bool()>& keep_going);
  // Returns how many batches of the whole run are expected at each rung, extrapolated from the probes.
  std::vector<graphcache::PlannedShape> ExpectedBatches(Mode mode) const;
  // Returns the counts of ExpectedBatches. A planned rung at which no batch is expected has the count 0.
  std::vector<graphcache::ShapeCount> RungCounts(Mode mode) const;
  // Returns the sizes to which the stream pads a batch with these real sizes.
  data::BlockSizes ReadyAt(Mode mode, const data::BlockSizes& real) const;
  // Plans the evaluations that sample outside the graph cache: those of links with times, and of links that a program
  // predicts.
  absl::Status PlanLinkEvaluation(int threads, const std::function<bool()>& keep_going);
  // Returns true if links are predicted, and the decoder scores links from the model's rows.
  bool decodes_pairs() const { return links_ != nullptr && !made_.scores_pairs; }
  // Runs a program on a block sampled around these seeds, as in an evaluation. `stream` is the sample number. `pairs`
  // are pairs of the seeds, on the host, or undefined.
  absl::StatusOr<at::Tensor> ForwardOfSample(std::span<const data::NodeId> seeds, uint64_t stream,
                                             const nn::NodePairs& pairs);
  // Returns a program's outputs for all nodes, [nodes, channels] on the device, computed on sampled blocks as in an
  // evaluation.
  absl::StatusOr<at::Tensor> PredictBySamples(const std::function<bool()>& keep_going);
  // Evaluates a program that scores pairs itself. Scores each batch of pairs on a block sampled around their ends.
  absl::StatusOr<Evaluation> EvaluatePairsBySamples(data::Split split, bool keep_predictions,
                                                    const std::function<bool()>& keep_going);
  absl::StatusOr<Evaluation> EvaluateTimedLinks(data::Split split, bool keep_predictions,
                                                const std::function<bool()>& keep_going);
  // Returns what this run has read through the row cache, or nullopt if features are mapped. Also adapts the memory
  // of the row cache.
  std::optional<data::RowReading> Reading();
  // Returns the batches of the plan's first pass, from its first batch on. If `keeps`, the stream then goes on with
  // the following passes.
  std::unique_ptr<BatchStream> Batches(Mode mode, SampledPasses::Plan plan, bool keeps);

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;  // without held-out links, if links are predicted
  const std::unique_ptr<Links> links_;              // null if nodes are predicted
  const data::SeedTimes times_;                     // times of the seeds, if nodes are predicted
  const c10::Device device_;
  const int64_t num_outputs_;
  const std::array<std::vector<data::NodeId>, 3> splits_;
  collective::Group* const group_;  // null if no other rank trains this job
  const data::EpochOrder epochs_;   // this rank's share of the batches
  const MadeNodeModel made_;
  const BlockForm form_;
  std::string padding_note_, fusion_note_;
  TorchThreads torch_threads_ = TorchThreads::kAll;
  FeatureTable table_;  // undefined if there is none
  bool table_makes_means_ = false;
  std::string table_line_;
  data::RowCaches* row_caches_ = nullptr;
  data::RowCaches::Session features_;  // declared before the batchers, which gather through it
  data::RowCounters features_before_;  // counters of the row cache when the run began
  std::array<ModeParts, 2> parts_;     // by Mode
  graphcache::ShapeSchedule plan_;
  std::array<data::BlockBatch, 2> probes_;
  std::array<data::LinkBatch, 2> probe_pairs_;
  std::vector<SampledBatch> probe_views_;
  // True if batches of one mode are made ready while the steps use batches of the other mode. This takes memory for
  // the batches of both modes.
  bool keeps_passes_ = false;
  int64_t validations_ = 0;  // validations begun so far
  int64_t epoch_ = 0;        // the epoch that training is in
  // By Mode: the passes whose batches are made ready ahead, or null. Declared last, so that their threads end before
  // anything that they use.
  std::array<std::shared_ptr<SampledPasses>, 2> passes_;
};

}  // namespace permafrost::train
