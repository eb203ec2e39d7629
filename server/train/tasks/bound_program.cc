#include "train/tasks/bound_program.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "collective/group.h"
#include "device/step_program.h"
#include "nn/ops/batch_norm.h"
#include "nn/ops/dropout.h"
#include "nn/ops/edge_region.h"
#include "nn/ops/linear.h"
#include "program/operators.h"
#include "program/rewritings.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using program::ValueKind;
using torch::jit::Stack;

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

// Returns the values on which `outputs` or writes depend. An export may also have nodes whose values nothing reads.
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

// The random numbers of one node.
class Source {
 public:
  Source(uint64_t seed, int64_t place, const Tensor& step) : seed_(seed), place_(place), step_(step) {}

  // Returns a dropout mask of x's size and type: 0 with probability p, and otherwise 1 / (1 - p). With p = 1, all
  // elements are 0.
  Tensor Mask(const Tensor& x, double p) const {
    const Tensor ones = at::ones(Flat(x), x.options().dtype(at::kFloat).requires_grad(false));
    const Tensor kept = p >= 1 ? at::zeros_like(ones) : nn::Dropout(ones, step_, Key(0), p);
    return kept.view(x.sizes()).to(x.scalar_type());
  }
  Tensor Dropout(const Tensor& x, double p) const {
    if (p < 1 && x.dim() == 2 && x.scalar_type() == at::kFloat) return nn::Dropout(x, step_, Key(0), p);
    return x * Mask(x, p);
  }
  // Returns uniform float32 numbers in [0, 1), of x's size. Each stream of a node has different numbers.
  Tensor Uniform(const Tensor& x, int stream = 0) const {
    const Tensor like = at::zeros(Flat(x), x.options().dtype(at::kFloat).requires_grad(false));
    return nn::Uniform(like, step_, Key(stream)).view(x.sizes());
  }
  // Same as Uniform, but in x's type. No number is rounded up to 1, even if the type has fewer bits than float32.
  Tensor UniformOf(const Tensor& x) const {
    const double steps = x.scalar_type() == at::kHalf ? 1 << 11 : x.scalar_type() == at::kBFloat16 ? 1 << 8 : 0;
    const Tensor drawn = Uniform(x);
    return (steps > 0 ? (drawn * steps).floor().div(steps) : drawn).to(x.scalar_type());
  }
  // Returns normally distributed float32 numbers. Source: Box and Muller 1958.
  Tensor Normal(const Tensor& x) const {
    const Tensor radius = (Uniform(x, 0).neg() + 1).log().mul(-2).sqrt();
    return radius * (Uniform(x, 1) * (2 * std::numbers::pi)).cos();
  }
  // Returns exponentially distributed numbers of x's type, all above 0: a 0 becomes 2^-25 / lambda, or in float16 at
  // least 2^-24.
  Tensor Exponential(const Tensor& x, double lambda) const {
    const Tensor drawn = (Uniform(x).neg() + 1).log().neg().clamp_min(std::ldexp(1.0, -25)) / lambda;
    return x.scalar_type() == at::kHalf ? drawn.clamp_min(std::ldexp(1.0, -24)).to(at::kHalf)
                                        : drawn.to(x.scalar_type());
  }

 private:
  static std::vector<int64_t> Flat(const Tensor& x) {
    const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
    return {rows, x.numel() / std::max<int64_t>(rows, 1)};
  }
  nn::DropoutKey Key(int stream) const {
    // Each stream has a seed of its own.
    constexpr uint64_t kStream = 0x9e3779b97f4a7c15;
    return {.seed = seed_ + static_cast<uint64_t>(stream) * kStream, .layer = place_};
  }

  const uint64_t seed_;
  const int64_t place_;
  const Tensor& step_;
};

// Returns zeros for a factory operator, whose arguments sizes, dtype, layout and device begin at stack[sizes].
Tensor Zeros(const Stack& stack, size_t sizes, const Tensor& step) {
  const auto type = stack[sizes + 1].toOptional<at::ScalarType>().value_or(at::kFloat);
  return at::zeros(stack[sizes].toIntVector(), step.options().dtype(type));
}
Tensor ZerosLike(const Stack& stack) {
  const Tensor x = stack[0].toTensor();
  return at::zeros_like(x, x.options().dtype(stack[1].toOptional<at::ScalarType>()).requires_grad(false));
}

// Fills `x` in place.
Tensor Fill(const Tensor& x, const Tensor& values) { return x.copy_(values); }

