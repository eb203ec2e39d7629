// Checks the inputs of each step against the export, and runs a program's nodes through libtorch's dispatcher, so that
// autograd, autocast and a capture see them as they would see the module's own. Threads: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "program/program.h"

namespace permafrost::program {

struct Code;
class InputChecker;

struct InterpreterOptions {
  // Where constants that the program makes, and copies "to a device", lie.
  c10::Device device = c10::kCPU;
  // Stands in for an operator that draws: takes its arguments off the stack and leaves its outputs there. `place`
  // counts the program's nodes of that kind, from 0. Empty: libtorch's generator.
  std::function<void(const Node& node, int64_t place, torch::jit::Stack& stack)> draw;
  // May replace a batch norm in the same way. Returns false to leave the stack alone and let libtorch's norm run.
  // `place` counts the program's batch norms, from 0. Empty: libtorch's norm always runs.
  std::function<bool(int64_t place, torch::jit::Stack& stack)> norm;
  // Called with a node's line before each node, and with "" after a run that did not throw. If empty, nothing is
  // called.
  std::function<void(std::string_view line)> on_line;
  // Bytes that one tensor may have; a view counts as if it were copied. Operators whose output the arguments' shapes
  // and numbers tell (code.h) are refused before they take the memory. einsum, tensordot, pooling and
  // convolution are refused after it. The bytes of all tensors together have no bound. By default more than machines
  // have, so that no product of sizes is beyond 64 bits.
  int64_t max_tensor_bytes = int64_t{1} << 50;
};

class Interpreter {
 public:
  // state: the tensors of program.state, in its order, which Run reads and writes. Errors: InvalidArgument that names
  // the node whose operator, arguments or outputs are not what libtorch's schema says.
  static absl::StatusOr<Interpreter> Make(std::shared_ptr<const Program> program, std::vector<at::Tensor> state,
                                          InterpreterOptions options = {});
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;
  ~Interpreter();

  const Program& program() const { return *program_; }
  // Places in program().state that Run writes to: running statistics and the like. Rising.
  const std::vector<size_t>& mutated() const { return mutated_; }

  // InvalidArgument that names the input whose kind, type or sizes are not the program's.
  absl::Status CheckInputs(const std::vector<c10::IValue>& inputs) const;
  // inputs: those of program().inputs, in their order. Returns what program().outputs lists. Throws c10::Error, with
  // the node and its line in its text, for what an operator refuses, and for inputs that CheckInputs refuses. Gradients
  // are recorded where the caller records them. Values are freed after their last use.
  std::vector<c10::IValue> Run(const std::vector<c10::IValue>& inputs);

 private:
  // Where the graph's inputs come from, and where its outputs go.
  struct Source {
    bool is_state = false;
    size_t place = 0;
  };
  struct Update {
    size_t output = 0, state = 0;
  };
  static constexpr size_t kNothing = SIZE_MAX;

  Interpreter();
  void Connect();

  std::shared_ptr<const Program> program_;
  std::vector<at::Tensor> state_;
  std::vector<size_t> mutated_;
  InterpreterOptions options_;
  std::unique_ptr<const Code> code_;
  std::unique_ptr<const InputChecker> checker_;
  std::vector<Source> sources_;  // by input of the graph
  std::vector<Update> updates_;
  std::vector<size_t> outputs_;  // by output of the program: one of the graph, or kNothing
};

}  // namespace permafrost::program
