// Adam, AdamW, SGD and SparseAdam: on the CPU by one operator for all parameters, elsewhere by PyTorch's fused kernels.
// Step count and learning rate are tensors: nothing in a step is a host number that changes, so a captured step stays
// true. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019; Sutskever et al. 2013 for SGD's momentum, as PyTorch's
// SGD. beta = (0.9, 0.999), eps = 1e-8, as PyTorch's defaults.
// Each update is an operator that a capture sees whole: Adam, AdamW and SGD over all parameters (permafrost::adam_,
// permafrost::sgd_), and sparse Adam over few rows of a table (permafrost::sparse_adam_), whose gradient may be made
// dense (permafrost::dense_gradient).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/tensor_set.h"
#include "spec/optimizer.h"

namespace permafrost::nn {

// One update, in one parallel region for all parameters. CPU; float32 or float64, contiguous, all of one type.
// gradients, exp_avgs, exp_avg_sqs: one for each parameter, of its shape; step: [] float32, steps done, one more after
// this; learning_rate: [] float64; weight_decays: one for each parameter. decoupled: AdamW. beta = (0.9, 0.999), eps =
// 1e-8. applies: undefined, or [] float32: where it is 0 nothing is updated, and no step counted.
void AdamStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                 const std::vector<at::Tensor>& exp_avgs, const std::vector<at::Tensor>& exp_avg_sqs, at::Tensor& step,
                 const at::Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const at::Tensor& applies = {});

// A gradient for few rows of a table. Row rows[m] has the sum of parts[places[p]] for p in [offsets[m], offsets[m +
// 1]); one thread makes each row once, in the order of its places. Other rows have no gradient.
struct RowGradient {
  at::Tensor rows;     // [M] int64, distinct; padding, whose ranges are empty, repeats one of them
  at::Tensor offsets;  // [M + 1] int64
  at::Tensor places;   // [P] int64; beyond the last offset any
  at::Tensor parts;    // [P, D], as the table
  at::Tensor nodes;    // [P] int64: the row that each part is of; a part that is in no row's range is 0
};

// [rows of the table, D]
at::Tensor DenseGradient(const RowGradient& gradient, int64_t table_rows);

// The learning rate of the update after `step` updates of `epochs` with `steps_per_epoch` each: warm-up, then the
// schedule. Under kPlateau `options.learning_rate` is the rate that it has fallen to.
double LearningRateAt(const spec::OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs);

// Gradients scaled down so that their norm over all of them is at most `max_norm`, as torch.nn.utils.clip_grad_norm_
// but without reading the norm back to the host. Source: Pascanu et al. 2013.
std::vector<at::Tensor> ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm);

// The type of the learning rate's tensor, which the device's fused kernel decides. CUDA's kernel reads a float32
// through a pointer and refuses any other type; MPS has no float64; the CPU's kernel reads a double.
c10::ScalarType LearningRateType(c10::DeviceType device);

// Threads: the device thread. Borrows the parameters' storage.
class Optimizer {
 public:
  Optimizer(const spec::OptimizerOptions& options, const std::vector<NamedTensor>& parameters);

  // One update. `gradients`: one for each parameter, in their order and of their shapes; scaled down first where
  // max_grad_norm says so. With accumulate_steps above 1: the update is made where a group ends, by the mean of the
  // group's gradients.
  void Step(std::vector<at::Tensor> gradients);
  // Makes one update from a gradient of few rows of the one parameter. kSparseAdam updates those rows alone; others act
  // as Step does with 0 elsewhere.
  void StepRows(const RowGradient& gradient);
  // Called in place of Step for a batch that is not to count. If the batch ends a group, the update is the mean of the
  // group's other batches. Waits for the device if accumulate_steps is above 1.
  void SkipBatch();
  // Ends a group without an update.
  void DropGroup();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  double learning_rate() const;
  // Takes effect at the next Step, captured or not.
  void SetLearningRate(double learning_rate);
  // Sets whether the next Step is the last one of a group of batches; takes effect as the learning rate does. It means
  // nothing where accumulate_steps is 1.
  void SetEndsGroup(bool ends);
  // Puts second moments where an update is in proportion to its gradient, whatever the size of that: a gradient that is
  // rounding alone then moves no parameter by more than rounding. For a comparison of two runs of a step, not for
  // training. Does nothing where there are no second moments.
  void MakeUpdatesProportional();
  // Running averages of the parameters after each update, in their order. The first update sets them to the parameters;
  // after that average += (1 - ema_decay) * (parameter - average). Empty if ema_decay is 0.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  // Returns whether there was an update, before which they have no meaning. Waits for the device.
  bool has_averages() const { return !averages_.empty() && step_.item().toDouble() > 0; }
  // Moments ("exp_avg.NAME", "exp_avg_sq.NAME"), or SGD's "momentum.NAME", the number of updates ("step") and the
  // learning rate ("learning_rate"). Where there are some: averages ("average.NAME"); for the group so far the sums of
  // gradients ("gradient_sum.NAME"), the batches ("group_batches"), and whether it ends ("ends_group").
  const std::vector<NamedTensor>& state() const { return state_; }

 private:
  void CheckGradients(std::vector<at::Tensor>& gradients) const;
  bool accumulates() const { return options_.accumulate_steps > 1; }
  std::vector<at::Tensor> AddToGroup(const std::vector<at::Tensor>& gradients);
  std::vector<at::Tensor> MeanOfGroup() const;
  void EndGroup();
  // Does all of a step except adding gradients up.
  void Apply(std::vector<at::Tensor> gradients);
  void Update(const std::vector<at::Tensor>& gradients);
  // Updates the parameters at these places with PyTorch's kernels, whether a group ends or not.
  void UpdateByTorch(const std::vector<at::Tensor>& gradients, const std::vector<size_t>& places, double weight_decay);
  void UpdateElsewhere(const std::vector<at::Tensor>& gradients);
  void Average();

  spec::OptimizerOptions options_;
  std::vector<at::Tensor> parameters_, exp_avgs_, exp_avg_sqs_, momenta_, averages_, gradient_sums_;
  std::vector<double> weight_decays_;  // of each parameter
  at::Tensor step_, learning_rate_, group_batches_, ends_group_;
  std::vector<NamedTensor> state_;
};

}  // namespace permafrost::nn
