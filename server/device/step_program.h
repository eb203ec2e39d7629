// A step in the form that a device captures: a function of tensors, and the tensors that it changes. This file also
// has copies of the state before a step, and fingerprints of the state after the step. With them, a step can be run
// twice and the results compared.
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

// The tensors of one batch, in an order fixed for the job. A tensor may be undefined if it is undefined in all
// batches of the job. A tensor lies on the host or on the device. A capturer copies tensors of the host to the device
// (device/staging.h).
class StepInputs {
 public:
  std::vector<at::Tensor> tensors;
  // The indices in `tensors` of resident tensors. A resident tensor lies on the device and is shared by all batches
  // of the job. An example is the edges of a whole graph.
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
  // The name of a group of tensors that change by amounts of similar size, such as parameters, first moments or
  // running statistics. The scale of a proof to rounding (cuda/graph_capturer.h) is the largest change in a group.
  std::string group;
};

struct StepProgram {
  // Runs one step. It may read its inputs, `state`, and tensors that it makes. It may write `state` and tensors that
  // it makes.
  std::function<std::vector<at::Tensor>(const graphcache::StepInputs&)> run;
  // All tensors that outlive a step and that the step reads or writes. Their storage must not move.
  std::vector<StateTensor> state;
  // Each replay calls this function at the places where the step calls MarkPhase. It may be empty.
  std::function<void(int phase)> on_phase;
  // Before a proof to rounding, sets `state` so that a rounding error in a gradient changes a parameter at most in
  // proportion. From other states, Adam divides a gradient by the gradient's own size. So even a gradient of pure
  // rounding error moves the parameter by a learning rate. Leave it empty if any state will do.
  std::function<void()> steady_state;
};

// A function that returns the inputs of one probe of a dynamic capture. `probe` is 0..kDynamicProbes - 1. The inputs
// are valid until the next call. A capture may ask for any probe several times.
inline constexpr size_t kDynamicProbes = 4;
using ProbeInputs = std::function<absl::StatusOr<const graphcache::StepInputs*>(size_t probe)>;

// A function that makes and returns the inputs of one batch. The inputs are valid until the next call of this
// function or of the ProbeInputs.
using BatchInputs = std::function<absl::StatusOr<const graphcache::StepInputs*>()>;

// Calls on_phase(phase). Call MarkPhase from StepProgram::run, with the program's own on_phase. While a step is
// captured, MarkPhase calls nothing. The capture then notes the place, and each replay calls the program's on_phase
// there.
void MarkPhase(int phase, const std::function<void(int phase)>& on_phase);

// Assigns the operators that run next, and the operators of their gradients, to a line of the user's module. ""
// assigns them to no line. Call it from StepProgram::run. Only a capture keeps the line, for profiles.
void NoteLine(std::string_view line);

// While a SilentPhases lives, MarkPhase calls no on_phase on its thread. If a tape records, it still notes the place.
// Use it around runs of a program that do not count as steps of the job.
class SilentPhases {
 public:
  SilentPhases();
  SilentPhases(const SilentPhases&) = delete;
  ~SilentPhases();

 private:
  const bool outer_;  // true if the thread was silent before
};

// A copy of the state and of libtorch's default generator. The destructor restores both unless Keep was called. A
// tensor that is all zeros, such as a moment of a new job, is not copied.
class SavedState {
 public:
  // Borrows `state`.
  explicit SavedState(const std::vector<StateTensor>& state);
  SavedState(const SavedState&) = delete;
  ~SavedState();
  // Restores the state and the generator now.
  void Rewind();
  // Makes the destructor restore nothing.
  void Keep() { keep_ = true; }

 private:
  const std::vector<StateTensor>& state_;
  std::vector<at::Tensor> start_;  // a copy of each tensor; undefined if the tensor was all zeros
  at::Generator generator_;
  at::Tensor generator_state_;
  bool keep_ = false;
};

// A fingerprint of a tensor's bits: 16 bytes instead of a copy.
struct Bits {
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  Hash128Value hash;
  bool operator==(const Bits&) const = default;
};
Bits BitsOf(const at::Tensor& tensor);

// Fingerprints of the state after a step, and of the step's outputs.
struct Left {
  std::vector<Bits> outputs, state;
  bool operator==(const Left&) const = default;
};
Left LeftBy(const StepProgram& program, const std::vector<at::Tensor>& outputs);

// Returns the name of the first tensor in which `replay` differs from `step`, such as "weight" or "output 0". Returns
// nullopt if they are equal.
std::optional<std::string> FirstDifference(const StepProgram& program, const Left& replay, const Left& step);

}  // namespace permafrost::device
