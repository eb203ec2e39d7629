#include "train/tasks/bound_program.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "collective/group.h"
#include "device/step_program.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/edge_region.h"
#include "nn/ops/linear.h"
#include "program/operators.h"
#include "program/rewritings.h"
#include "train/tasks/program_operators.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using program::ValueKind;

std::string TypeText(program::DType dtype, size_t dimensions) {
  return absl::StrCat(AbslView(program::kDTypeNames.Name(dtype)), " of ", dimensions, " dimensions");
}

absl::Status CheckForm(const program::Program& form,
                       absl::FunctionRef<absl::Status(const program::Input& input)> check) {
  for (const program::Input& input : form.inputs) {
    if (absl::Status status = check(input); !status.ok())
      return Annotate(status, absl::StrCat("input ", Quote(input.name)));
  }
  const auto is_tensor = [&](program::ValueIndex output) {
    return output != program::kNoValue && form.graph.values[output].kind == ValueKind::kTensor;
  };
  const size_t outputs = form.outputs.size();
  if (outputs < 1 || outputs > 2 || !std::ranges::all_of(form.outputs, is_tensor)) {
    return absl::InvalidArgumentError(absl::StrCat("the module returns ", outputs, outputs == 1 ? " value" : " values",
                                                   "; accepted: a tensor, the prediction, or two, the prediction and "
                                                   "a loss"));
  }
  for (const program::Node* node : program::RandomNodes(form)) {
    if (CanDraw(*node)) continue;
    const bool is_recurrent = program::ArgumentOf(*node, "num_layers") != nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat(program::Describe(*node), ": draws numbers in a way that is not accepted",
                     is_recurrent ? "; recurrent layers take dropout=0, and nn.Dropout may follow each" : ""));
  }
  return absl::OkStatus();
}

// Returns the values that `outputs` or writes depend on. The rest is skipped: exports keep nodes that nothing reads.
std::set<program::ValueIndex> UsedValues(const program::Graph& graph, std::span<const program::ValueIndex> outputs) {
  std::set<program::ValueIndex> used(outputs.begin(), outputs.end());
  const auto is_used = [&](const program::Output& output) {
    return std::ranges::any_of(output.values, [&](program::ValueIndex value) { return used.contains(value); });
  };
  for (const program::Node& node : graph.nodes | std::views::reverse) {
    if (!program::WritesInPlace(node) && !std::ranges::any_of(node.outputs, is_used)) continue;
    const std::vector<program::ValueIndex> inputs = program::InputsOf(node);
    used.insert(inputs.begin(), inputs.end());
  }
  return used;
}

}  // namespace

absl::Status CheckFeatures(const program::Input& input, const nn::EncoderInput& features) {
  if (!features.has_features()) return absl::InvalidArgumentError("the dataset has no such features");
  const bool floats = features.categories.empty();
  const int64_t columns = floats ? features.float_columns : std::ssize(features.categories);
  const program::DType wanted = floats ? program::DType::kFloat32 : program::DType::kInt64;
  const std::vector<program::Size>& sizes = input.type.sizes;
  const bool squeezed = sizes.size() == 1 && columns == 1;
  const bool fits = squeezed || (sizes.size() == 2 && (!sizes[1].expression.empty() || sizes[1].number == columns));
  if (fits && input.type.dtype == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the program takes ", TypeText(input.type.dtype, sizes.size()),
      sizes.size() == 2 && sizes[1].expression.empty() ? absl::StrCat(", with ", sizes[1].number, " columns") : "",
      "; the dataset has ", columns, columns == 1 ? " column" : " columns", " of ",
      AbslView(program::kDTypeNames.Name(wanted))));
}

absl::StatusOr<std::unique_ptr<BoundProgram>> BoundProgram::Make(
    const program::LoadedProgram& loaded, Options options, c10::Device device,
    absl::FunctionRef<absl::Status(const program::Input& input)> check) {
  std::unique_ptr<BoundProgram> bound(new BoundProgram(std::move(options), device));
  if (absl::Status status = bound->Bind(loaded, check); !status.ok())
    return Annotate(status, absl::StrCat("program ", Quote(bound->name())));
  return bound;
}

absl::Status BoundProgram::Bind(const program::LoadedProgram& loaded,
                                absl::FunctionRef<absl::Status(const program::Input& input)> check) {
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    program::Form form = mode == Mode::kTrain ? loaded.train() : loaded.eval();
    const auto take = [&](program::Program rewritten) {
      form.program = std::make_shared<const program::Program>(std::move(rewritten));
    };
    if (options_.no_self_loops) {
      if (auto without = program::WithoutSelfLoops(*form.program)) take(*std::move(without));
    }
    const bool own_linears = options_.fused && nn::RunsRowLinear(device_);
    if (auto forms = own_linears ? program::WithLinearForms(*form.program) : std::nullopt) {
      take(*std::move(forms));
      fused_ = true;
    }
    for (const auto rewrite : {program::WithNodeLinears, program::WithCategoryProducts}) {
      if (auto rewritten = rewrite(*form.program)) take(*std::move(rewritten));
    }
    if (options_.fused && nn::RunsEdgeRegions(device_)) {
      if (auto fused = program::WithEdgeRegions(*form.program, /*differentiated=*/mode == Mode::kTrain)) {
        take(std::move(fused->program));
        fused_ = true;
      }
    }
    if (own_linears) {
      // Norms of padded batches see the real rows alone (Normalize).
      if (auto layers = program::WithRowLayers(*form.program, {.norms = !options_.norms && nn::RunsRowNorm(device_)})) {
        take(std::move(layers->program));
        fused_ = true;
      }
    }
    own_products_ |= program::HasFloat32Linears(*form.program);
    PF_RETURN_IF_ERROR(CheckForm(*form.program, check));
    const bool has_loss = form.program->outputs.size() == 2;
    if (mode == Mode::kEval && has_loss != has_loss_) {
      return absl::InvalidArgumentError(
          "the module returns a loss in one of training and evaluation; accepted: in both");
    }
    has_loss_ = has_loss;
    if (mode == Mode::kTrain) draws_ = !program::RandomNodes(*form.program).empty();
    std::vector<Tensor> state;
    state.reserve(form.state.size());
    for (const Tensor& tensor : form.state) state.push_back(OnDevice(tensor));
    program::InterpreterOptions how{.device = device_,
                                    .draw = {},
                                    .norm = {},
                                    .on_line = &device::NoteLine,
                                    .max_tensor_bytes = static_cast<int64_t>(MemoryLimit())};
    how.draw = [this](const program::Node& node, int64_t place, torch::jit::Stack& stack) {
      Draw(node, options_.seed, place, step_, stack);
    };
    how.norm = [this, mode](int64_t place, torch::jit::Stack& stack) {
      return Normalize(mode, static_cast<size_t>(place), stack);
    };
    PF_ASSIGN_OR_RETURN(auto made, program::Interpreter::Make(form.program, state, std::move(how)));
    PF_RETURN_IF_ERROR(AddState(made, state));
    interpreters_[static_cast<size_t>(mode)].emplace(std::move(made));
  }
  if (!tensors_.parameters().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("it has no parameters to train");
}