Tensor Integers(const Source& source, const Tensor& like, int64_t low, int64_t high) {
  constexpr int kBits = 24;  // random bits of a uniform number
  constexpr int64_t kOne = int64_t{1} << kBits;
  int64_t range = 0;
  TORCH_CHECK_VALUE(low < high && !__builtin_sub_overflow(high, low, &range) && range <= kOne * kOne, "randint: ", low,
                    "..", high, " is no range of at most 2^48 integers");
  const auto bits = [&](int stream) {
    return (source.Uniform(like, stream) * static_cast<double>(kOne)).to(at::kLong);
  };
  return (bits(0) * kOne + bits(1)).remainder(range).add(low).to(like.scalar_type());
}

// One row per operator. `draw` maps the arguments of the operator's schema to its results, and ignores the generator.
struct Row {
  std::string_view target;  // without "torch.ops.aten."
  std::vector<c10::IValue> (*draw)(const Source& source, const Stack& stack, const Tensor& step);
};
using Values = std::vector<c10::IValue>;
constexpr Row kRows[] = {
    {"dropout.default", [](const Source& source, const Stack& s,
                           const Tensor&) { return Values{source.Dropout(s[0].toTensor(), s[1].toDouble())}; }},
    {"dropout_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{x.mul_(source.Mask(x, s[1].toDouble()))};
     }},
    {"native_dropout.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor(), mask = source.Mask(x, s[1].toDouble());
       return Values{x * mask, mask.ne(0)};
     }},
    {"feature_dropout.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
       std::copy_n(x.sizes().begin(), std::min<int64_t>(2, x.dim()), sizes.begin());
       return Values{x * source.Mask(at::zeros(sizes, x.options().requires_grad(false)), s[1].toDouble())};
     }},
    {"rand_like.default",
     [](const Source& source, const Stack& s, const Tensor&) { return Values{source.UniformOf(ZerosLike(s))}; }},
    {"randn_like.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = ZerosLike(s);
       return Values{source.Normal(x).to(x.scalar_type())};
     }},
    {"rand.default", [](const Source& source, const Stack& s,
                        const Tensor& step) { return Values{source.UniformOf(Zeros(s, 0, step))}; }},
    {"randn.default",
     [](const Source& source, const Stack& s, const Tensor& step) {
       const Tensor x = Zeros(s, 0, step);
       return Values{source.Normal(x).to(x.scalar_type())};
     }},
    {"bernoulli.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor p = s[0].toTensor();
       return Values{source.Uniform(p).lt(p).to(p.scalar_type())};
     }},
    {"bernoulli.p",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{source.Uniform(x).lt(s[1].toDouble()).to(x.scalar_type())};
     }},
    {"bernoulli_.float",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Uniform(x).lt(s[1].toDouble()))};
     }},
    {"bernoulli_.Tensor",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Uniform(x).lt(s[1].toTensor()))};
     }},
    {"uniform_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       const double from = s[1].toDouble(), to = s[2].toDouble();
       const Tensor drawn = (source.UniformOf(x).to(at::kFloat) * (to - from) + from).to(x.scalar_type());
       // In a type of few bits, a number may be rounded up to `to`, which the interval excludes.
       return Values{Fill(x, at::where(drawn.lt(to), drawn, at::full_like(drawn, from)))};
     }},
    {"normal_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Normal(x) * s[2].toDouble() + s[1].toDouble())};
     }},
    {"exponential_.default",
     [](const Source& source, const Stack& s, const Tensor&) {
       const Tensor x = s[0].toTensor();
       return Values{Fill(x, source.Exponential(x, s[1].toDouble()))};
     }},
    {"randint.default",
     [](const Source& source, const Stack& s, const Tensor& step) {
       const auto type = s[2].toOptional<at::ScalarType>().value_or(at::kLong);
       const Tensor like = at::zeros(s[1].toIntVector(), step.options().dtype(type));
       return Values{Integers(source, like, 0, s[0].toInt())};
     }},
    {"randint.low",
     [](const Source& source, const Stack& s, const Tensor& step) {
       const auto type = s[3].toOptional<at::ScalarType>().value_or(at::kLong);
       const Tensor like = at::zeros(s[2].toIntVector(), step.options().dtype(type));
       return Values{Integers(source, like, s[0].toInt(), s[1].toInt())};
     }},
};

const Row* FindRow(const program::Node& node) {
  std::string_view target = node.target;
  constexpr std::string_view kPrefix = "torch.ops.aten.";
  if (!target.starts_with(kPrefix)) return nullptr;
  target.remove_prefix(kPrefix.size());
  const auto* const row = std::ranges::find(kRows, target, &Row::target);
  return row == std::end(kRows) ? nullptr : row;
}

// Indices of the arguments of aten::batch_norm.
enum Argument : uint8_t { kX, kWeight, kBias, kRunningMean, kRunningVar, kTrains, kMomentum, kEps, kCudnn, kArguments };

