// A task is the part of a run that differs between many small graphs and one large graph: what the job learns, and on
// what data.
// Threads: the device thread, except that streams of batches run threads of their own.
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

// A batch made ready on the host. `graphs` of its shapes counts what the job predicts for: graphs, or seed nodes.
class HostBatch : public graphcache::Batch {
 public:
  // Returns the shape to which the batch is padded now.
  virtual BatchShape padded() const = 0;
  BatchShape dynamic_shape() const override { return graphcache::AtLeastDynamic(least_padded()); }
  absl::StatusOr<const graphcache::StepInputs*> PadTo(const BatchShape& shape, int64_t step) final;
  absl::StatusOr<const graphcache::StepInputs*> PadDynamic(int64_t step) final;
  // Returns the inputs of a step for the batch as it is padded now. They are valid until the batch is padded or bound
  // again. The tensors lie on the host, and a capturer copies them to the device. For a whole graph, all but the
  // pairs, their labels and the step lie on the device already.
  const graphcache::StepInputs* TakeInputs(int64_t step);
  // Returns the graphs or nodes of the dataset that the batch predicts for.
  virtual std::span<const uint32_t> ids() const = 0;
  // Returns how many ids the batch has on all ranks together.
  virtual int64_t ids_of_all_ranks() const { return std::ssize(ids()); }
  // Returns the labels of ids(), [ids, targets]; NaN where a label is missing.
  virtual std::span<const float> labels() const = 0;
  // Returns the row of the prediction that belongs to each id; empty if these are the first rows, in order.
  virtual std::span<const int64_t> prediction_rows() const { return {}; }

 private:
  // Pads the batch to `shape`, and PadToDynamic pads it to dynamic_shape(). Both are no-ops if the batch is padded so
  // already. Errors: same as PadTo.
  virtual absl::Status Pad(const BatchShape& shape) = 0;
  virtual absl::Status PadToDynamic() { return Pad(dynamic_shape()); }
  // Inputs on the host share the memory of this batch and of `step`, which must outlive them.
  virtual graphcache::StepInputs Inputs(const int64_t& step) const = 0;

  int64_t step_ = 0;
  graphcache::StepInputs inputs_;
};

// Yields batches in order. Other threads make them ready ahead; the destructor stops these threads at once.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  // Returns the next batch, which the caller may use until the following call, or nullptr after the last one. An error
  // is returned by every later call too.
  virtual absl::StatusOr<HostBatch*> Next() = 0;
  // Returns the look-ahead of the sampler, or nullopt if no sampler runs ahead. Any thread may call it; the values may
  // be a moment old.
  virtual std::optional<LookAhead> look_ahead() const { return std::nullopt; }
};

// The result of one pass over a split without training.
struct Evaluation {
  double loss = 0;              // mean over the labels that are present; NaN if there are none
  bool has_labels = false;      // whether any label is present
  std::vector<double> metrics;  // values of MetricsOf the job
  // The ids of the split's graphs, nodes or links in split order, and their predictions [ids, values named by
  // NameRows]. Both are empty unless predictions were asked for.
  std::vector<uint32_t> ids;
  std::vector<float> predictions;
};

// Returns the options of a rank. Each rank but 0 gets a seed of its own, so that ranks drop different values in
// dropout. The ranks' initial weights differ too, until rank 0 sends its own to all.
spec::TrainOptions OfRank(spec::TrainOptions options, int64_t rank);

// Returns the splits whose batches a step of this mode sees.
std::vector<data::Split> SplitsOf(Mode mode);

// Returns what the source calls these nodes. Errors: DataLoss.
absl::StatusOr<std::vector<std::string>> NamesOfNodes(const data::Graph& graph, std::span<const uint32_t> nodes);
// Names rows of nodes that have `outputs` predictions each. Errors: DataLoss.
absl::StatusOr<NamedRows> NameNodes(const data::Graph& graph, std::span<const uint32_t> nodes, int64_t outputs);
// Returns "prediction_0", "prediction_1" and so on, one name for each output.
std::vector<std::string> PredictionColumns(int64_t outputs);

class Task {
 public:
  // Errors: InvalidArgument with violations under "spec." for options that do not suit the dataset; DataLoss;
  // Cancelled if `keep_going`, called now and then, returns false.
  static absl::StatusOr<std::unique_ptr<Task>> Create(const spec::TrainOptions& options,
                                                      const data::OpenedDataset& dataset, c10::Device device,
                                                      int threads, const std::function<bool()>& keep_going,
                                                      const PlanContext& context = {});
  // Returns Ok if a model with these options can be built for this dataset and, on one large graph, trained within
  // `limits`. Otherwise returns InvalidArgument with violations under `prefix`.
  static absl::Status Check(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                            const MemoryLimits& limits, std::string_view prefix);
  // Checks what depends on the dataset's content. A job on a set of small graphs must fit in memory by its plan. A job
  // that reads labels must have some in the train split that suit its loss. A job that walks must have edges to walk
  // along. A job that predicts links must have some to rank. Returns what the job's user should know, a line each.
  // Errors: InvalidArgument with violations under `prefix`; those of PlanJob; DataLoss from the dataset.
  static absl::StatusOr<std::vector<std::string>> CheckFits(const spec::TrainOptions& options,
                                                            const data::OpenedDataset& dataset,
                                                            const PlanContext& context, std::string_view prefix,
                                                            const std::function<bool()>& keep_going);
  virtual ~Task() = default;

