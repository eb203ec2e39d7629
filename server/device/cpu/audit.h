// An audit of a replay: what it leaves is compared, bit for bit, with what the step leaves when it is run eagerly.
// Threads: the device thread.
#pragma once

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
// Memory: CapturePeakBytes (device/capture_memory.h); the arena's is given back between replay and step.
absl::StatusOr<graphcache::AuditedStep> AuditOnCpu(CpuExecutable& executable, const StepProgram& program,
                                                   const graphcache::StepInputs& inputs, Arena& arena);

}  // namespace permafrost::device