const c10::IValue& Get(const Stack& stack, Argument argument) { return torch::jit::peek(stack, argument, kArguments); }

Tensor TensorOf(const Stack& stack, Argument argument) {
  const c10::IValue& value = Get(stack, argument);
  return value.isTensor() ? value.toTensor() : Tensor();
}

// If `moves` is true, moves a running statistic towards the batch's value.
void Follow(const Tensor& running, const Tensor& value, double momentum, const Tensor& moves) {
  running.copy_(at::where(moves, running * (1 - momentum) + value * momentum, running));
}

// Returns the sum over all ranks, added in float64.
Tensor OverRanks(const Tensor& sum) { return collective::AllReduceSum(sum.to(at::kDouble)).to(sum.scalar_type()); }

}  // namespace

bool CanDraw(const program::Node& node) { return FindRow(node) != nullptr; }

void Draw(const program::Node& node, uint64_t seed, int64_t place, const Tensor& step, Stack& stack) {
  stack = FindRow(node)->draw(Source(seed, place, step), stack, step);
}

std::vector<int64_t> ShapeOfNorm(const Stack& stack) { return TensorOf(stack, kX).sizes().vec(); }

bool NormTrains(const Stack& stack) { return Get(stack, kTrains).toBool(); }

void NormalizeReal(const Tensor& real, Stack& stack) {
  const Tensor input = TensorOf(stack, kX), weight = TensorOf(stack, kWeight), bias = TensorOf(stack, kBias);
  const Tensor running_mean = TensorOf(stack, kRunningMean), running_var = TensorOf(stack, kRunningVar);
  const double momentum = Get(stack, kMomentum).toDouble(), eps = Get(stack, kEps).toDouble();
  const bool half = at::isReducedFloatingType(input.scalar_type());
  const Tensor x = half ? input.to(at::kFloat) : input;
  // All dimensions but that of the channels.
  std::vector<int64_t> others{0};
  for (int64_t d = 2; d < x.dim(); ++d) others.push_back(d);
  std::vector<int64_t> of_rows(static_cast<size_t>(x.dim()), 1), of_channels = of_rows;
  of_rows[0] = -1;
  of_channels[1] = x.size(1);
  const Tensor is_real = real.view(of_rows), zero = at::zeros({}, x.options());
  const auto by_channel = [&](const Tensor& value) { return value.view(of_channels); };
  Tensor sum = at::where(is_real, x, zero).sum(others), values = real.sum().to(x.scalar_type());
  for (int64_t d = 2; d < x.dim(); ++d) values = values * x.size(d);
  if (collective::IsShared()) {
    const Tensor all = OverRanks(at::cat({sum, values.reshape({1})}));
    sum = all.narrow(0, 0, x.size(1));
    values = all.select(0, x.size(1)).detach();
  }
  const Tensor count = values.clamp_min(1), enough = values.ge(2);
  Tensor mean = sum / count;
  Tensor squares = at::where(is_real, x - by_channel(mean), zero).square().sum(others);
  if (collective::IsShared()) squares = OverRanks(squares);
  Tensor var = squares / count;
  if (running_mean.defined()) {
    const Tensor batch_mean = mean.detach(), unbiased = var.detach() * (count / (count - 1).clamp_min(1));
    mean = at::where(enough, mean, running_mean);
    var = at::where(enough, var, running_var);
    const c10::NoGradGuard no_grad;
    Follow(running_mean, batch_mean, momentum, enough);
    Follow(running_var, unbiased, momentum, enough);
  }
  Tensor y = at::where(is_real, x - by_channel(mean), zero) * by_channel((var + eps).rsqrt());
  if (weight.defined()) y = y * by_channel(weight);
  if (bias.defined()) y = y + by_channel(bias);
  torch::jit::drop(stack, kArguments);
  stack.emplace_back(half ? y.to(input.scalar_type()) : std::move(y));
}

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
      // In padded batches, norms must run over the real rows only (Normalize).
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
    how.draw = [this](const program::Node& node, int64_t place, Stack& stack) {
      Draw(node, options_.seed, place, step_, stack);
    };
    how.norm = [this, mode](int64_t place, Stack& stack) { return Normalize(mode, static_cast<size_t>(place), stack); };
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
  // If the program computes a loss, it may not depend on all values of the prediction. Parameters on which it does
  // not depend are fixed.
  const std::set<program::ValueIndex> used =
      UsedValues(form.graph, has_loss_ ? std::span(form.outputs).subspan(1) : std::span(form.graph.outputs));
  const std::vector<size_t>& mutated = interpreter.mutated();
  std::set<const c10::TensorImpl*> read;  // tensors that are read, under any of their names
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

bool BoundProgram::Normalize(Mode mode, size_t place, Stack& stack) {
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
