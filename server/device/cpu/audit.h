// Audits a replay. It compares the state and outputs of the replay, bit for bit, with those of an eager run of the
// step. It also times the replay's operators.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "device/cpu/executable.h"
#include "device/cpu/storage.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

// Replays `executable` on `inputs`, puts the state back, and runs `program`, the program of `executable`, eagerly. If
// replay and eager run differ in a bit of state or outputs, both run once more. They then run operator by operator,
// to find the first operator whose results differ. The final state and the outputs returned are those of the eager
// run. After an exception of the program, which passes through, the state is as before. The operators' times are
// those of the first replay. After it, the step's matrix products are timed alone.
// Memory: CapturePeakBytes (device/backend.h). The arena's memory is given back between replay and eager run.
absl::StatusOr<graphcache::AuditedStep> AuditOnCpu(CpuExecutable& executable, const StepProgram& program,
                                                   const graphcache::StepInputs& inputs, Arena& arena);

// Runs the matrix products of a step alone. This measures how much of the step's time is arithmetic that no fusion
// can save.
class StepProducts {
 public:
  // Adds the products of one call of an operator with `arguments`. An operator that is a product counts as itself.
  // Some operators take a layer's weights, which are matrices named weight, w1 or w2. Such an operator counts as one
  // product per matrix, over the rows of its first tensor. The operator's backward counts as two products per matrix,
  // since the weight and the input have gradients. Other products of a layer are not counted.
  void Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  // Runs all products on tensors of the recorded sizes, and returns the seconds that they take. Each size runs a few
  // times.
  double SecondsAlone() const;

 private:
  std::map<std::array<int64_t, 3>, int64_t> counts_;  // the number of [m, k] x [k, n] products, by (m, k, n)
};

}  // namespace permafrost::device
