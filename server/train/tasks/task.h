// A task is what a job learns and on what data: the part of a run that differs between many small graphs and one large
// one.
// Threads: the device thread, but for what streams of batches do on threads of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/operators.h"
#include "base/status.h"
#include "base/step.h"
#include "data/store/dataset.h"
#include "data/store/graph.h"
#include "device/step_program.h"
#include "graphcache/cache_plan.h"
#include "graphcache/executable.h"
#include "graphcache/shape_plan.h"
#include "nn/loss.h"
#include "nn/optimizer.h"
#include "nn/tensor_set.h"
#include "spec/model.h"
#include "spec/train_options.h"
#include "train/loop/artifacts.h"
#include "train/planning/job_schedule.h"
#include "train/planning/run_size.h"
#include "train/runner.h"

namespace permafrost::train {

// A batch made ready on the host. "Graphs" of its shapes are what is predicted for: graphs, or seed nodes.
class HostBatch : public graphcache::Batch {
 public:
  // The shape to which the batch is padded now.
  virtual BatchShape padded() const = 0;
  BatchShape dynamic_shape() const override { return graphcache::AtLeastDynamic(least_padded()); }
  absl::StatusOr<const graphcache::StepInputs*> PadTo(const BatchShape& shape, int64_t step) final;
  absl::StatusOr<const graphcache::StepInputs*> PadDynamic(int64_t step) final;
  // Returns the batch as it is padded now; it is valid as long as those are. The values of a batch are on the host, and
  // a capturer brings it to the device; of a whole graph the rest is there.
  const graphcache::StepInputs* TakeInputs(int64_t step);
  // Graphs or nodes of the dataset that are predicted for; their labels [ids, targets], NaN where missing; and the rows
  // of a prediction that are theirs, empty for the first ones.
  virtual std::span<const uint32_t> ids() const = 0;
  // How many of them the batch has on all ranks together.
  virtual int64_t ids_of_all_ranks() const { return std::ssize(ids()); }
  virtual std::span<const float> labels() const = 0;
  virtual std::span<const int64_t> prediction_rows() const { return {}; }

 private:
  // Pads it to `shape`, to dynamic_shape(), unless it is. Errors: as PadTo.
  virtual absl::Status Pad(const BatchShape& shape) = 0;
  virtual absl::Status PadToDynamic() { return Pad(dynamic_shape()); }
  // Inputs on the host share the memory of this batch and of `step`, which outlive them.
  virtual graphcache::StepInputs Inputs(const int64_t& step) const = 0;

  int64_t step_ = 0;
  graphcache::StepInputs inputs_;
};

// Batches in order, made ready ahead by other threads. Destruction stops them at once.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  // The next batch, the caller's until the following call; nullptr after the last one. Errors stay.
  virtual absl::StatusOr<HostBatch*> Next() = 0;
  // The look-ahead of the sampler, if one runs ahead. Any thread's view of it; a moment old.
  virtual std::optional<LookAhead> look_ahead() const { return std::nullopt; }
};

// One pass over a split without training.
struct Evaluation {
  double loss = 0;              // mean over present labels; NaN where there are none
  bool has_labels = false;      // of those
  std::vector<double> metrics;  // MetricsOf the job
  // The split's graphs, nodes or links with their predictions [ids, values that NameRows names], in split order; only
  // if asked for.
  std::vector<uint32_t> ids;
  std::vector<float> predictions;
};

// Returns the options with a seed of its own for each rank but 0, so that ranks drop other values. Their weights differ
// too, until rank 0 sends its own.
spec::TrainOptions OfRank(spec::TrainOptions options, int64_t rank);

// The splits whose batches a step of this mode sees.
std::vector<data::Split> SplitsOf(Mode mode);

// Returns what the source calls these nodes. Errors: DataLoss.
absl::StatusOr<std::vector<std::string>> NamesOfNodes(const data::Graph& graph, std::span<const uint32_t> nodes);
// Rows of nodes with `outputs` predictions each. Errors: DataLoss.
absl::StatusOr<NamedRows> NameNodes(const data::Graph& graph, std::span<const uint32_t> nodes, int64_t outputs);
// "prediction_0", ...
std::vector<std::string> PredictionColumns(int64_t outputs);

class Task {
 public:
  // Errors: InvalidArgument with violations under "spec." for options that do not go with the dataset; DataLoss;
  // Cancelled where `keep_going`, asked now and then, says so.
  static absl::StatusOr<std::unique_ptr<Task>> Create(const spec::TrainOptions& options,
                                                      const data::OpenedDataset& dataset, c10::Device device,
                                                      int threads, const std::function<bool()>& keep_going,
                                                      const PlanContext& context = {});
  // Returns Ok if a model with these options can be built for this dataset and, on one large graph, trained within
  // `limits`. Else returns InvalidArgument with violations under `prefix`.
  static absl::Status Check(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                            const MemoryLimits& limits, std::string_view prefix);
  // Ok if a job on a set of small graphs fits in memory, by its plan; if one that reads labels finds some that go with
  // its loss in the train split; if one that walks finds what it walks along; and if one that predicts links has some
  // to rank. Returns what the job's user should know, a line each. Errors: InvalidArgument with violations under
  // `prefix`; as PlanJob; DataLoss from the dataset.
  static absl::StatusOr<std::vector<std::string>> CheckFits(const spec::TrainOptions& options,
                                                            const data::OpenedDataset& dataset,
                                                            const PlanContext& context, std::string_view prefix,
                                                            const std::function<bool()>& keep_going);
  virtual ~Task() = default;

