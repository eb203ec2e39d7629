// A program (server/program) bound to a device and a job: its tensors, its random numbers, and one run. The models of
// both levels are made of it (program_model.h). Threads: making one is safe anywhere; it belongs to the device thread.
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

// Operators of a program that the server runs in its own way, in place of PyTorch's: those that draw random numbers,
// and the batch norms of padded batches. Threads: safe anywhere, for different tensors; Draw on the device thread.

// Random operators draw with our own generator. Every number is a pure function of (seed, step, place of the operator
// among those that draw, row, column), so captures, resumes and equal runs draw the same. Rows are the first dimension.
// The distributions are PyTorch's; the numbers are not.

// Returns whether Draw knows the operator.
bool CanDraw(const program::Node& node);

// Runs such a node in place of PyTorch's operator: takes the arguments off the stack, and puts the results there. step:
// [1] int64. Gradients pass as PyTorch's do.
void Draw(const program::Node& node, uint64_t seed, int64_t place, const at::Tensor& step, torch::jit::Stack& stack);

// A batch norm of a padded batch runs over its real rows, in place of aten::batch_norm.

// Returns the shape of the norm's input. The stack holds the arguments of aten::batch_norm, which stay there.
std::vector<int64_t> ShapeOfNorm(const torch::jit::Stack& stack);
// Returns whether the norm uses the batch's statistics, and not running ones. The stack stays as it is.
bool NormTrains(const torch::jit::Stack& stack);

// Takes the arguments off the stack and leaves the output there. The mean and the (biased) variance are those of the
// rows that `real`, bool [rows], says are real, on all ranks where a step is shared; running statistics are updated as
// PyTorch does. Padding rows get the bias (0 without one) and no gradient. With fewer than two values of a channel,
// running statistics, if there are any, are used and not updated.
// x: [rows, channels, ...].
void NormalizeReal(const at::Tensor& real, torch::jit::Stack& stack);

// The rows that a batch norm of a program normalizes.
enum class NormRows { kNodes, kEdges, kPredicted };
// The rows of each batch norm, in the order of a form's nodes; by Mode.
using ProgramNorms = std::array<std::vector<NormRows>, 2>;

// Random operators draw numbers as Draw says. Parameters that the module froze, or does not use, are
// fixed. A buffer is saved if it is in the module's state_dict or a step writes to it. A tensor with several names is
// saved under the first.
class BoundProgram {
 public:
  struct Options {
    std::string name;            // of the program, for messages
    uint64_t seed = 0;           // of the numbers that it draws
    bool no_self_loops = false;  // the data has none: what removes them is left out (program/rewritings.h)
    // On the CPU, runs regions of edges and of rows as one operator, linear maps and batch norms as operators of nn,
    // and recurrent cells by these (program/rewritings.h).
    bool fused = true;
    std::optional<ProgramNorms> norms;  // of padded batches; nothing: batches are not padded
  };
  // `check` tells whether the job's data has such an input.
  // Errors: those of `check`, and InvalidArgument. All name the program, and the input, parameter or node if one is at
  // fault.
  static absl::StatusOr<std::unique_ptr<BoundProgram>> Make(
      const program::LoadedProgram& loaded, Options options, c10::Device device,
      absl::FunctionRef<absl::Status(const program::Input& input)> check);

  struct Output {
    at::Tensor prediction;  // the first output, not checked
    at::Tensor loss;        // scalar of a floating type; undefined: the module returns none
  };
  // Marks the real rows of a padded batch, bool [rows]. Batch norms that use batch statistics skip the others.
  struct RealRows {
    at::Tensor nodes, edges, predicted;
  };
  // Runs the form of the mode. `real` is null for a batch whose rows are all real. `value` gives the value of each
  // input.
  // Throws c10::Error, with the node and its line, for what an operator refuses, and for fewer rows than the program
  // was exported for.
  Output Run(Mode mode, const at::Tensor& step, const RealRows* real,
             absl::FunctionRef<c10::IValue(const program::Input& input)> value);

  // Returns whether operators of nn run in place of the program's own.
  bool is_fused() const { return fused_; }
  // Returns whether row_linear runs a float32 map of the program. Only the factors of such maps are rounded.
  bool has_own_products() const { return own_products_; }
  // Returns whether training draws random numbers.
  bool draws() const { return draws_; }
  // Returns the input shape of each batch norm in the last Run without padding, in the order of nodes, for programs
  // that are not fused. The shape is empty for a norm that used running statistics; such norms at the end have none.
  const std::vector<std::vector<int64_t>>& norm_shapes() const { return norm_shapes_; }

  const std::vector<program::Input>& inputs() const;
  const std::string& name() const { return options_.name; }
  nn::TensorSet& tensors() { return tensors_; }

 private:
  BoundProgram(Options options, c10::Device device) : options_(std::move(options)), device_(device) {}
  absl::Status Bind(const program::LoadedProgram& loaded,
                    absl::FunctionRef<absl::Status(const program::Input& input)> check);
  // Normalizes over the real rows of the batch that Run runs, or over all of them if it is not padded; in a shared step
  // over those of all ranks. Returns false if libtorch's batch norm must run instead.
  bool Normalize(Mode mode, size_t place, torch::jit::Stack& stack);
  // Returns the job's copy of a loaded tensor, one copy for all of its names. The loaded program is not changed.
  at::Tensor OnDevice(const at::Tensor& tensor);
  // Adds the form's tensors that no other form has.
  absl::Status AddState(const program::Interpreter& interpreter, const std::vector<at::Tensor>& state);

  const Options options_;
  const c10::Device device_;
  bool has_loss_ = false, draws_ = false, fused_ = false, own_products_ = false;
  nn::TensorSet tensors_;
  std::map<const c10::TensorImpl*, at::Tensor> own_;  // by the tensor that was loaded
  std::set<const c10::TensorImpl*> added_;
  std::optional<program::Interpreter> interpreters_[2];  // by Mode
  // Run sets these for its batch.
  at::Tensor step_;  // [1] int64
  const RealRows* real_ = nullptr;
  std::vector<std::vector<int64_t>> norm_shapes_;
};

// Checks that a program's features have the type and the columns of the dataset's. One column may lack its dimension.
absl::Status CheckFeatures(const program::Input& input, const nn::EncoderInput& features);
// Returns whether features of one column lack its dimension.
inline bool IsSqueezed(const program::Input& input) { return input.type.sizes.size() == 1; }

}  // namespace permafrost::train
