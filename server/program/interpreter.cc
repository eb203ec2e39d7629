#include "program/interpreter.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/code.h"
#include "program/libtorch.h"

namespace permafrost::program {

// Checks a step's inputs against the inputs that the program declares. Threads: safe anywhere once made.
class InputChecker {
 public:
  // Borrows the program.
  explicit InputChecker(const Program& program);
  // Errors: InvalidArgument that names the input whose kind, type or sizes are not the program's. Sizes that are
  // expressions, such as 2 * N, are not checked here but by the operators.
  absl::Status Check(const std::vector<c10::IValue>& inputs) const;

 private:
  static constexpr int32_t kNumber = -1, kAny = -2;
  struct Wanted {
    int64_t number = 0;
    int32_t symbol = kNumber;  // index in symbols_, or kNumber or kAny
  };
  struct Symbol {
    std::string name;
    int64_t min = INT64_MIN, max = INT64_MAX;
  };
  class Sizes;

  Wanted WantedOf(const Size& size);
  absl::Status CheckTensor(const TensorType& type, const std::vector<Wanted>& wanted, const c10::IValue& value,
                           Sizes& sizes) const;

  const Program& program_;
  std::vector<Symbol> symbols_;
  std::vector<std::vector<Wanted>> wanted_;  // by input: its wanted sizes, or its wanted number
};

namespace {

std::string ExpectedSizes(const TensorType& type) {
  std::string text = absl::StrCat(AbslView(kDTypeNames.Name(type.dtype)), " [");
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ");
    if (type.sizes[i].expression.empty()) {
      absl::StrAppend(&text, type.sizes[i].number);
    } else {
      absl::StrAppend(&text, Shorten(type.sizes[i].expression));
    }
  }
  return text + "]";
}

}  // namespace

// Collects the sizes of one batch by symbol. A symbol must have the same value wherever it occurs.
class InputChecker::Sizes {
 public:
  explicit Sizes(const std::vector<Symbol>& symbols) : symbols_(symbols), known_(symbols.size()) {}

  absl::Status Match(Wanted wanted, int64_t size) {
    if (wanted.symbol == kAny) return absl::OkStatus();
    if (wanted.symbol == kNumber) {
      if (size == wanted.number) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(size, " is not ", wanted.number));
    }
    const Symbol& symbol = symbols_[wanted.symbol];
    std::optional<int64_t>& known = known_[wanted.symbol];
    if (known && *known != size) {
      return absl::InvalidArgumentError(
          absl::StrCat(size, " is not ", *known, ", as ", Shorten(symbol.name), " is elsewhere"));
    }
    known = size;
    if (size >= symbol.min && size <= symbol.max) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(size, " is outside ", symbol.min, "..", symbol.max, ", for which the program was exported"));
  }

 private:
  const std::vector<Symbol>& symbols_;
  std::vector<std::optional<int64_t>> known_;
};

InputChecker::InputChecker(const Program& program) : program_(program) {
  wanted_.reserve(program.inputs.size());
  for (const Input& input : program.inputs) {
    std::vector<Wanted>& wanted = wanted_.emplace_back();
    wanted.reserve(input.type.sizes.size() + 1);
    if (input.kind != ValueKind::kTensor) wanted.push_back(WantedOf(input.size));
    for (const Size& size : input.type.sizes) wanted.push_back(WantedOf(size));
  }
  for (Symbol& symbol : symbols_) {
    for (const Range& range : program.ranges) {
      if (range.symbol != symbol.name) continue;
      symbol.min = range.min;
      symbol.max = range.max;
    }
  }
}

InputChecker::Wanted InputChecker::WantedOf(const Size& size) {
  if (size.expression.empty()) return {.number = size.number, .symbol = kNumber};
  if (size.expression.find('(') != std::string::npos) return {.number = 0, .symbol = kAny};
  const auto found = std::find_if(symbols_.begin(), symbols_.end(),
                                  [&](const Symbol& symbol) { return symbol.name == size.expression; });
  const auto place = static_cast<int32_t>(found - symbols_.begin());
  if (found == symbols_.end()) symbols_.push_back({.name = size.expression});
  return {.number = 0, .symbol = place};
}

absl::Status InputChecker::CheckTensor(const TensorType& type, const std::vector<Wanted>& wanted,
                                       const c10::IValue& value, Sizes& sizes) const {
  if (!value.isTensor() || !value.toTensor().defined()) return absl::InvalidArgumentError("must be a tensor");
  const at::Tensor& tensor = value.toTensor();
  if (tensor.scalar_type() != ScalarTypeOf(type.dtype) || tensor.dim() != static_cast<int64_t>(wanted.size())) {
    return absl::InvalidArgumentError(absl::StrCat("is ", c10::toString(tensor.scalar_type()), " of ", tensor.dim(),
                                                   " dimensions, where ", ExpectedSizes(type), " is accepted"));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const absl::Status status = sizes.Match(wanted[i], tensor.size(static_cast<int64_t>(i)));
    if (!status.ok()) return Annotate(status, absl::StrCat("size of dimension ", i));
  }
  return absl::OkStatus();
}

