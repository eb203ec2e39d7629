// Measures what a step of a program takes, by runs of its forward pass on two small batches on the CPU.
// Threads: safe anywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>

#include "absl/functional/function_ref.h"
#include "base/operators.h"
#include "base/step.h"
#include "nn/models/model.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

// Two batches that stand for larger ones. The second has twice the nodes and edges of the first, padding apart, and
// about twice the graphs or seeds.
inline constexpr BatchShape kSmallBatch{.nodes = 33, .edges = 64, .graphs = 5},
    kTwiceThat{.nodes = 65, .edges = 128, .graphs = 9};

struct StepCost {
  nn::ModelCost model;
  int64_t executable_bytes = 0;  // as device::ExecutableBytes
  // Mean values for each operator of a program; 0: not known, or no program; infinite: beyond the bound.
  double operator_values = 0;
};

// Returns how many threads libtorch's operators should use in a step. If every operator has few values, threads wait
// longer than they work (bench/MEASUREMENTS.md, "From which size two threads pay"). An unknown cost counts as small.
inline TorchThreads ThreadsFor(const StepCost& cost) {
  constexpr double kSharedValues = 524'288;  // PyTorch's operators begin at 32,768
  return cost.operator_values < kSharedValues ? TorchThreads::kOne : TorchThreads::kAll;
}

// The bytes of the tensors that a forward pass makes.
struct ForwardCost {
  double parameters = 0;         // their values, which are not among those bytes
  double once = 0, growing = 0;  // bytes that both batches make, and those that the second makes more
  int64_t operators = 0;         // 0: not known
  bool reads_too_much = false;   // more than 1 GiB: it was stopped
  int64_t columns = 0;           // of its prediction; 0: not known
  bool scores_pairs = false;     // whether it scores pairs itself, which cost what edges do

  // Returns the cost of a training step of `largest`, padding included: twice the forward pass.
  StepCost Step(const BatchShape& largest) const;
};

// Runs a step of the program, and throws ReadsTooMuch as soon as it has read more than 1 GiB. tensors: the program's.
struct ReadsTooMuch : std::exception {};  // passes through autograd, which catches no others
void BoundReads(const nn::TensorSet& tensors, const std::function<void()>& run);

// `forward` runs the program on a batch of this shape, and returns the prediction. Passes on a c10::ValueError. After
// any other exception the step's cost stays unknown: the program may need other values, or more rows.
ForwardCost MeasureForward(const nn::TensorSet& tensors, absl::FunctionRef<at::Tensor(const BatchShape&)> forward);

}  // namespace permafrost::train
