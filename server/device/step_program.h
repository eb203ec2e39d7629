// A step as a device captures it: a function of tensors, with the tensors that it changes.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graphcache/executable.h"

namespace permafrost::graphcache {

// The tensors of one batch, in an order fixed for the job. Undefined ones are allowed, always at the same places. They
// are on the host, or on the device already; a capturer brings the former to the device (device/staging.h).
class StepInputs {
 public:
  std::vector<at::Tensor> tensors;
  // Places of tensors that lie on the device once, for every batch of the job, as the edges of a whole graph do.
  std::vector<size_t> resident;
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
  // Tensors of one group change by amounts of one size: parameters, first moments, running statistics. A proof to
  // rounding (cuda/replay_proof.h) takes the largest change in a group for its scale.
  std::string group;
};

struct StepProgram {
  // Runs one step. May read its inputs, `state`, and what it makes itself; may write `state` and what it makes.
  std::function<std::vector<at::Tensor>(const graphcache::StepInputs&)> run;
  // Every tensor that outlives a step and that the step reads or writes. Their storage stays where it is.
  std::vector<StateTensor> state;
  // Called by a replay at each place where the step calls MarkPhase; may be empty.
  std::function<void(int phase)> on_phase;
  // Puts `state` where rounding in a gradient moves no parameter by more than in proportion, for a proof to rounding.
  // Adam divides a gradient by its size: where that is rounding alone, it moves the parameter by a whole learning rate.
  // Empty: any state will do.
  std::function<void()> steady_state;
};

// The inputs of probe 0..kDynamicProbes - 1 of a dynamic capture, valid until the next call. Asked for any of them
// several times.
inline constexpr size_t kDynamicProbes = 4;
using ProbeInputs = std::function<absl::StatusOr<const graphcache::StepInputs*>(size_t probe)>;

// The inputs of one batch, made when they are asked for, valid until the probes are.
using BatchInputs = std::function<absl::StatusOr<const graphcache::StepInputs*>()>;

// For StepProgram::run: calls `on_phase`, the program's own, with `phase`. While the step is captured nothing is
// called: the capture notes the place, and each replay calls the program's on_phase there.
void MarkPhase(int phase, const std::function<void(int phase)>& on_phase);

// While one lives MarkPhase does nothing on its thread, unless a tape records: for runs that are no steps.
class SilentPhases {
 public:
  SilentPhases();
  SilentPhases(const SilentPhases&) = delete;
  ~SilentPhases();

 private:
  const bool outer_;  // whether the thread was silent before
};

}  // namespace permafrost::device
