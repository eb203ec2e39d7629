// Checks the inputs of each step against the export, and runs a program's nodes through libtorch's dispatcher.
// Autograd, autocast and captures therefore see the same operators as if the module itself ran.
// Threads: one thread at a time.
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
  // The device on which the program makes constants, and to which its copies "to a device" go.
  c10::Device device = c10::kCPU;
  // Runs in place of an operator that draws random numbers. It takes the arguments off the stack and puts the outputs
  // there. `place` is the node's number among the program's nodes that draw, from 0. If `draw` is empty, libtorch's
  // generator draws.
  std::function<void(const Node& node, int64_t place, torch::jit::Stack& stack)> draw;
  // May run in place of a batch norm, with the stack as for `draw`. If it returns false, it left the stack unchanged,
  // and libtorch's norm runs. `place` is the norm's number among the program's batch norms, from 0. If `norm`
  // is empty, libtorch's norm always runs.
  std::function<bool(int64_t place, torch::jit::Stack& stack)> norm;
  // Receives the source line of each node before the node runs, and "" after a run that did not throw. May be empty.
  std::function<void(std::string_view line)> on_line;
  // The most bytes that one tensor may have; a view counts as if it were copied. If the arguments' shapes and numbers
  // determine an operator's output size (code.h), the operator is refused before it takes memory. Too large outputs
  // of einsum, tensordot, pooling and convolution are refused only after they were allocated. The bytes of all
  // tensors together are not limited. The default exceeds the memory of any machine, but keeps products of sizes
  // within 64 bits.
  int64_t max_tensor_bytes = int64_t{1} << 50;
};

class Interpreter {
 public:
  // `state` holds the tensors of program.state, in its order. Run reads and writes them. Errors: InvalidArgument that
  // names the node whose operator, arguments or outputs contradict libtorch's schema.
  static absl::StatusOr<Interpreter> Make(std::shared_ptr<const Program> program, std::vector<at::Tensor> state,
                                          InterpreterOptions options = {});
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;
  ~Interpreter();

  const Program& program() const { return *program_; }
  // Returns which tensors Run writes to, such as running statistics, as rising indices in program().state.
  const std::vector<size_t>& mutated() const { return mutated_; }

  // Errors: InvalidArgument that names the input whose kind, type or sizes are not the program's.
  absl::Status CheckInputs(const std::vector<c10::IValue>& inputs) const;
  // Runs the program. `inputs` are the values of program().inputs, in their order. Returns the values of
  // program().outputs, in their order. Throws c10::Error if an operator refuses its arguments, with the node and its
  // source line in the text. Also throws for inputs that CheckInputs refuses. Autograd records the run if the caller
  // has gradients enabled. Values are freed after their last use.
  std::vector<c10::IValue> Run(const std::vector<c10::IValue>& inputs);

 private:
  // The origin of a graph input: tensor `place` of the state, or input `place` of the program.
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
  std::vector<size_t> outputs_;  // by output of the program: an output of the graph, or kNothing
};

}  // namespace permafrost::program
