// The proof of a captured step on a device whose sums differ in rounding from run to run, since atomic operations add
// in any order. The step runs twice from one state, which shows how far rounding moves each tensor; then it is
// replayed.
//
// A replay passes where every tensor of the state is within
//   kProofRelative * the step's largest change of it + kProofNoise * how far the two runs are apart
//   + kProofFloor * the largest change in its group + two roundings of its type
// of the first run, element by element. An output has no value before the step, so its largest absolute value takes the
// place of both changes. An operator left out, a stale input or a stale host number is found where it moves a tensor by
// more than a thousandth of what a step does. Integers and other types must have equal values.
// Threads: the device thread; waits for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "device/step_program.h"

namespace permafrost::device {

inline constexpr double kProofRelative = 1e-3, kProofNoise = 8, kProofFloor = 1e-5;

// Copies on the host of a program's state and of what it returned.
struct HostValues {
  std::vector<at::Tensor> state, outputs;
};
HostValues ValuesOf(const StepProgram& program, const std::vector<at::Tensor>& outputs);

// The first tensor, "weight" or "output 0", by which `replay` is no run of the step; nullopt: there is none. All four
// have tensors in the same places: `start` before the step (its outputs are not read), `run` and `again` after it.
std::optional<std::string> FindDifference(const std::vector<StateTensor>& state, const HostValues& start,
                                          const HostValues& run, const HostValues& again, const HostValues& replay);

}  // namespace permafrost::device