absl::Status InputChecker::Check(const std::vector<c10::IValue>& inputs) const {
  if (inputs.size() != wanted_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: ", inputs.size(), " of them, where the program takes ", wanted_.size()));
  }
  Sizes sizes(symbols_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = program_.inputs[i];
    absl::Status status;
    if (input.kind == ValueKind::kTensor) {
      status = CheckTensor(input.type, wanted_[i], inputs[i], sizes);
    } else if (!inputs[i].isInt()) {
      status = absl::InvalidArgumentError("must be an int");
    } else {
      status = sizes.Match(wanted_[i][0], inputs[i].toInt());
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("input ", Quote(input.name)));
  }
  return absl::OkStatus();
}

namespace {

using c10::IValue;
using Values = std::vector<IValue>;

// Sets and restores autocast as torch.autocast does.
class AutocastRegion {
 public:
  AutocastRegion(c10::DeviceType device, at::ScalarType type, bool enabled)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_type_(at::autocast::get_autocast_dtype(device)),
        was_cached_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
    // The cache must be off: if the step used a cached copy of a weight, a capture would not see that the step reads
    // the weight.
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_type_);
    at::autocast::set_autocast_cache_enabled(was_cached_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType was_type_;
  bool was_cached_;
};

IValue ValueOf(const Operand& operand, const Values& values) {
  switch (operand.kind) {
    case Operand::Kind::kConstant:
      return operand.constant;
    case Operand::Kind::kValue:
      return values[operand.values[0]];
    case Operand::Kind::kWrapped:
      return WrappedNumber(values[operand.values[0]]);
    case Operand::Kind::kReal: {
      const IValue& number = values[operand.values[0]];
      return number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble();
    }
    case Operand::Kind::kTensors: {
      c10::List<at::Tensor> list;
      list.reserve(operand.values.size());
      for (const ValueIndex value : operand.values) list.push_back(values[value].toTensor());
      return list;
    }
    case Operand::Kind::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(operand.values.size());
      for (const ValueIndex value : operand.values)
        list.push_back(value == kNoValue ? std::nullopt : std::optional(values[value].toTensor()));
      return list;
    }
    case Operand::Kind::kInts: {
      c10::List<int64_t> list;
      list.reserve(operand.values.size());
      for (size_t i = 0; i < operand.values.size(); ++i)
        list.push_back(operand.values[i] == kNoValue ? operand.numbers[i] : values[operand.values[i]].toInt());
      return list;
    }
  }
  return {};
}

class Runner {
 public:
  explicit Runner(const InterpreterOptions& options) : options_(options) {}

  // Runs a graph. `inputs` are the graph's inputs, in order. Returns its outputs.
  Values Run(const Code& code, Values inputs) const {
    const Graph& graph = *code.graph;
    Values values(graph.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = std::move(inputs[i]);
    torch::jit::Stack stack;  // reused by all instructions
    for (const Instruction& instruction : code.instructions) {
      if (options_.on_line) options_.on_line(instruction.node->source);
      try {
        stack.clear();
        Step(instruction, values, stack);
      } catch (c10::Error& error) {
        error.add_context(Describe(*instruction.node));
        throw;
      }
      for (const ValueIndex value : instruction.dead) values[value] = IValue();
    }
    Values outputs;
    outputs.reserve(graph.outputs.size());
    for (const ValueIndex output : graph.outputs) outputs.push_back(output == kNoValue ? IValue() : values[output]);
    return outputs;
  }

 private:
  void Step(const Instruction& instruction, Values& values, torch::jit::Stack& stack) const {
    for (const Operand& operand : instruction.operands) stack.push_back(ValueOf(operand, values));
    const std::vector<Output>& outputs = instruction.node->outputs;
    switch (instruction.kind) {
      case OperatorKind::kSymbolic:
        stack = {Evaluate(instruction.symbolic, stack)};
        break;
      case OperatorKind::kNoGrad: {
        const c10::AutoGradMode mode(instruction.enabled);
        stack = Run(*instruction.region, std::move(stack));
        break;
      }
      case OperatorKind::kAutocast: {
        const AutocastRegion region(options_.device.type(), instruction.autocast_type, instruction.enabled);
        stack = Run(*instruction.region, std::move(stack));
        break;
      }
      default:
        CheckBefore(instruction, stack);
        if (instruction.draw >= 0 && options_.draw) {
          options_.draw(*instruction.node, instruction.draw, stack);
        } else if (instruction.norm < 0 || !options_.norm || !options_.norm(instruction.norm, stack)) {
          instruction.op->callBoxed(stack);
          if (instruction.kind == OperatorKind::kUninitialized) stack[0].toTensor().zero_();
        }
    }
    TORCH_CHECK(stack.size() >= outputs.size() || outputs[0].values[0] == kNoValue, "the operator returned ",
                stack.size(), " values, where ", outputs.size(), " are used");
    for (size_t i = 0; i < std::min(outputs.size(), stack.size()); ++i) Keep(outputs[i], std::move(stack[i]), values);
  }

  void CheckBefore(const Instruction& instruction, const torch::jit::Stack& stack) const {
    if (instruction.guard == nullptr && instruction.estimate == nullptr) return;
    const c10::FunctionSchema& schema = instruction.op->schema();
    if (instruction.guard != nullptr) instruction.guard(schema, stack);
    if (instruction.estimate != nullptr) CheckBytes(instruction.estimate(schema, stack));
  }
  void CheckBytes(double bytes) const {
    TORCH_CHECK(bytes <= static_cast<double>(options_.max_tensor_bytes), "its output of about ", bytes,
                " bytes is more than the ", options_.max_tensor_bytes, " that a tensor may have");
  }
  void CheckSize(const at::Tensor& tensor) const {
    CheckBytes(static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size()));
  }

