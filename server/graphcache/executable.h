// The interfaces through which a graph cache uses executables, a compiler and batches. device/ implements
// executables; train/ implements the compiler and batches. Tests have fakes of all three.
// Threads: the device thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/step.h"

namespace permafrost::graphcache {

// StepInputs are the tensors of one batch, and StepOutputs the tensors that a step returns. A graph cache does not
// look into them.
class StepInputs;
class StepOutputs;
// The result of a step. Its tensors are valid until the next step or capture of the same compiler. Only
// GraphCache::Run may return a null result.
using StepResult = std::shared_ptr<const StepOutputs>;

// The first difference between a replay and an eager step that ran from the same state on the same batch.
struct Difference {
  std::string op;   // schema name; empty if no single operator is to blame
  std::string why;  // one line
};

// The total time of all operators with one name in one replay of a step.
struct OperatorTime {
  std::string op;  // schema name
  int64_t calls = 0;
  double seconds = 0;
  bool operator==(const OperatorTime&) const = default;
};

// The total time of the operators from one line of a user's module in one replay of a step.
struct LineTime {
  std::string line;
  double forward_seconds = 0, backward_seconds = 0;
  double seconds() const { return forward_seconds + backward_seconds; }
  bool operator==(const LineTime&) const = default;
};

// The outcome of an audit. An audit replays a step, and then runs it eagerly from the state with which the replay
// began.
struct AuditedStep {
  StepResult result;                     // result of the eager step, whose state is kept too
  std::optional<Difference> difference;  // nullopt if state and outputs are bit-equal
  std::vector<OperatorTime> operators;   // operators of the replay, the longest first
  std::vector<LineTime> lines;  // lines of the replay, the longest first; operators without a line are left out
  double replay_seconds = 0, eager_seconds = 0;
  double product_seconds = 0;  // time of the step's matrix products, run alone
};

// A captured step. It serves one shape, or, if it is dynamic, every shape.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs the step on a batch of this executable's shape. A dynamic executable takes any batch, padded to the batch's
  // dynamic_shape().
  virtual absl::StatusOr<StepResult> Replay(const StepInputs& inputs) = 0;
  // Replays the step and audits it. If executables of this device cannot differ from the eager step, runs nothing and
  // returns nullopt.
  virtual absl::StatusOr<std::optional<AuditedStep>> ReplayAudited(const StepInputs& /*inputs*/) {
    return std::nullopt;
  }
  // Bytes that this executable keeps for itself alone.
  virtual int64_t bytes() const = 0;
};

// The error reason with which Capture refuses a step that cannot be captured. Its metadata are "op" (schema name, may
// be empty) and "why" (one line).
inline constexpr char kGraphBreakReason[] = "GRAPH_BREAK";

// Makes the executables of one job.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // Captures the step of `mode` at the padded shape `shape`. Leaves parameters, optimizer and generators unchanged.
  // Errors: FailedPrecondition with kGraphBreakReason for a graph break. Any other error fails the job.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Capture(Mode mode, const BatchShape& shape) = 0;
  // Same as Capture, but for one rung of the mode's ladder. The cache captures all rungs, the largest first.
  virtual absl::StatusOr<std::unique_ptr<Executable>> CaptureRung(Mode mode, const BatchShape& shape) {
    return Capture(mode, shape);
  }
  // If the device compiles a step when the step first runs, runs the captured step of `mode` once at `shape`. So no
  // step of the job waits for the compilation. Restores everything that the step changed. A no-op on a device that
  // does not compile.
  virtual absl::Status WarmUp(Mode /*mode*/, const BatchShape& /*shape*/) { return absl::OkStatus(); }
  // Same as Capture, but captures the step of `mode` once for every shape. Lays out memory for the mode's planned
  // ceiling. A larger batch takes the missing memory from the heap during its own step.
  virtual absl::StatusOr<std::unique_ptr<Executable>> CaptureDynamic(Mode mode) = 0;
  // Returns why this job has no dynamic executables on this device; empty if it has them.
  virtual std::string NoDynamicReason() const = 0;
  // Runs the step without capturing it.
  virtual absl::StatusOr<StepResult> RunEager(Mode mode, const StepInputs& inputs) = 0;
  // Bytes that all executables share at this moment.
  virtual int64_t shared_bytes() const = 0;
};

// A dynamic executable needs at least 2 rows of each kind: the math library treats the sizes 0 and 1 differently from
// the captured sizes.
inline constexpr int64_t kLeastDynamic = 2;
inline BatchShape AtLeastDynamic(const BatchShape& shape) {
  return {std::max(shape.nodes, kLeastDynamic), std::max(shape.edges, kLeastDynamic),
          std::max(shape.graphs, kLeastDynamic)};
}

// A batch on which a step runs.
class Batch {
 public:
  virtual ~Batch() = default;
  // The batch's own shape, without padding.
  virtual BatchShape real() const = 0;
  // The smallest shape to which the batch can be padded. The batch is captured at this shape.
  virtual BatchShape least_padded() const = 0;
  // The shape at which a dynamic executable runs the batch: the smallest one with at least kLeastDynamic rows of each
  // kind.
  virtual BatchShape dynamic_shape() const = 0;
  // Pads the batch to `shape`, which must hold least_padded(). Returns the step's inputs, which are valid until the
  // next call. One of the inputs is `step`, the number of optimizer steps done.
  // Errors: InvalidArgument if the batch does not fit.
  virtual absl::StatusOr<const StepInputs*> PadTo(const BatchShape& shape, int64_t step) = 0;
  // Same as PadTo with dynamic_shape().
  virtual absl::StatusOr<const StepInputs*> PadDynamic(int64_t step) = 0;
};

}  // namespace permafrost::graphcache
