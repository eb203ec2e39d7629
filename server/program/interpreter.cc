#include "program/interpreter.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/code.h"
#include "program/dtypes.h"

namespace permafrost::program {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

// Autocast as torch.autocast sets and restores it.
class AutocastRegion {
 public:
  AutocastRegion(c10::DeviceType device, at::ScalarType type, bool enabled)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_type_(at::autocast::get_autocast_dtype(device)),
        was_cached_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
    // A copy that is kept would hide from a capture where a weight is read.
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

at::Tensor Wrapped(const IValue& number) {
  const at::ScalarType type = number.isBool() ? at::kBool : number.isInt() ? at::kLong : at::kDouble;
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), type);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue ValueOf(const Operand& operand, const Values& values) {
  switch (operand.kind) {
    case Operand::Kind::kConstant:
      return operand.constant;
    case Operand::Kind::kValue:
      return values[operand.values[0]];
    case Operand::Kind::kWrapped:
      return Wrapped(values[operand.values[0]]);
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

void Keep(const Output& output, IValue result, Values& values) {
  if (!output.is_list) {
    if (output.values[0] != kNoValue) values[output.values[0]] = std::move(result);
    return;
  }
  const std::vector<at::Tensor> tensors = result.toTensorVector();
  TORCH_CHECK(tensors.size() == output.values.size(), "the operator returned ", tensors.size(), " tensors, where ",
              output.values.size(), " are used");
  for (size_t i = 0; i < tensors.size(); ++i) values[output.values[i]] = tensors[i];
}

class Runner {
 public:
  explicit Runner(const InterpreterOptions& options) : options_(options) {}

  // inputs: those of the graph, in its order. Returns its outputs.
  Values Run(const Code& code, Values inputs) {
    const Graph& graph = *code.graph;
    Values values(graph.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = std::move(inputs[i]);
    for (const Instruction& instruction : code.instructions) {
      try {
        Step(instruction, values);
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
  void Step(const Instruction& instruction, Values& values) {
    torch::jit::Stack stack;
    stack.reserve(std::max(instruction.operands.size(), instruction.node->outputs.size()));
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
        if (instruction.draw >= 0 && options_.draw) {
          options_.draw(*instruction.node, instruction.draw, stack);
        } else {
          instruction.op->callBoxed(stack);
          if (instruction.kind == OperatorKind::kUninitialized) stack[0].toTensor().zero_();
        }
    }
    TORCH_CHECK(stack.size() >= outputs.size() || outputs[0].values[0] == kNoValue, "the operator returned ",
                stack.size(), " values, where ", outputs.size(), " are used");
    for (size_t i = 0; i < std::min(outputs.size(), stack.size()); ++i) Keep(outputs[i], std::move(stack[i]), values);
  }

  const InterpreterOptions& options_;
};

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

// Sizes of a batch by their symbols, which must be of one value each.
class Symbols {
 public:
  explicit Symbols(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) ranges_.emplace(range.symbol, &range);
  }
  // Sizes that are expressions of several symbols are left to the operators.
  absl::Status Match(const Size& wanted, int64_t size) {
    if (wanted.expression.empty()) {
      if (size == wanted.number) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(size, " is not ", wanted.number));
    }
    if (wanted.expression.find('(') != std::string::npos) return absl::OkStatus();
    const std::string symbol = Shorten(wanted.expression);
    const auto [known, added] = sizes_.emplace(wanted.expression, size);
    if (!added && known->second != size) {
      return absl::InvalidArgumentError(
          absl::StrCat(size, " is not ", known->second, ", as ", symbol, " is elsewhere"));
    }
    const auto found = ranges_.find(wanted.expression);
    if (found == ranges_.end() || (size >= found->second->min && size <= found->second->max)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(size, " is outside ", found->second->min, "..", found->second->max,
                                                   ", for which the program was exported"));
  }

 private:
  std::map<std::string, const Range*> ranges_;
  std::map<std::string, int64_t> sizes_;
};

absl::Status CheckTensor(const TensorType& wanted, const IValue& value, Symbols& symbols) {
  if (!value.isTensor() || !value.toTensor().defined()) return absl::InvalidArgumentError("must be a tensor");
  const at::Tensor& tensor = value.toTensor();
  if (tensor.scalar_type() != ScalarTypeOf(wanted.dtype) || tensor.dim() != static_cast<int64_t>(wanted.sizes.size())) {
    return absl::InvalidArgumentError(absl::StrCat("is ", c10::toString(tensor.scalar_type()), " of ", tensor.dim(),
                                                   " dimensions, where ", ExpectedSizes(wanted), " is accepted"));
  }
  for (size_t i = 0; i < wanted.sizes.size(); ++i) {
    const absl::Status status = symbols.Match(wanted.sizes[i], tensor.size(static_cast<int64_t>(i)));
    if (!status.ok()) return Annotate(status, absl::StrCat("size of dimension ", i));
  }
  return absl::OkStatus();
}

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
  for (size_t i = 0; i < program->state.size(); ++i)
    if (bound.written.contains(program->state[i].value)) made.mutated_.push_back(i);
  made.program_ = std::move(program);
  made.state_ = std::move(state);
  made.options_ = std::move(options);
  made.code_ = std::move(bound.code);
  return made;
}

absl::Status Interpreter::CheckInputs(const Values& inputs) const {
  if (inputs.size() != program_->inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs: ", inputs.size(), " of them, where the program takes ", program_->inputs.size()));
  }
  Symbols symbols(program_->ranges);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& wanted = program_->inputs[i];
    absl::Status status;
    if (wanted.kind == ValueKind::kTensor) {
      status = CheckTensor(wanted.type, inputs[i], symbols);
    } else if (!inputs[i].isInt()) {
      status = absl::InvalidArgumentError("must be an int");
    } else {
      status = symbols.Match(wanted.size, inputs[i].toInt());
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("input ", Quote(wanted.name)));
  }
  return absl::OkStatus();
}

Values Interpreter::Run(const Values& inputs) {
  const absl::Status checked = CheckInputs(inputs);
  TORCH_CHECK_VALUE(checked.ok(), std::string(checked.message()));
  const Graph& graph = program_->graph;
  // The graph's inputs are state and what the step passes, in the order of the file.
  std::map<ValueIndex, IValue> given;
  for (size_t i = 0; i < state_.size(); ++i) given[program_->state[i].value] = state_[i];
  for (size_t i = 0; i < inputs.size(); ++i) given[program_->inputs[i].value] = inputs[i];
  Values arguments;
  arguments.reserve(graph.inputs.size());
  for (const ValueIndex input : graph.inputs) arguments.push_back(given[input]);
  given.clear();
  const Values results = Runner(options_).Run(*code_, std::move(arguments));

  std::map<ValueIndex, IValue> by_value;
  for (size_t i = 0; i < results.size(); ++i)
    if (graph.outputs[i] != kNoValue) by_value[graph.outputs[i]] = results[i];
  {
    const c10::NoGradGuard no_grad;
    for (const BufferUpdate& update : program_->updates)
      state_[update.state].copy_(by_value.at(update.value).toTensor());
  }
  Values outputs;
  outputs.reserve(program_->outputs.size());
  for (const ValueIndex output : program_->outputs)
    outputs.push_back(output == kNoValue ? IValue() : by_value.at(output));
  return outputs;
}

}  // namespace permafrost::program
