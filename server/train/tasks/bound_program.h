// A program (server/program) bound to a device and a job. It holds the program's tensors, draws its random numbers,
// and runs its training and evaluation forms. Graph-level and node-level models use it (program_model.h). Threads:
// Make is thread-safe; all other methods belong to the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/step.h"
#include "nn/models/parts.h"
#include "nn/tensor_set.h"
#include "program/interpreter.h"
#include "program/load.h"
#include "program/program.h"

namespace permafrost::train {

// The next functions are the server's own implementations of some operators of programs. These operators draw random
// numbers, or are batch norms of padded batches. Threads: thread-safe for different tensors, but Draw runs on the
// device thread.

// Random operators draw with our own generator. Every number is a pure function of (seed, step, index of the operator
// among those that draw, row, column). So captures, resumes and equal runs draw equal numbers. Rows are the first
// dimension. The distributions are PyTorch's, but the numbers are not.

// Returns whether Draw knows the operator.
bool CanDraw(const program::Node& node);

// Runs a node that draws, in place of PyTorch's operator. Pops the arguments from the stack and pushes the results.
// `place` is the operator's index among those that draw. `step` is [1] int64. Gradients flow as through PyTorch's
// operator.
void Draw(const program::Node& node, uint64_t seed, int64_t place, const at::Tensor& step, torch::jit::Stack& stack);

// The next functions replace aten::batch_norm on a padded batch, and normalise over its real rows.

// Returns the shape of the norm's input. The stack holds the arguments of aten::batch_norm, and is left unchanged.
std::vector<int64_t> ShapeOfNorm(const torch::jit::Stack& stack);
// Returns whether the norm uses the batch's statistics rather than running ones. The stack is left unchanged.
bool NormTrains(const torch::jit::Stack& stack);

// Pops the arguments from the stack and pushes the output. The input is [rows, channels, ...], and `real`, bool
// [rows], marks its real rows. The mean and the (biased) variance are those of the real rows; if ranks share the
// step, those of the real rows on all ranks. Running statistics are updated as PyTorch does. In padding rows the
// output is the bias (0 without one), and no gradient flows. If a channel has fewer than two values and the norm has
// running statistics, the norm uses them and does not update them.
void NormalizeReal(const at::Tensor& real, torch::jit::Stack& stack);

// The rows that a batch norm of a program normalises.
enum class NormRows { kNodes, kEdges, kPredicted };
// By Mode: the rows that each batch norm normalises, in the order of the nodes of the mode's form.
using ProgramNorms = std::array<std::vector<NormRows>, 2>;

// A program with the job's copies of its tensors. Random operators run as Draw. Parameters are fixed if the module
// froze them or does not use them. A buffer is saved if it is in the module's state_dict or if a step writes to it. A
// tensor with several names is saved under its first name.
class BoundProgram {
 public:
  struct Options {
    std::string name;   // the program's name, for messages
    uint64_t seed = 0;  // seeds the numbers that the program draws
    // The data has no self-loops, so operators that remove them are left out (program/rewritings.h).
    bool no_self_loops = false;
    // On the CPU, each region of edges or rows runs as one operator. Linear maps and batch norms run as operators of
    // nn, and recurrent cells as compositions of these operators (program/rewritings.h).
    bool fused = true;
    std::optional<ProgramNorms> norms;  // set if batches are padded
  };
  // `check` returns an error for an input that the job's data lacks. Errors: those of `check`; InvalidArgument. Each
  // error names the program and, if one is at fault, the input, parameter or node.
  static absl::StatusOr<std::unique_ptr<BoundProgram>> Make(
      const program::LoadedProgram& loaded, Options options, c10::Device device,
      absl::FunctionRef<absl::Status(const program::Input& input)> check);

  struct Output {
    at::Tensor prediction;  // the first output, unchecked
    at::Tensor loss;        // scalar of a floating type; undefined if the module returns none
  };
  // Masks of the real rows of a padded batch, each bool [rows]. Batch norms that use batch statistics skip the
  // padding rows.
  struct RealRows {
    at::Tensor nodes, edges, predicted;
  };
  // Runs the form of the mode. If all rows of the batch are real, `real` is null. `value` returns the value of an
  // input. Throws c10::Error if an operator refuses its arguments, or if there are fewer rows than the program was
  // exported for. The error names the node and its line.
  Output Run(Mode mode, const at::Tensor& step, const RealRows* real,
             absl::FunctionRef<c10::IValue(const program::Input& input)> value);

  // Returns whether operators of nn replace operators of the program.
  bool is_fused() const { return fused_; }
  // Returns whether row_linear runs any float32 linear map of the program. With bfloat16, only the inputs and weights
  // of these maps are rounded.
  bool has_own_products() const { return own_products_; }
  // Returns whether training draws random numbers.
  bool draws() const { return draws_; }
  // Returns the input shape of each batch norm in the last Run without padding, in the order of nodes. Only for
  // programs that are not fused. The shape is empty for a norm that used running statistics. The list leaves out
  // empty shapes at its end.
  const std::vector<std::vector<int64_t>>& norm_shapes() const { return norm_shapes_; }

  const std::vector<program::Input>& inputs() const;
  const std::string& name() const { return options_.name; }
  nn::TensorSet& tensors() { return tensors_; }

 private:
  BoundProgram(Options options, c10::Device device) : options_(std::move(options)), device_(device) {}
  absl::Status Bind(const program::LoadedProgram& loaded,
                    absl::FunctionRef<absl::Status(const program::Input& input)> check);
  // Runs batch norm number `place` over the real rows of Run's batch, or over all rows if the batch is not padded. If
  // ranks share the step, includes the rows of all ranks. Returns false if libtorch's batch norm must run instead.
  bool Normalize(Mode mode, size_t place, torch::jit::Stack& stack);
  // Returns the job's copy of a tensor of the loaded program, which stays unchanged. A tensor with several names has
  // one copy.
  at::Tensor OnDevice(const at::Tensor& tensor);
  // Adds the tensors of a form that no earlier form has added.
  absl::Status AddState(const program::Interpreter& interpreter, const std::vector<at::Tensor>& state);

  const Options options_;
  const c10::Device device_;
  bool has_loss_ = false, draws_ = false, fused_ = false, own_products_ = false;
  nn::TensorSet tensors_;
  std::map<const c10::TensorImpl*, at::Tensor> own_;  // the job's copies, by loaded tensor
  std::set<const c10::TensorImpl*> added_;
  std::optional<program::Interpreter> interpreters_[2];  // by Mode
  // The next members belong to the batch of the present Run.
  at::Tensor step_;  // [1] int64
  const RealRows* real_ = nullptr;
  std::vector<std::vector<int64_t>> norm_shapes_;
};

// Checks that a program's features have the type and the columns of the dataset's features. An input of a single
// column may lack the column dimension.
absl::Status CheckFeatures(const program::Input& input, const nn::EncoderInput& features);
// Returns whether the input is a single column without the column dimension.
inline bool IsSqueezed(const program::Input& input) { return input.type.sizes.size() == 1; }

}  // namespace permafrost::train
