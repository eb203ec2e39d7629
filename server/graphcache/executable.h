// What a device does for the cache. Implemented in device/ and wired by train/; faked in tests.
// Threads: the device thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/batch_shape.h"
#include "graphcache/policy.h"

namespace permafrost::graphcache {

// The tensors of one batch; only the device's side knows them.
class StepInputs;

// A step captured for one shape.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs the step on a batch of this executable's shape. What it returns in tensors is valid until the next step.
  virtual absl::Status Replay(const StepInputs& inputs) = 0;
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
  // Runs a step uncaptured.
  virtual absl::Status RunEager(Mode mode, const StepInputs& inputs) = 0;
  // Memory that all executables share, as it is now.
  virtual int64_t shared_bytes() const = 0;
};

// The batch of a step.
class Batch {
 public:
  virtual ~Batch() = default;
  // Without padding.
  virtual const BatchShape& real() const = 0;
  // One node and one graph more: the shape that it is captured at.
  virtual BatchShape least_padded() const = 0;
  // The batch padded to `shape`, which holds least_padded(); valid until the next call. Called once a step.
  virtual absl::StatusOr<const StepInputs*> PadTo(const BatchShape& shape) = 0;
};

}  // namespace permafrost::graphcache