Tensor BoundProgram::OnDevice(const Tensor& tensor) {
  Tensor& own = own_[tensor.unsafeGetTensorImpl()];
  if (own.defined()) return own;
  own = tensor.detach().to(device_, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  return own.set_requires_grad(tensor.requires_grad());
}

absl::Status BoundProgram::AddState(const program::Interpreter& interpreter, const std::vector<Tensor>& state) {
  const program::Program& form = interpreter.program();
  // The program's own loss may use only part of what makes the prediction; parameters outside that part stay fixed.
  const std::set<program::ValueIndex> used =
      UsedValues(form.graph, has_loss_ ? std::span(form.outputs).subspan(1) : std::span(form.graph.outputs));
  const std::vector<size_t>& mutated = interpreter.mutated();
  std::set<const c10::TensorImpl*> read;  // under any of their names
  for (size_t i = 0; i < state.size(); ++i) {
    if (used.contains(form.state[i].value)) read.insert(state[i].unsafeGetTensorImpl());
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const program::State& row = form.state[i];
    const bool is_parameter = row.kind == program::StateKind::kParameter;
    if (!added_.insert(state[i].unsafeGetTensorImpl()).second) continue;
    if (!is_parameter && !row.persistent && !std::ranges::binary_search(mutated, i)) {
      tensors_.AddConstant(absl::StrCat(form.form, ".", row.name), state[i]);
      continue;
    }
    const bool trained = is_parameter && state[i].requires_grad();
    if (trained && state[i].scalar_type() != at::kFloat) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", Shorten(row.name), ": is ",
                                                     c10::toString(state[i].scalar_type()),
                                                     ", where Float is trained; call float() on the module"));
    }
    if (!is_parameter) {
      tensors_.AddBuffer(row.name, state[i]);
    } else if (trained && read.contains(state[i].unsafeGetTensorImpl())) {
      tensors_.AddParameter(row.name, state[i]);
    } else {
      tensors_.AddFixedParameter(row.name, state[i]);
    }
  }
  return absl::OkStatus();
}

bool BoundProgram::Normalize(Mode mode, size_t place, torch::jit::Stack& stack) {
  if (!NormTrains(stack)) return false;
  if (real_ == nullptr) {
    norm_shapes_.resize(std::max(place + 1, norm_shapes_.size()));
    norm_shapes_[place] = ShapeOfNorm(stack);
    if (!collective::IsShared()) return false;
    NormalizeReal(at::ones({norm_shapes_[place].at(0)}, at::TensorOptions().dtype(at::kBool).device(device_)), stack);
    return true;
  }
  switch ((*options_.norms)[static_cast<size_t>(mode)].at(place)) {
    case NormRows::kNodes:
      NormalizeReal(real_->nodes, stack);
      break;
    case NormRows::kEdges:
      NormalizeReal(real_->edges, stack);
      break;
    case NormRows::kPredicted:
      NormalizeReal(real_->predicted, stack);
      break;
  }
  return true;
}

BoundProgram::Output BoundProgram::Run(Mode mode, const Tensor& step, const RealRows* real,
                                       absl::FunctionRef<c10::IValue(const program::Input& input)> value) {
  program::Interpreter& interpreter = *interpreters_[static_cast<size_t>(mode)];
  std::vector<c10::IValue> inputs;
  for (const program::Input& input : interpreter.program().inputs) inputs.push_back(value(input));
  step_ = step;
  real_ = real;
  norm_shapes_.clear();
  const std::vector<c10::IValue> outputs = interpreter.Run(inputs);
  step_.reset();
  Output output{.prediction = outputs[0].toTensor(), .loss = has_loss_ ? outputs[1].toTensor() : Tensor()};
  TORCH_CHECK_VALUE(
      !output.loss.defined() || (output.loss.numel() == 1 && at::isFloatingType(output.loss.scalar_type())),
      "the module's loss is ", output.loss.sizes(), " of ", output.loss.scalar_type(),
      "; one number of a floating type is accepted");
  if (output.loss.defined()) output.loss = output.loss.reshape({});
  return output;
}

const std::vector<program::Input>& BoundProgram::inputs() const { return interpreters_[0]->program().inputs; }

}  // namespace permafrost::train
