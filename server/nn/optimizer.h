// Adam, AdamW, SGD and SparseAdam. On the CPU one operator updates all parameters; other devices run PyTorch's fused
// kernels. The step count and the learning rate are tensors. So no number on the host changes from step to step, and
// a captured step stays valid. beta = (0.9, 0.999) and eps = 1e-8, as PyTorch's defaults.
// Source: Kingma and Ba 2015; Loshchilov and Hutter 2019; Sutskever et al. 2013 for SGD's momentum, as PyTorch's SGD.
// Each update is an operator that a capture sees whole. Adam and AdamW (permafrost::adam_) and SGD (permafrost::sgd_)
// update all parameters. Sparse Adam (permafrost::sparse_adam_) updates a few rows of a table;
// permafrost::dense_gradient makes the gradient of these rows dense.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/tensor_set.h"
#include "spec/optimizer.h"

namespace permafrost::nn {

// Makes one Adam update of all parameters, in one parallel region, on the CPU. Parameters are contiguous, float32 or
// float64, and all of one type. gradients, exp_avgs, exp_avg_sqs: one for each parameter, of that parameter's shape.
// step: [] float32, the number of steps done, which grows by one. learning_rate: [] float64. weight_decays: one for
// each parameter. decoupled: AdamW. beta = (0.9, 0.999), eps = 1e-8. applies: undefined, or [] float32; if it is 0,
// nothing is updated and no step is counted.
void AdamStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                 const std::vector<at::Tensor>& exp_avgs, const std::vector<at::Tensor>& exp_avg_sqs, at::Tensor& step,
                 const at::Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const at::Tensor& applies = {});

// A gradient for a few rows of a table. The gradient of table row rows[m] is the sum of parts[places[p]] for p in
// [offsets[m], offsets[m + 1]). One thread computes each row, in the order of its places. All other rows have no
// gradient.
struct RowGradient {
  at::Tensor rows;     // [M] int64, distinct except for padding entries, which repeat a row and have empty ranges
  at::Tensor offsets;  // [M + 1] int64
  at::Tensor places;   // [P] int64; entries beyond the last offset may hold any value
  at::Tensor parts;    // [P, D], of the table's type
  at::Tensor nodes;    // [P] int64: the table row of each part. A part outside all ranges is 0.
};

// Returns the gradient as a dense [table_rows, D].
at::Tensor DenseGradient(const RowGradient& gradient, int64_t table_rows);

// Returns the learning rate for the update that follows `step` updates: first the warm-up, then the schedule. The job
// has `epochs` epochs of `steps_per_epoch` updates each. Under kPlateau `options.learning_rate` is the rate after all
// reductions so far.
double LearningRateAt(const spec::OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs);

// Returns the gradients, scaled down so that the norm over all of them is at most `max_norm`. Does what
// torch.nn.utils.clip_grad_norm_ does, without reading the norm back to the host. Source: Pascanu et al. 2013.
std::vector<at::Tensor> ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm);

// Returns the type that the learning rate's tensor must have for the device's fused kernel. CUDA's kernel reads a
// float32 through a pointer and refuses any other type. MPS has no float64. The CPU's kernel reads a double.
c10::ScalarType LearningRateType(c10::DeviceType device);

// Threads: the device thread. Borrows the parameters' storage.
class Optimizer {
 public:
  Optimizer(const spec::OptimizerOptions& options, const std::vector<NamedTensor>& parameters);

  // Makes one update. `gradients` has one tensor for each parameter, in the order and with the shapes of the
  // parameters. If max_grad_norm is set, the gradients are clipped first. With accumulate_steps above 1, the update
  // is made at the end of a group, with the mean of the group's gradients.
  void Step(std::vector<at::Tensor> gradients);
  // Makes one update from a gradient for a few rows of the only parameter. kSparseAdam updates those rows alone. The
  // other algorithms act as Step does, with gradient 0 for all other rows.
  void StepRows(const RowGradient& gradient);
  // Takes the place of Step for a batch that must not count. If the batch ends a group, the update uses the mean of
  // the group's other batches. Waits for the device if accumulate_steps is above 1.
  void SkipBatch();
  // Ends a group without an update.
  void DropGroup();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  double learning_rate() const;
  // The new rate takes effect at the next Step, even if that step is captured.
  void SetLearningRate(double learning_rate);
  // Sets whether the next Step ends a group of batches. This works for captured steps too. Has no effect if
  // accumulate_steps is 1.
  void SetEndsGroup(bool ends);
  // Sets second moments to a value with which each update is proportional to its gradient, however small the
  // gradient. A gradient that is only rounding error then moves a parameter by no more than rounding error. Meant for
  // comparing two runs of a step, not for training. Does nothing if there are no second moments.
  void MakeUpdatesProportional();
  // Running averages of the parameters after each update, in the order of the parameters. The first update sets them
  // to the parameters; after that, average += (1 - ema_decay) * (parameter - average). Empty if ema_decay is 0.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  // Returns whether an update was made. Before the first update the averages have no meaning. Waits for the device.
  bool has_averages() const { return !averages_.empty() && step_.item().toDouble() > 0; }
  // Holds the moments ("exp_avg.NAME" and "exp_avg_sq.NAME", or SGD's "momentum.NAME"), the number of updates
  // ("step") and the learning rate ("learning_rate"). With ema_decay it also holds the averages ("average.NAME").
  // With accumulate_steps above 1 it holds the current group: the sums of gradients ("gradient_sum.NAME"), the number
  // of batches ("group_batches") and whether the group ends ("ends_group").
  const std::vector<NamedTensor>& state() const { return state_; }

 private:
  void CheckGradients(std::vector<at::Tensor>& gradients) const;
  bool accumulates() const { return options_.accumulate_steps > 1; }
  std::vector<at::Tensor> AddToGroup(const std::vector<at::Tensor>& gradients);
  std::vector<at::Tensor> MeanOfGroup() const;
  void EndGroup();
  // Does all of a step except accumulating gradients.
  void Apply(std::vector<at::Tensor> gradients);
  void Update(const std::vector<at::Tensor>& gradients);
  // Updates the parameters at `places` with PyTorch's kernels, whether or not a group ends.
  void UpdateByTorch(const std::vector<at::Tensor>& gradients, const std::vector<size_t>& places, double weight_decay);
  void UpdateElsewhere(const std::vector<at::Tensor>& gradients);
  void Average();

  spec::OptimizerOptions options_;
  std::vector<at::Tensor> parameters_, exp_avgs_, exp_avg_sqs_, momenta_, averages_, gradient_sums_;
  std::vector<double> weight_decays_;  // one for each parameter
  at::Tensor step_, learning_rate_, group_batches_, ends_group_;
  std::vector<NamedTensor> state_;
};

}  // namespace permafrost::nn
