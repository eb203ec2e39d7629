// A step as a device captures it.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graphcache/executable.h"

namespace permafrost::graphcache {

// The tensors of one batch, in an order fixed for the job. Undefined ones are allowed, always at the same places.
class StepInputs {
 public:
  std::vector<at::Tensor> tensors;
};

// The tensors that a step returns, in an order fixed for the program.
class StepOutputs {
 public:
  explicit StepOutputs(std::vector<at::Tensor> returned) : tensors(std::move(returned)) {}
  const std::vector<at::Tensor> tensors;
};

}  // namespace permafrost::graphcache

namespace permafrost::device {

struct StateTensor {
  std::string name;
  at::Tensor value;
};

struct StepProgram {
  // Runs one step. May read its inputs, `state`, and what it makes itself; may write `state` and what it makes.
  std::function<std::vector<at::Tensor>(const graphcache::StepInputs&)> run;
  // Every tensor that outlives a step and that the step reads or writes. Their storage stays where it is.
  std::vector<StateTensor> state;
  // Told by a replay at each MarkPhase of the step; may be empty.
  std::function<void(int phase)> on_phase;
};

// Within StepProgram::run: tells `on_phase`, the program's own, that a phase ends here. A capture tells nobody and
// keeps the place, so that a replay tells it.
void MarkPhase(int phase, const std::function<void(int phase)>& on_phase);

}  // namespace permafrost::device
