// An audit of a replay: what it leaves is compared, bit for bit, with what the step leaves when it is run eagerly, and
// its operators are timed.
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

// Replays `executable` on `inputs`, puts the state back, and runs `program`, whose step it is, eagerly. Where the two
// leave state or outputs that are not bit-equal, both are done once more, operator by operator, to find the first one
// with another result. The state, and the result, are those of the eager step; after an exception of the program, which
// passes through, the state is as before. The operators' times are those of the first replay; its products are
// timed alone after it.
// Memory: CapturePeakBytes (device/backend.h); the arena's is given back between replay and step.
absl::StatusOr<graphcache::AuditedStep> AuditOnCpu(CpuExecutable& executable, const StepProgram& program,
                                                   const graphcache::StepInputs& inputs, Arena& arena);

// The matrix products of a step, run alone: how much of its time is arithmetic that no fusion can take away.
class StepProducts {
 public:
  // Adds the products of one operator, called with these arguments: for a product its own; for an operator that takes a
  // layer's weights (matrices named weight, w1 or w2) one for each, over the rows of its first tensor, and two where it
  // is the backward of such a one, since the weight and the input have gradients. Other products of a layer are not
  // known.
  void Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  // Runs all of them on tensors of the same sizes and returns how long they take; each size is run a few times.
  double SecondsAlone() const;

 private:
  std::map<std::array<int64_t, 3>, int64_t> counts_;  // how many [m, k] x [k, n], by (m, k, n)
};

}  // namespace permafrost::device