  void Keep(const Output& output, IValue result, Values& values) const {
    if (!output.is_list) {
      if (result.isTensor() && result.toTensor().defined()) CheckSize(result.toTensor());
      if (output.values[0] != kNoValue) values[output.values[0]] = std::move(result);
      return;
    }
    const std::vector<at::Tensor> tensors = result.toTensorVector();
    TORCH_CHECK(tensors.size() == output.values.size(), "the operator returned ", tensors.size(), " tensors, where ",
                output.values.size(), " are used");
    for (size_t i = 0; i < tensors.size(); ++i) {
      CheckSize(tensors[i]);
      values[output.values[i]] = tensors[i];
    }
  }

  const InterpreterOptions& options_;
};

// Returns the index of each value in the list.
std::map<ValueIndex, size_t> PlacesOf(const std::vector<ValueIndex>& values) {
  std::map<ValueIndex, size_t> places;
  for (size_t i = 0; i < values.size(); ++i) places.emplace(values[i], i);
  return places;
}

const void* StorageOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

Interpreter::Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;
Interpreter::~Interpreter() = default;

absl::StatusOr<Interpreter> Interpreter::Make(std::shared_ptr<const Program> program, std::vector<at::Tensor> state,
                                              InterpreterOptions options) {
  if (state.size() != program->state.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("state: ", state.size(), " tensors, where the program has ", program->state.size()));
  }
  PF_ASSIGN_OR_RETURN(Bound bound, Bind(*program, options.device));
  for (const Input& input : program->inputs) {
    if (bound.written.contains(input.value)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", Quote(input.name), ": the program writes to it"));
    }
  }
  Interpreter made;
  for (const BufferUpdate& update : program->updates) bound.written.insert(program->state[update.state].value);
  // If Run writes to a tensor, it changes all tensors that share its storage.
  std::set<const void*> storages;
  for (size_t i = 0; i < program->state.size(); ++i)
    if (bound.written.contains(program->state[i].value)) storages.insert(StorageOf(state[i]));
  for (size_t i = 0; i < program->state.size(); ++i)
    if (storages.contains(StorageOf(state[i]))) made.mutated_.push_back(i);
  made.program_ = std::move(program);
  made.state_ = std::move(state);
  made.options_ = std::move(options);
  made.code_ = std::move(bound.code);
  made.checker_ = std::make_unique<const InputChecker>(*made.program_);
  made.Connect();
  return made;
}

void Interpreter::Connect() {
  const Graph& graph = program_->graph;
  const std::map<ValueIndex, size_t> inputs = PlacesOf(graph.inputs), outputs = PlacesOf(graph.outputs);
  sources_.resize(graph.inputs.size());
  for (size_t i = 0; i < program_->state.size(); ++i)
    sources_[inputs.at(program_->state[i].value)] = {.is_state = true, .place = i};
  for (size_t i = 0; i < program_->inputs.size(); ++i)
    sources_[inputs.at(program_->inputs[i].value)] = {.is_state = false, .place = i};
  updates_.reserve(program_->updates.size());
  for (const BufferUpdate& update : program_->updates)
    updates_.push_back({.output = outputs.at(update.value), .state = update.state});
  outputs_.reserve(program_->outputs.size());
  for (const ValueIndex output : program_->outputs)
    outputs_.push_back(output == kNoValue ? kNothing : outputs.at(output));
}

absl::Status Interpreter::CheckInputs(const Values& inputs) const { return checker_->Check(inputs); }

Values Interpreter::Run(const Values& inputs) {
  const absl::Status checked = CheckInputs(inputs);
  TORCH_CHECK_VALUE(checked.ok(), std::string(checked.message()));
  Values arguments;
  arguments.reserve(sources_.size());
  for (const Source& source : sources_) {
    if (source.is_state) {
      arguments.emplace_back(state_[source.place]);
    } else {
      arguments.push_back(inputs[source.place]);
    }
  }
  const Values results = Runner(options_).Run(*code_, std::move(arguments));
  if (options_.on_line) options_.on_line("");
  {
    const c10::NoGradGuard no_grad;
    for (const Update& update : updates_) state_[update.state].copy_(results[update.output].toTensor());
  }
  Values outputs;
  outputs.reserve(outputs_.size());
  for (const size_t output : outputs_) outputs.push_back(output == kNothing ? IValue() : results[output]);
  return outputs;
}

}  // namespace permafrost::program
