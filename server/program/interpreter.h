// Checks the inputs of each step against the export, and runs a program's nodes through libtorch's dispatcher. So
// autograd, autocast and a capture see the nodes as they would see the module's own operators.
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
  // The device for constants that the program makes, and for its copies "to a device".
  c10::Device device = c10::kCPU;
  // Replaces an operator that draws: takes its arguments off the stack and leaves its outputs there. `place` counts
  // the program's nodes that draw, from 0. If empty, libtorch's generator draws.
  std::function<void(const Node& node, int64_t place, torch::jit::Stack& stack)> draw;
  // May replace a batch norm in the same way. Returns false to leave the stack alone and let libtorch's norm run.
  // `place` counts the program's batch norms, from 0. If empty, libtorch's norm always runs.
  std::function<bool(int64_t place, torch::jit::Stack& stack)> norm;
  // Receives the source line of each node before the node runs, and "" after a run that did not throw. The function
  // may be empty.
  std::function<void(std::string_view line)> on_line;
  // The most bytes that one tensor may have; a view counts as if it were copied. An operator is refused before it
  // takes the memory if the shapes and numbers of its arguments determine its output's size (code.h). einsum,
  // tensordot, pooling and convolution are refused only after they took the memory. The bytes of all tensors together
  // have no bound. The default is more than machines have, and small enough that no product of sizes exceeds 64 bits.
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
  // Returns the indices in program().state of tensors that Run writes to, such as running statistics, in rising order.
  const std::vector<size_t>& mutated() const { return mutated_; }

  // Errors: InvalidArgument that names the input whose kind, type or sizes are not the program's.
  absl::Status CheckInputs(const std::vector<c10::IValue>& inputs) const;
  // Runs the program. `inputs` are the values of program().inputs, in their order. Returns the values of
  // program().outputs, in their order. Throws c10::Error, with the node and its line in the text, if an operator
  // refuses its arguments, and for inputs that CheckInputs refuses. Gradients are recorded if the caller records
  // them. Values are freed after their last use.
  std::vector<c10::IValue> Run(const std::vector<c10::IValue>& inputs);

 private:
  // An input of the graph: a tensor of the state or an input of the program.
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
