// The state of a step's program before a step, and what the step left: for those who run a step twice and compare.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "device/step_program.h"

namespace permafrost::device {

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
