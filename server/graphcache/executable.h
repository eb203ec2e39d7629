// The interface that a graph cache needs of its device and of the batches that it runs. Executables are implemented by
// device/, the compiler and the batches by train/; tests have fakes of all three.
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

// The tensors of one batch, and the tensors that a step returns. Only the device's side knows what they hold.
class StepInputs;
class StepOutputs;
// Its tensors are valid until the next step or capture of the same compiler. Never null, but see GraphCache::Run.
using StepResult = std::shared_ptr<const StepOutputs>;

// The place where a replay and the step, run eagerly from the same state on the same batch, part.
struct Difference {
  std::string op;   // schema name; empty where no single operator is to blame
  std::string why;  // one line
};

// The time that the operators of one name took in one replay of a step.
struct OperatorTime {
  std::string op;  // schema name
  int64_t calls = 0;
  double seconds = 0;
  bool operator==(const OperatorTime&) const = default;
};

// The time that operators called for one line of a user's module took in one replay of a step.
struct LineTime {
  std::string line;
  double forward_seconds = 0, backward_seconds = 0;
  double seconds() const { return forward_seconds + backward_seconds; }
  bool operator==(const LineTime&) const = default;
};

// A step that was replayed, and then run eagerly from the state that the replay began with.
struct AuditedStep {
  StepResult result;                     // the eager step's, whose state is the present one
  std::optional<Difference> difference;  // nullopt: state and outputs are bit-equal
  std::vector<OperatorTime> operators;   // of the replay, the longest first
  std::vector<LineTime> lines;           // likewise; operators of no line are left out
  double replay_seconds = 0, eager_seconds = 0;
  double product_seconds = 0;  // of the step's matrix products, run alone
};

// A step captured for one shape, or a dynamic one, for every shape.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs the step on a batch of this executable's shape; a dynamic one on any batch padded to its dynamic_shape().
  virtual absl::StatusOr<StepResult> Replay(const StepInputs& inputs) = 0;
  // The same, audited. nullopt, and nothing was run: an executable of this device has nothing that could differ.
  virtual absl::StatusOr<std::optional<AuditedStep>> ReplayAudited(const StepInputs& /*inputs*/) {
    return std::nullopt;
  }
  // Memory that this executable alone keeps.
  virtual int64_t bytes() const = 0;
};

// The reason of Capture's error for a step that cannot be captured, with metadata "op" (schema name, may be empty) and
// "why" (one line).
inline constexpr char kGraphBreakReason[] = "GRAPH_BREAK";

// Makes the executables of one job.
class Compiler {
 public:
  virtual ~Compiler() = default;
  // Captures the step of `mode` at `shape` (padded). Parameters, optimizer and generators are as before when it
  // returns. Errors: FailedPrecondition with kGraphBreakReason; anything else fails the job.
  virtual absl::StatusOr<std::unique_ptr<Executable>> Capture(Mode mode, const BatchShape& shape) = 0;
  // The same for a rung of the mode's ladder; the others are asked for too, the largest first.
  virtual absl::StatusOr<std::unique_ptr<Executable>> CaptureRung(Mode mode, const BatchShape& shape) {
    return Capture(mode, shape);
  }
  // Runs the step of `mode` once at `shape`, at which it was captured, on a device that compiles it when it first runs:
  // no step is to wait for that. It restores everything that the step changed. Nothing is run elsewhere.
  virtual absl::Status WarmUp(Mode /*mode*/, const BatchShape& /*shape*/) { return absl::OkStatus(); }
  // Captures the step of `mode` once for every shape. The memory that it needs at the planned ceiling of the mode is
  // laid out now; larger batches take the rest from the heap, for their step alone. All else as Capture.
  virtual absl::StatusOr<std::unique_ptr<Executable>> CaptureDynamic(Mode mode) = 0;
  // Why there are no dynamic executables for this job on this device; empty: there are.
  virtual std::string NoDynamicReason() const = 0;
  // Runs a step uncaptured.
  virtual absl::StatusOr<StepResult> RunEager(Mode mode, const StepInputs& inputs) = 0;
  // Memory that all executables share, as it is now.
  virtual int64_t shared_bytes() const = 0;
};

// Sizes of 0 and 1 take other ways through the math library than all others, which were captured.
inline constexpr int64_t kLeastDynamic = 2;
inline BatchShape AtLeastDynamic(const BatchShape& shape) {
  return {std::max(shape.nodes, kLeastDynamic), std::max(shape.edges, kLeastDynamic),
          std::max(shape.graphs, kLeastDynamic)};
}

// The batch of a step.
class Batch {
 public:
  virtual ~Batch() = default;
  // The batch's own shape, without padding.
  virtual BatchShape real() const = 0;
  // The smallest shape that it can be padded to, which is the one that it is captured at.
  virtual BatchShape least_padded() const = 0;
  // The shape that a dynamic executable runs it at: the smallest one of its own with kLeastDynamic rows of each kind.
  virtual BatchShape dynamic_shape() const = 0;
  // Pads the batch to `shape`, which holds least_padded(), and returns the step's inputs, valid until the next call.
  // `step`: optimizer steps done, which is one of the inputs. Errors: InvalidArgument if the batch does not fit.
  virtual absl::StatusOr<const StepInputs*> PadTo(const BatchShape& shape, int64_t step) = 0;
  // The same for dynamic_shape().
  virtual absl::StatusOr<const StepInputs*> PadDynamic(int64_t step) = 0;
};

}  // namespace permafrost::graphcache