  // Names these graphs, nodes or links of an evaluation of `split`: by their names in the source, if they have some.
  // Errors: DataLoss.
  virtual absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const = 0;

  virtual nn::TensorSet& tensors() = 0;
  // For `__metadata__` of the weights file.
  virtual std::string Describe() const = 0;
  // Tells how the features are read and why, in one line; empty: there is nothing to say.
  virtual std::string_view reading() const { return ""; }
  // Returns notes for its user about how it is trained and evaluated, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual int64_t num_outputs() const = 0;

  struct Output {
    at::Tensor prediction;  // [padded graphs, outputs]; of links [pairs, 1]
    at::Tensor labels;      // [padded graphs, targets]; of links [pairs, 1]
    at::Tensor loss;        // scalar, of a program that makes its own; undefined: the job's loss is computed
  };
  virtual Output Forward(const graphcache::StepInputs& inputs, Mode mode) = 0;
  // A training batch's loss, and its gradient by few rows of the one parameter.
  struct RowStep {
    nn::LossTerms terms;
    nn::RowGradient gradient;
  };
  // For tasks that make outputs and gradients themselves; nullopt: Forward, the job's loss and autograd do.
  virtual std::optional<RowStep> StepRows(const graphcache::StepInputs& /*inputs*/) { return std::nullopt; }

  // The plan that the graph cache knows ahead.
  virtual const graphcache::ShapeSchedule& plan() const = 0;
  virtual graphcache::GraphSizes sizes() const = 0;
  // The batches of all planned epochs, composed as the job asks, and then in the other ways that it may choose. Errors:
  // Cancelled where `keep_going`, asked now and then, says so.
  virtual absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(
      const std::function<bool()>& keep_going) = 0;
  // Two batches of the mode's splits, padded to `shape`, that differ. Valid until the next call.
  virtual absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) = 0;
  // Probe 0, 1, ... of a capture for every shape, as ProbeInputs (device/step_program.h) wants them: padded, the first
  // to the plan's ceiling of the mode. Valid until the next call.
  virtual absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) = 0;
  // Returns the same for a step whose storage is not laid out: a small batch, if the task can make one.
  virtual absl::StatusOr<HostBatch*> SmallProbe(Mode mode, size_t probe) { return DynamicProbe(mode, probe); }
  // A batch of the mode's splits, padded to `shape`. Valid until the next call.
  virtual absl::StatusOr<HostBatch*> RungProbe(Mode mode, const BatchShape& shape) {
    PF_ASSIGN_OR_RETURN(const auto probes, Probes(mode, shape));
    return probes[0];
  }
  // False: steps read their sizes from the batch's shape, so a batch gets no padding beyond least_padded().
  virtual bool pads() const { return true; }
  // Returns how many threads libtorch's operators use in its steps on a CPU. It depends only on the job, so a resumed
  // run uses as many.
  virtual TorchThreads torch_threads() const { return TorchThreads::kAll; }
  // Why there is no capture for every shape; empty: there is.
  virtual std::string NoDynamicReason() const { return {}; }
  // Tells, as a hint to the threads that make batches ready, whether the mode's batches are padded to their
  // dynamic_shape(), and the ladder that they are rounded up to, if there is one.
  virtual void Prepare(Mode /*mode*/, bool /*dynamic*/, const std::vector<BatchShape>& /*ladder*/) {}

  virtual int64_t batches_per_epoch() const = 0;
  // Graphs, nodes or links of a split.
  virtual int64_t size(data::Split split) const = 0;
  // Links of a split that no evaluation ranks, since they have no negatives; metrics are of the others.
  virtual int64_t unranked(data::Split /*split*/) const { return 0; }
  // Batches first_batch.. of training epoch `epoch` (from 0). Streams end before the task.
  virtual std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) = 0;
  // For tasks that are evaluated by steps, for which EvaluateWhole gives nothing.
  virtual std::unique_ptr<BatchStream> EvalBatches(data::Split split) = 0;
  // Evaluates by another way than steps over EvalBatches; nullopt: there is none. `keep_going` is asked now and then;
  // false ends with Cancelled. Every rank of a job calls
  // this and gets the result of the whole split; they may divide the work.
  virtual absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split /*split*/, bool /*keep_predictions*/,
                                                                  const std::function<bool()>& /*keep_going*/) {
    return std::nullopt;
  }
};

// Sizes of the batches that a capture for every shape is made from. They differ from probe to probe in each dimension,
// and in each in a way of its own, so that an integer follows from them in one way only. Pure functions.

// Returns what probe 1, 2, ... has in a dimension above `least`: another size for each of them, `least` + `range` at
// most, or `least` + kLeastSpread where that is more.
inline constexpr int64_t kLeastSpread = 15;
int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range);

// The first is `ceiling`, or 2 where it is less. The others lie between its half and itself where that leaves room;
// above it in small dimensions, or in all: not `below`.
std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below);

}  // namespace permafrost::train