  // Names these graphs, nodes or links of an evaluation of `split`, by the source's names if it has some. Errors:
  // DataLoss.
  virtual absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const = 0;

  virtual nn::TensorSet& tensors() = 0;
  // Returns a description of the model, for `__metadata__` of the weights file.
  virtual std::string Describe() const = 0;
  // Tells in one line how the features are read and why; empty if there is nothing to tell.
  virtual std::string_view reading() const { return ""; }
  // Returns notes for the job's user about its training and evaluation, a line each.
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
  // Runs the training step of a task that computes outputs and gradients itself. Returns nullopt if Forward, the job's
  // loss and autograd are to do it.
  virtual std::optional<RowStep> StepRows(const graphcache::StepInputs& /*inputs*/) { return std::nullopt; }

  // Returns the schedule that the graph cache knows ahead.
  virtual const graphcache::ShapeSchedule& plan() const = 0;
  virtual graphcache::GraphSizes sizes() const = 0;
  // Returns the batches of all planned epochs. The first schedule composes them as the job does, the others in each
  // other way that its user may choose. Errors: Cancelled if `keep_going`, called now and then, returns false.
  virtual absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Schedules(
      const std::function<bool()>& keep_going) = 0;
  // Returns two different batches of the mode's splits, padded to `shape`. They are valid until the next probe is
  // made.
  virtual absl::StatusOr<std::array<HostBatch*, 2>> Probes(Mode mode, const BatchShape& shape) = 0;
  // Returns probe 0, 1, ... of a capture for every shape, as ProbeInputs (device/step_program.h) requires. Probe 0 is
  // padded to the plan's ceiling of the mode. A probe is valid until the next one is made.
  virtual absl::StatusOr<HostBatch*> DynamicProbe(Mode mode, size_t probe) = 0;
  // Same as DynamicProbe, for a step that is recorded without a layout of its storage. Returns a small batch if the
  // task can make one.
  virtual absl::StatusOr<HostBatch*> SmallProbe(Mode mode, size_t probe) { return DynamicProbe(mode, probe); }
  // Returns a batch of the mode's splits, padded to `shape`. It is valid until the next probe is made.
  virtual absl::StatusOr<HostBatch*> RungProbe(Mode mode, const BatchShape& shape) {
    PF_ASSIGN_OR_RETURN(const auto probes, Probes(mode, shape));
    return probes[0];
  }
  // Returns false if steps read their sizes from the batch's shape. A batch then gets no padding beyond
  // least_padded().
  virtual bool pads() const { return true; }
  // Returns how many threads libtorch's operators use in the task's steps on a CPU. The number depends only on the
  // job, so a resumed run uses the same.
  virtual TorchThreads torch_threads() const { return TorchThreads::kAll; }
  // Returns why no executable can serve every shape; empty if one can.
  virtual std::string NoDynamicReason() const { return {}; }
  // Tells the threads that make batches ready, as a hint, whether the mode's batches are padded to their
  // dynamic_shape(). `ladder` holds the rungs that batches are rounded up to; empty if there are none.
  virtual void Prepare(Mode /*mode*/, bool /*dynamic*/, const std::vector<BatchShape>& /*ladder*/) {}

  virtual int64_t batches_per_epoch() const = 0;
  // Returns how many graphs, nodes or links a split has.
  virtual int64_t size(data::Split split) const = 0;
  // Returns how many links of a split no evaluation ranks because they have no negatives. Metrics leave these out.
  virtual int64_t unranked(data::Split /*split*/) const { return 0; }
  // Returns the batches of training epoch `epoch` from `first_batch` on, both counted from 0. The stream must end
  // before the task does.
  virtual std::unique_ptr<BatchStream> TrainBatches(int64_t epoch, int64_t first_batch) = 0;
  // Returns the batches that evaluate a split by steps. Only for tasks whose EvaluateWhole returns nullopt.
  virtual std::unique_ptr<BatchStream> EvalBatches(data::Split split) = 0;
  // Evaluates a split in another way than by steps over EvalBatches; returns nullopt if the task has no such way.
  // Every rank of a job calls this and gets the result of the whole split; the ranks may divide the work. Errors:
  // Cancelled if `keep_going`, called now and then, returns false.
  virtual absl::StatusOr<std::optional<Evaluation>> EvaluateWhole(data::Split /*split*/, bool /*keep_predictions*/,
                                                                  const std::function<bool()>& /*keep_going*/) {
    return std::nullopt;
  }
};

// Sizes of the batches from which an executable for every shape is captured. Sizes differ from probe to probe in each
// dimension. No two dimensions vary alike, so an integer in the recording can follow from the sizes in one way only.
// Pure functions.

// Returns the size that probe 1, 2, ... has in a dimension, different for each probe. It is above `least`, and at most
// `least` + `range`, or `least` + kLeastSpread if that is more.
inline constexpr int64_t kLeastSpread = 15;
int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range);

// Probe 0 has the shape `ceiling`, with each dimension at least 2. If `below` is set, the other probes lie between
// half the ceiling and the ceiling in each dimension that has room for different sizes. In all other cases they lie
// above the ceiling.
std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below);

}  // namespace permafrost::train
