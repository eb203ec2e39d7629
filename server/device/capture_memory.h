// The memory that a capture needs while it runs.
#pragma once

#include <cstdint>

namespace permafrost::device {

// The factor by which a capture allocates more at once than the step itself: the arena that replays are served from is
// laid out with gaps.
inline constexpr double kCapturePeakFactor = 1.1;

// Bytes of tensor storage that a capture on the CPU allocates at once, at most. step_bytes: what the step allocates at
// once when it is run eagerly. state_bytes: the tensors that outlive a step (weights, buffers, the optimizer's
// moments), of which a capture keeps a copy in order to put them back. It keeps no copy of tensors that are zero: the
// warm-up of a job that begins copies no moments.
constexpr int64_t CapturePeakBytes(int64_t step_bytes, int64_t state_bytes) {
  return static_cast<int64_t>(kCapturePeakFactor * static_cast<double>(step_bytes)) + state_bytes;
}

// The most bytes that a step captured as a graph of its device takes there: those that the graph holds as long as it
// lives, and those of the run beside it that proves it. The arguments are those of CapturePeakBytes. Graphs of a job
// share their memory, so that only the largest counts.
constexpr int64_t GraphPeakBytes(int64_t step_bytes, int64_t state_bytes) { return 2 * step_bytes + state_bytes; }

// The bytes that the operators, shapes and numbers of one recorded step take at most, its arena apart, by the layers of
// its model. `fused`: the CPU's fused operators, of which a step has fewer (GINE of 4 layers with Adam: 26 kB, without
// them up to 113 kB).
constexpr int64_t ExecutableBytes(int64_t layers, bool fused) { return (2 + layers) * (fused ? 8'192 : 24'576); }

}  // namespace permafrost::device
