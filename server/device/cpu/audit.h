// Audits a replay: compares its state and outputs, bit for bit, with those of an eager run of the step. Also times
// the replay's operators.
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

// Replays `executable` on `inputs`, restores the state, and runs `program`, the program of `executable`, eagerly. If
// replay and eager run leave different bits in state or outputs, both run once more, operator by operator. This finds
// the first operator whose results differ. The final state and the outputs returned are those of the eager run.
// Exceptions of the program pass through; the state is then as before. The operators' times are those of the first
// replay. At the end, the step's matrix products are timed alone.
// Memory: CapturePeakBytes (device/backend.h). The arena's memory is freed between replay and eager run.
absl::StatusOr<graphcache::AuditedStep> AuditOnCpu(CpuExecutable& executable, const StepProgram& program,
                                                   const graphcache::StepInputs& inputs, Arena& arena);

// Runs the matrix products of a step alone, to measure the part of the step's time that no fusion of operators can
// save.
class StepProducts {
 public:
  // Adds the matrix products of one call of an operator with `arguments`. A product operator counts as one. An
  // operator of a whole layer takes matrices named weight, w1 or w2. It counts as one product of each of these
  // matrices with the rows of its first tensor. The backward of such an operator counts as two products per matrix:
  // one for the gradient of the weight, and one for the gradient of the input. Other products in such operators are
  // not counted.
  void Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  // Runs all added products on new tensors of the same sizes, and returns the seconds that they take together. Each
  // size runs a few times.
  double SecondsAlone() const;

 private:
  std::map<std::array<int64_t, 3>, int64_t> counts_;  // by (m, k, n): the number of products [m, k] x [k, n]
};

}  // namespace permafrost::device
