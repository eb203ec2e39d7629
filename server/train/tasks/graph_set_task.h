// Graph-level jobs. A job's dataset is a set of many small graphs, and the job predicts one or several values for
// each graph.
#pragma once

#include <memory>

#include "data/batching/batch.h"
#include "data/batching/prefetcher.h"
#include "data/sampling/epoch_order.h"
#include "nn/models/model.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Counts the edges of a set that begin and end at the same node. Errors: DataLoss.
absl::StatusOr<int64_t> CountSelfLoops(const data::GraphSet& set);

// A view of a batch of small graphs on the host. It borrows the batcher, and the batch that it is bound to. Threads:
// one at a time.
class GraphSetHostBatch final : public HostBatch {
 public:
  // Binds the object to `host`, unless it is null. If `pads` is false, a batch is never padded beyond least_padded().
  explicit GraphSetHostBatch(const data::Batcher& batcher, data::PaddedBatch* host = nullptr, bool pads = true)
      : batcher_(&batcher), host_(host), pads_(pads) {}

  BatchShape real() const override { return host_->real; }
  BatchShape least_padded() const override { return data::Batcher::LeastPadded(host_->real); }
  BatchShape padded() const override { return host_->padded; }
  std::span<const uint32_t> ids() const override { return host_->graph_ids; }
  int64_t ids_of_all_ranks() const override { return ids_of_all_ranks_; }
  std::span<const float> labels() const override;

  // Binds this object to the batch `host`, until the next call. The batch of all ranks has `graphs` graphs; `host` is
  // this rank's share of it.
  void Bind(data::PaddedBatch& host, int64_t graphs) {
    host_ = &host;
    ids_of_all_ranks_ = graphs;
  }

 private:
  // Errors: Internal if `pads` is false and `shape` is not least_padded().
  absl::Status Pad(const BatchShape& shape) override;
  graphcache::StepInputs Inputs(const int64_t& step) const override;

  const data::Batcher* batcher_;
  data::PaddedBatch* host_ = nullptr;
  int64_t ids_of_all_ranks_ = 0;
  bool pads_ = true;
};

class GraphSetTask final : public Task {
 public:
  // Errors: same as Task::Create.
  static absl::StatusOr<std::unique_ptr<GraphSetTask>> Create(const spec::TrainOptions& options,
                                                              std::shared_ptr<const data::GraphSet> set,
                                                              c10::Device device,
                                                              const std::function<bool()>& keep_going,
                                                              const PlanContext& context = {});

  nn::TensorSet& tensors() override { return model_->tensors(); }
  std::string Describe() const override { return model_->Describe(); }
  std::string_view reading() const override { return reading_; }
  std::vector<std::string> notes() const override { return notes_; }
  int64_t num_outputs() const override { return num_outputs_; }
  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const override;
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override;
  const graphcache::ShapeSchedule& plan() const override { return plan_; }
  bool pads() const override { return pads_; }
  TorchThreads torch_threads() const override { return torch_threads_; }
  graphcache::GraphSizes sizes() const override;
  absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(const std::function<bool()>& keep_going) override;
  absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) override;
  absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) override;
  absl::StatusOr<HostBatch*> SmallProbe(Mode mode, size_t probe) override;
  absl::StatusOr<HostBatch*> RungProbe(Mode mode, const BatchShape& shape) override;
  int64_t batches_per_epoch() const override { return epochs_.batches_per_epoch(); }
  int64_t size(data::Split split) const override { return std::ssize(batcher_->split(split)); }
  std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) override;
  std::unique_ptr<BatchStream> EvalBatches(data::Split split) override;

  const data::Batcher& batcher() const { return *batcher_; }

 private:
  GraphSetTask(const spec::TrainOptions& options, int64_t rank, const nn::GraphModelOptions& model,
               std::unique_ptr<data::Batcher> batcher, std::unique_ptr<nn::GraphModel> made, bool pads);
  // Composes probe number `probe` from rows of the mode's splits, at exactly this shape. Used if steps read their
  // sizes from the shape, because a batch then has only the least padding.
  absl::StatusOr<HostBatch*> ExactProbe(Mode mode, size_t probe, const BatchShape& shape);
  // Returns graphs of the mode's splits, in order, as many as fit `shape` together; empty if none fits. If a graph
  // with a label fits, the result has one.
  std::vector<uint32_t> GraphsThatFill(Mode mode, const BatchShape& shape) const;
  // Returns a budget with about as many nodes and edges as a random batch has, and at least as many as the largest
  // graph.
  spec::BatchingOptions TypicalBudget() const;
  // True if any graph of the mode's splits fits `shape`.
  bool HoldsAGraph(Mode mode, const BatchShape& shape) const;
  // Makes probe number `probe` of a capture for every shape up to `ceiling`.
  absl::StatusOr<HostBatch*> ProbeBelow(Mode mode, size_t probe, const BatchShape& ceiling);
  BatchShape CeilingOf(Mode mode) const;
  // Returns true if the graph has a label. If no graph of the mode's splits has a label, returns true too, since no
  // step of the mode has a loss then.
  bool HasLoss(Mode mode, uint32_t graph) const;
  // Assembles a batch of the graphs that GraphsThatFill returns. If `part` > 1, takes only every `part`-th of these
  // graphs. If none of these has a label, adds a graph with a label. If none has edges, adds a graph with edges.
  absl::Status AssembleOne(Mode mode, const BatchShape& shape, data::PaddedBatch& out, size_t part = 1) const;
  // Assembles a batch of the graphs that OtherGraph returns. If these are the graphs of AssembleOne, the batch gets
  // other values.
  absl::Status AssembleOther(Mode mode, const BatchShape& shape, data::PaddedBatch& out) const;
  // Returns one graph of the mode's splits that fits `shape` and is not the only graph of `first`. Prefers a graph
  // with a label, then one with edges, then one with nodes. Returns `first` if no other graph fits.
  std::vector<uint32_t> OtherGraph(Mode mode, const BatchShape& shape, const std::vector<uint32_t>& first) const;

  const int64_t num_epochs_;
  const spec::Loss loss_;
  const int64_t num_outputs_;
  const bool pads_;  // whether batches may have more than the least padding
  const std::unique_ptr<data::Batcher> batcher_;
  const data::EpochOrderOptions order_options_;
  const int64_t typical_batch_;  // graphs of a full training batch
  const data::EpochOrder epochs_;
  const std::array<bool, 2> has_labels_;  // by Mode: whether any graph of the mode's splits has a label
  const std::unique_ptr<nn::GraphModel> model_;
  graphcache::ShapeSchedule plan_;
  TorchThreads torch_threads_ = TorchThreads::kAll;
  std::string reading_;
  std::vector<std::string> notes_;
  std::array<data::PaddedBatch, 2> probes_;
  std::array<GraphSetHostBatch, 2> probe_views_;
};

}  // namespace permafrost::train
