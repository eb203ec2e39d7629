// A task is the part of a run that depends on the kind of job: the model, and the data that it learns from. A job has
// many small graphs or one large graph.
// Threads: the device thread. Streams of batches also run threads of their own.
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

// A batch made ready on the host. In its shapes, `graphs` counts the graphs of a graph-level job, or the seed nodes
// of a node-level job.
class HostBatch : public graphcache::Batch {
 public:
  // Returns the shape to which the batch is padded now.
  virtual BatchShape padded() const = 0;
  BatchShape dynamic_shape() const override { return graphcache::AtLeastDynamic(least_padded()); }
  absl::StatusOr<const graphcache::StepInputs*> PadTo(const BatchShape& shape, int64_t step) final;
  absl::StatusOr<const graphcache::StepInputs*> PadDynamic(int64_t step) final;
  // Returns the inputs of a step for the batch as it is padded now. They are valid until the batch is padded or bound
  // again. The tensors lie on the host, and the device's capturer copies them to the device. An exception is the
  // whole graph: only its pairs, their labels and the step lie on the host.
  const graphcache::StepInputs* TakeInputs(int64_t step);
  // Returns the dataset's graphs or nodes for which the batch makes predictions.
  virtual std::span<const uint32_t> ids() const = 0;
  // Returns how many ids the batch has on all ranks together.
  virtual int64_t ids_of_all_ranks() const { return std::ssize(ids()); }
  // Returns the labels of ids(), [ids, targets]; NaN where a label is missing.
  virtual std::span<const float> labels() const = 0;
  // Returns the row of each id in the prediction; empty if the ids have the first rows, in order.
  virtual std::span<const int64_t> prediction_rows() const { return {}; }

 private:
  // Pad pads the batch to `shape`, and PadToDynamic pads it to dynamic_shape(). Neither does anything if the batch
  // already has that padding. Errors: same as PadTo.
  virtual absl::Status Pad(const BatchShape& shape) = 0;
  virtual absl::Status PadToDynamic() { return Pad(dynamic_shape()); }
  // Inputs on the host share the memory of this batch and of `step`, which must outlive them.
  virtual graphcache::StepInputs Inputs(const int64_t& step) const = 0;

  int64_t step_ = 0;
  graphcache::StepInputs inputs_;
};

// Yields batches in order. Other threads prepare the batches ahead; the destructor stops these threads at once.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  // Returns the next batch, or nullptr after the last one. The caller may use a batch until the following call. After
  // an error, every later call returns the same error.
  virtual absl::StatusOr<HostBatch*> Next() = 0;
  // Returns the look-ahead of the sampler, or nullopt if no sampler runs ahead. Any thread may call it; the values may
  // be a moment old.
  virtual std::optional<LookAhead> look_ahead() const { return std::nullopt; }
};

// The result of an evaluation: one pass over a split, without training.
struct Evaluation {
  double loss = 0;              // mean over the labels that are present; NaN if there are none
  bool has_labels = false;      // whether any label is present
  std::vector<double> metrics;  // values of MetricsOf the job
  // `ids` are the ids of the split's graphs, nodes or links, in split order. `predictions` are their predictions,
  // [ids, values]; NameRows names the values. Both lists are empty unless predictions were requested.
  std::vector<uint32_t> ids;
  std::vector<float> predictions;
};

// Returns the options of a rank that draws its own dropout masks. Each rank except rank 0 gets its own seed. The
// ranks' initial weights differ too, until rank 0 sends its weights to all. Our own models on sets of graphs need no
// separate seeds, because keys give each row the mask that it would have on a single rank.
spec::TrainOptions OfRank(spec::TrainOptions options, int64_t rank);

// Returns the splits whose batches a step of this mode sees.
std::vector<data::Split> SplitsOf(Mode mode);

// Returns the names of these nodes in the source. Errors: DataLoss.
absl::StatusOr<std::vector<std::string>> NamesOfNodes(const data::Graph& graph, std::span<const uint32_t> nodes);
// Returns the names of a table's rows, one row for each of these nodes, with `outputs` predictions per row. Errors:
// DataLoss.
absl::StatusOr<NamedRows> NameNodes(const data::Graph& graph, std::span<const uint32_t> nodes, int64_t outputs);
// Returns "prediction_0", "prediction_1" and so on, one name for each output.
std::vector<std::string> PredictionColumns(int64_t outputs);

class Task {
 public:
  // Makes the task of a job. Errors: InvalidArgument with violations under "spec." for options that do not suit the
  // dataset; DataLoss; Cancelled if `keep_going`, called now and then, returns false.
  static absl::StatusOr<std::unique_ptr<Task>> Create(const spec::TrainOptions& options,
                                                      const data::OpenedDataset& dataset, c10::Device device,
                                                      int threads, const std::function<bool()>& keep_going,
                                                      const PlanContext& context = {});
  // Returns Ok if a model with these options can be built for this dataset and, on one large graph, trained within
  // `limits`. Otherwise returns InvalidArgument with violations under `prefix`.
  static absl::Status Check(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                            const MemoryLimits& limits, std::string_view prefix);
  // Makes the checks that need the dataset's content. A job on a set of small graphs must, by its plan, fit in
  // memory. A job that reads labels must have labels in the train split, and the labels must suit the loss. A job
  // that walks must have edges to walk along. A job that predicts links must have links to rank. Returns notes for
  // the job's user, one line each.
  // Errors: InvalidArgument with violations under `prefix`; those of PlanJob; DataLoss from the dataset.
  static absl::StatusOr<std::vector<std::string>> CheckFits(const spec::TrainOptions& options,
                                                            const data::OpenedDataset& dataset,
                                                            const PlanContext& context, std::string_view prefix,
                                                            const std::function<bool()>& keep_going);
  virtual ~Task() = default;

