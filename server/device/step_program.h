// A step as a device captures it: a function of tensors, with the tensors that it changes; and for those who run a step
// twice and compare, the state before it and what it left.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash.h"
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
  // rounding (cuda/graph_capturer.h) takes the largest change in a group for its scale.
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

// For StepProgram::run: assigns the operators that follow, and their gradients, to a line of the user's module; ""
// assigns them to none. Only a capture keeps this, for profiles.
void NoteLine(std::string_view line);

// While one lives MarkPhase does nothing on its thread, unless a tape records: for runs that are no steps.
class SilentPhases {
 public:
  SilentPhases();
  SilentPhases(const SilentPhases&) = delete;
  ~SilentPhases();

 private:
  const bool outer_;  // whether the thread was silent before
};

// A copy of state and of libtorch's default generator. Puts both back at the end of its scope, unless Keep was called.
// Tensors that are zero throughout, as the moments of a job that begins, are not copied.
class SavedState {
 public:
  // Borrows `state`.
  explicit SavedState(const std::vector<StateTensor>& state);
  SavedState(const SavedState&) = delete;
  ~SavedState();
  // Puts both back now.
  void Rewind();
  // The state that the scope leaves stays.
  void Keep() { keep_ = true; }

 private:
  const std::vector<StateTensor>& state_;
  std::vector<at::Tensor> start_;  // undefined: zeros
  at::Generator generator_;
  at::Tensor generator_state_;
  bool keep_ = false;
};

// The bits of a tensor, in 16 bytes instead of a copy.
struct Bits {
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  Hash128Value hash;
  bool operator==(const Bits&) const = default;
};
Bits BitsOf(const at::Tensor& tensor);

// The state and the result that a step left.
struct Left {
  std::vector<Bits> outputs, state;
  bool operator==(const Left&) const = default;
};
Left LeftBy(const StepProgram& program, const std::vector<at::Tensor>& outputs);

// The first thing that `replay` left otherwise than `step`, "weight" or "output 0"; nullopt: there is none.
std::optional<std::string> FirstDifference(const StepProgram& program, const Left& replay, const Left& step);

}  // namespace permafrost::device