  // Returns the names of these graphs, nodes or links of an evaluation of `split`, as in the source if it has names.
  // Errors: DataLoss.
  virtual absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const = 0;

  virtual nn::TensorSet& tensors() = 0;
  // Returns a description of the model, for `__metadata__` of the weights file.
  virtual std::string Describe() const = 0;
  // Returns one line that tells how the features are read and why; empty if there is nothing to tell.
  virtual std::string_view reading() const { return ""; }
  // Returns notes for the job's user about its training and evaluation, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual int64_t num_outputs() const = 0;

  struct Output {
    at::Tensor prediction;  // [padded graphs, outputs]; for links [pairs, 1]
    at::Tensor labels;      // [padded graphs, targets]; for links [pairs, 1]
    at::Tensor loss;        // scalar that a program computes; if undefined, the job's loss is computed
  };
  virtual Output Forward(const graphcache::StepInputs& inputs, Mode mode) = 0;
  // The loss of a training batch, and its gradient with respect to some rows of the task's only parameter.
  struct RowStep {
    nn::LossTerms terms;
    nn::RowGradient gradient;
  };
  // Runs the forward and backward passes of a training step, if the task computes gradients itself. Any other task
  // returns nullopt, and the step then consists of Forward, the job's loss and autograd.
  virtual std::optional<RowStep> StepRows(const graphcache::StepInputs& /*inputs*/) { return std::nullopt; }

  // Returns the schedule of shapes that is known before the first step.
  virtual const graphcache::ShapeSchedule& plan() const = 0;
  virtual graphcache::GraphSizes sizes() const = 0;
  // Returns schedules of the batches of all planned epochs. The first schedule is for the job's own batching. Each
  // further one is for another batching that the job's user may choose. Errors: Cancelled if `keep_going`, called now
  // and then, returns false.
  virtual absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(
      const std::function<bool()>& keep_going) = 0;
  // Makes two different batches of the mode's splits, padded to `shape`. They are valid until the next probe is made.
  virtual absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) = 0;
  // Makes probe number `probe`, from 0, as ProbeInputs (device/step_program.h) requires it. From the probes, an
  // executable that serves every shape is captured. Probe 0 is padded to the plan's ceiling of the mode. A probe is
  // valid until the next one is made.
  virtual absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) = 0;
  // Same as DynamicProbe, but for a recording that does not lay out storage, so the batch need not reach the ceiling.
  // The batch is small if the task can make a small one.
  virtual absl::StatusOr<HostBatch*> SmallProbe(Mode mode, size_t probe) { return DynamicProbe(mode, probe); }
  // Makes a batch of the mode's splits, padded to `shape`. It is valid until the next probe is made.
  virtual absl::StatusOr<HostBatch*> RungProbe(Mode mode, const BatchShape& shape) {
    PF_ASSIGN_OR_RETURN(const auto probes, Probes(mode, shape));
    return probes[0];
  }
  // Returns false if steps read their sizes from the batch's shape. A batch then gets no padding beyond
  // least_padded().
  virtual bool pads() const { return true; }
  // Returns how many threads libtorch's operators use in the task's steps on a CPU. The number depends only on the
  // job, so a resumed run uses the same number.
  virtual TorchThreads torch_threads() const { return TorchThreads::kAll; }
  // Returns why no executable can serve every shape; empty if one can.
  virtual std::string NoDynamicReason() const { return {}; }
  // Tells the threads that prepare batches which padding to expect. If `dynamic`, the mode's batches are padded to
  // their dynamic_shape(). Otherwise they are rounded up to the rungs of `ladder`, which is empty if there are none.
  virtual void Prepare(Mode /*mode*/, bool /*dynamic*/, const std::vector<BatchShape>& /*ladder*/) {}

  virtual int64_t batches_per_epoch() const = 0;
  // Returns how many graphs, nodes or links a split has.
  virtual int64_t size(data::Split split) const = 0;
  // Returns how many links of a split are never ranked, because they have no negatives. Metrics leave them out.
  virtual int64_t unranked(data::Split /*split*/) const { return 0; }
  // Returns the batches of training epoch `epoch` from `first_batch` on, both counted from 0. The stream must end
  // before the task does.
  virtual std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) = 0;
  // Returns the batches that evaluate a split by steps. Only for tasks whose EvaluateWhole returns nullopt.
  virtual std::unique_ptr<BatchStream> EvalBatches(data::Split split) = 0;
  // Evaluates a split without evaluation steps. Returns nullopt if the task evaluates only by steps over EvalBatches.
  // Every rank of a job calls this method and gets the result of the whole split; the ranks may divide the work.
  // Errors: Cancelled if `keep_going`, called now and then, returns false.
  virtual absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split /*split*/, bool /*keep_predictions*/,
                                                                  const std::function<bool()>& /*keep_going*/) {
    return std::nullopt;
  }
};

// Sizes of the probes: the batches from which an executable for every shape is captured. In each dimension, sizes
// differ from probe to probe. No two dimensions vary in the same way, so each integer in the recording can come from
// only one dimension. Pure functions.

// Returns the size of a probe in a dimension. `probe` counts from 1, and each probe has a different size. The size is
// above `least`, and at most `least` + `range`, or `least` + kLeastSpread if that is more.
inline constexpr int64_t kLeastSpread = 15;
int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range);

// Returns the shapes of the probes. Probe 0 has the shape `ceiling`, with each dimension at least 2. If `below` is
// set, the other probes' sizes lie between ceiling / 2 and the ceiling in each dimension where this leaves room for
// different sizes. Otherwise, the sizes lie above the ceiling.
std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below);

}  // namespace permafrost::train
