#include "program/code.h"

#include <ATen/Functions.h>
#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/aliases.h"
#include "program/libtorch.h"

namespace permafrost::program {
namespace {

using c10::IValue;
using c10::TypeKind;

Operand Constant(IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}
Operand OperandOf(Operand::Kind kind, std::vector<ValueIndex> values) {
  Operand operand;
  operand.kind = kind;
  operand.values = std::move(values);
  return operand;
}

// Returns a bool, int or double argument as an IValue. Returns nullopt for an argument of another type.
std::optional<IValue> NumberOf(const Argument& argument) {
  if (const auto* flag = std::get_if<bool>(&argument)) return IValue(*flag);
  if (const auto* number = std::get_if<int64_t>(&argument)) return IValue(*number);
  if (const auto* real = std::get_if<double>(&argument)) return IValue(*real);
  return std::nullopt;
}

std::optional<Operand> BindInts(const Argument& argument, const c10::Argument& wanted) {
  Operand operand;
  operand.kind = Operand::Kind::kInts;
  if (const auto* number = std::get_if<int64_t>(&argument); number != nullptr && wanted.N()) {
    return Constant(c10::List<int64_t>(std::vector<int64_t>(static_cast<size_t>(*wanted.N()), *number)));
  }
  const auto* ints = std::get_if<Ints>(&argument);
  if (ints == nullptr) return std::nullopt;
  bool known = true;
  for (const auto& element : ints->values) {
    const auto* ref = std::get_if<Ref>(&element);
    known = known && ref == nullptr;
    operand.values.push_back(ref == nullptr ? kNoValue : ref->value);
    operand.numbers.push_back(ref == nullptr ? std::get<int64_t>(element) : 0);
  }
  if (known) return Constant(c10::List<int64_t>(operand.numbers));
  return operand;
}

std::optional<Operand> BindList(const Argument& argument, const c10::Argument& wanted, const c10::TypePtr& element) {
  const bool optional = element->kind() == TypeKind::OptionalType;
  if (const auto* refs = std::get_if<Refs>(&argument)) {
    const c10::TypePtr of = optional ? element->castRaw<c10::OptionalType>()->getElementType() : element;
    if (of->kind() != TypeKind::TensorType) return std::nullopt;
    for (const ValueIndex value : refs->values)
      if (value == kNoValue && !optional) return std::nullopt;
    return OperandOf(optional ? Operand::Kind::kOptionalTensors : Operand::Kind::kTensors, refs->values);
  }
  const TypeKind kind = element->kind();
  if (kind == TypeKind::IntType || kind == TypeKind::SymIntType) return BindInts(argument, wanted);
  if (const auto* floats = std::get_if<std::vector<double>>(&argument);
      floats != nullptr && kind == TypeKind::FloatType) {
    c10::List<double> list;
    list.reserve(floats->size());
    for (const double value : *floats) list.push_back(value);
    return Constant(list);
  }
  if (const auto* bools = std::get_if<std::vector<bool>>(&argument); bools != nullptr && kind == TypeKind::BoolType) {
    c10::List<bool> list;
    list.reserve(bools->size());
    for (const bool value : *bools) list.push_back(value);
    return Constant(list);
  }
  return std::nullopt;
}

// Binds an argument that is a value of the graph.
std::optional<Operand> BindRef(Ref ref, TypeKind wanted, const Graph& graph) {
  const ValueKind kind = graph.values[ref.value].kind;
  const auto as = [&](Operand::Kind how) { return OperandOf(how, {ref.value}); };
  if (kind == ValueKind::kTensor) {
    if (wanted != TypeKind::TensorType) return std::nullopt;
    return as(Operand::Kind::kValue);
  }
  const bool is_int = kind == ValueKind::kInt;
  switch (wanted) {
    case TypeKind::TensorType:
      return as(Operand::Kind::kWrapped);
    case TypeKind::NumberType:
      return as(Operand::Kind::kValue);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return is_int ? std::optional(as(Operand::Kind::kValue)) : std::nullopt;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return kind == ValueKind::kBool ? std::optional(as(Operand::Kind::kValue)) : std::nullopt;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return kind == ValueKind::kBool ? std::nullopt : std::optional(as(Operand::Kind::kReal));
    default:
      return std::nullopt;
  }
}

std::optional<Operand> BindNumber(const IValue& number, TypeKind wanted) {
  switch (wanted) {
    case TypeKind::TensorType:
      return Constant(WrappedNumber(number));
    case TypeKind::NumberType:
      return Constant(number);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return number.isInt() ? std::optional(Constant(number)) : std::nullopt;
    case TypeKind::BoolType:
      return number.isBool() ? std::optional(Constant(number)) : std::nullopt;
    case TypeKind::FloatType:
      if (number.isBool()) return std::nullopt;
      return Constant(number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble());
    default:
      return std::nullopt;
  }
}

c10::MemoryFormat MemoryFormatOf(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::kContiguous:
      return c10::MemoryFormat::Contiguous;
    case MemoryFormat::kChannelsLast:
      return c10::MemoryFormat::ChannelsLast;
    case MemoryFormat::kChannelsLast3d:
      return c10::MemoryFormat::ChannelsLast3d;
    case MemoryFormat::kPreserve:
      return c10::MemoryFormat::Preserve;
  }
  return c10::MemoryFormat::Contiguous;
}

std::optional<Operand> BindDeviceOrText(const Argument& argument, TypeKind wanted, c10::Device device) {
  if (std::holds_alternative<Device>(argument)) {
    return wanted == TypeKind::DeviceObjType ? std::optional(Constant(device)) : std::nullopt;
  }
  const auto* text = std::get_if<std::string>(&argument);
  return text != nullptr && wanted == TypeKind::StringType ? std::optional(Constant(*text)) : std::nullopt;
}

// Binds an element type, a layout or a memory format, which are ints on the stack. Refuses an int in the file, since
// the int may be outside the enum.
std::optional<Operand> BindEnum(const Argument& argument, TypeKind wanted) {
  if (const auto* dtype = std::get_if<DType>(&argument); dtype != nullptr && wanted == TypeKind::ScalarTypeType) {
    return Constant(static_cast<int64_t>(ScalarTypeOf(*dtype)));
  }
  if (std::holds_alternative<StridedLayout>(argument) && wanted == TypeKind::LayoutType) {
    return Constant(static_cast<int64_t>(c10::Layout::Strided));
  }
  if (const auto* format = std::get_if<MemoryFormat>(&argument);
      format != nullptr && wanted == TypeKind::MemoryFormatType) {
    return Constant(static_cast<int64_t>(MemoryFormatOf(*format)));
  }
  return std::nullopt;
}
bool IsEnum(TypeKind kind) {
  return kind == TypeKind::ScalarTypeType || kind == TypeKind::LayoutType || kind == TypeKind::MemoryFormatType;
}

std::optional<Operand> BindAs(const Argument& argument, const c10::Argument& wanted, const c10::TypePtr& type,
                              const Graph& graph, c10::Device device) {
  if (type->kind() == TypeKind::OptionalType) {
    if (std::holds_alternative<None>(argument)) return Constant(IValue());
    return BindAs(argument, wanted, type->castRaw<c10::OptionalType>()->getElementType(), graph, device);
  }
  if (type->kind() == TypeKind::ListType) {
    return BindList(argument, wanted, type->castRaw<c10::ListType>()->getElementType());
  }
  if (const auto* ref = std::get_if<Ref>(&argument)) return BindRef(*ref, type->kind(), graph);
  if (const auto number = NumberOf(argument)) return BindNumber(*number, type->kind());
  return BindDeviceOrText(argument, type->kind(), device);
}

// Binds a node's argument to `wanted`, the argument that the operator's schema declares. Errors: InvalidArgument that
// names `wanted` and its type.
absl::StatusOr<Operand> BindArgument(const Argument& argument, const c10::Argument& wanted, const Graph& graph,
                                     c10::Device device) {
  // The type that the schema declares. wanted.type() would be the type of the value on the stack.
  c10::TypePtr real = wanted.real_type();
  const bool optional = real->kind() == TypeKind::OptionalType;
  if (optional) real = real->castRaw<c10::OptionalType>()->getElementType();
  std::optional<Operand> bound;
  if (IsEnum(real->kind()) && !(optional && std::holds_alternative<None>(argument))) {
    bound = BindEnum(argument, real->kind());
  } else {
    bound = BindAs(argument, wanted, wanted.type(), graph, device);
  }
  if (!bound) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.name(), ": is no ", wanted.real_type()->str(), ", which the operator takes"));
  }
  return *std::move(bound);
}

// Binds an argument of a function without a schema: a number, a value or text.
absl::StatusOr<Operand> BindPlain(const Argument& argument) {
  if (const auto* ref = std::get_if<Ref>(&argument)) return OperandOf(Operand::Kind::kValue, {ref->value});
  if (const auto number = NumberOf(argument)) return Constant(*number);
  if (const auto* text = std::get_if<std::string>(&argument)) return Constant(*text);
  if (std::holds_alternative<None>(argument)) return Constant(IValue());
  return absl::InvalidArgumentError("an argument is neither a value nor a number");
}

constexpr size_t kNoGradArguments = 2, kAutocastArguments = 5;  // before the values that a region takes

// Batch and instance norm write to their running statistics, although their schemas do not say so.
constexpr struct {
  const char* name;
  size_t mean, variance, flag;
} kRunningStatistics[] = {{"aten::batch_norm", 3, 4, 5}, {"aten::instance_norm", 3, 4, 5}};

// The numbers of random nodes and of batch norms bound so far, in regions too.
struct Places {
  int64_t draws = 0, norms = 0;
};

class Binder {
 public:
  Binder(const Graph& graph, c10::Device device, Places& places)
      : graph_(graph), device_(device), places_(places), aliases_(graph) {}

  absl::StatusOr<Bound> Bind() {
    auto code = std::make_unique<Code>();
    code->graph = &graph_;
    code->instructions.reserve(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      Instruction instruction;
      instruction.node = &node;
      if (absl::Status status = BindNode(node, instruction); !status.ok()) return Annotate(status, Describe(node));
      code->instructions.push_back(std::move(instruction));
    }
    FindLastUses(*code);
    return Bound{std::move(code), aliases_.WrittenInputs()};
  }

 private:
  absl::Status BindNode(const Node& node, Instruction& instruction) {
    const auto kind = IsOwnOperator(node.target) ? OperatorKind::kTensor : FindOperator(node.target);
    if (!kind) return absl::InvalidArgumentError("no program may use this operator");
    instruction.kind = *kind;
    switch (*kind) {
      case OperatorKind::kSymbolic:
        return BindSymbolic(node, instruction);
      case OperatorKind::kNoGrad:
      case OperatorKind::kAutocast:
        return BindRegion(node, instruction);
      default:
        return BindOperator(node, instruction);
    }
  }

  absl::Status BindSymbolic(const Node& node, Instruction& instruction) {
    instruction.symbolic = *FindSymbolic(node.target);
    const auto [least, most] = ArgumentsOf(instruction.symbolic);
    if (node.inputs.size() < least || node.inputs.size() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.inputs.size(), " arguments, where ", least, " to ", most, " are accepted"));
    }
    for (const NamedArgument& input : node.inputs) {
      PF_ASSIGN_OR_RETURN(const size_t place, PlaceOf(input, instruction));
      PF_ASSIGN_OR_RETURN(instruction.operands[place], BindPlain(input.value));
    }
    if (node.outputs.size() > 1 || (node.outputs.size() == 1 && !IsNumber(node.outputs[0]))) {
      return absl::InvalidArgumentError("its output must be one number");
    }
    return absl::OkStatus();
  }
  // Returns the argument's index among the operands, and grows the operands to hold it. Arguments that are left out
  // are None.
  static absl::StatusOr<size_t> PlaceOf(const NamedArgument& input, Instruction& instruction) {
    const std::vector<std::string_view> names = NamesOf(instruction.symbolic);
    size_t place = instruction.operands.size();
    if (!names.empty()) {
      const auto found = std::find(names.begin(), names.end(), input.name);
      if (found == names.end()) {
        return absl::InvalidArgumentError(absl::StrCat(Quote(input.name), " is none of its arguments"));
      }
      place = static_cast<size_t>(found - names.begin());
    }
    if (place >= instruction.operands.size()) instruction.operands.resize(place + 1);
    return place;
  }
  bool IsNumber(const Output& output) const {
    if (output.is_list) return false;
    const ValueIndex value = output.values[0];
    return value == kNoValue || graph_.values[value].kind != ValueKind::kTensor;
  }

  absl::Status BindRegion(const Node& node, Instruction& instruction) {
    const bool autocast = instruction.kind == OperatorKind::kAutocast;
    const size_t fixed = autocast ? kAutocastArguments : kNoGradArguments;
    const auto input = [&](size_t i) { return i < node.inputs.size() ? &node.inputs[i].value : nullptr; };
    const auto* enabled = std::get_if<bool>(input(autocast ? 2 : 0));
    const auto* region = std::get_if<std::shared_ptr<const Graph>>(input(fixed - 1));
    if (enabled == nullptr || region == nullptr) return absl::InvalidArgumentError("a region takes a flag and a graph");
    if (autocast) {
      const Argument* type = input(1);
      const auto* dtype = std::get_if<DType>(type);
      if (dtype == nullptr && !std::holds_alternative<None>(*type)) {
        return absl::InvalidArgumentError("autocast takes a type");
      }
      if (dtype != nullptr) instruction.autocast_type = ScalarTypeOf(*dtype);
      if (*enabled && instruction.autocast_type != at::kBFloat16 && instruction.autocast_type != at::kHalf) {
        return absl::InvalidArgumentError("autocast takes bfloat16 or float16");
      }
    }
    instruction.enabled = *enabled;
    const Graph& inner = **region;
    if (node.inputs.size() - fixed != inner.inputs.size() || node.outputs.size() != inner.outputs.size()) {
      return absl::InvalidArgumentError("its graph takes or returns another number of values");
    }
    for (size_t i = 0; i < inner.inputs.size(); ++i) {
      const auto* ref = std::get_if<Ref>(&node.inputs[fixed + i].value);
      if (ref == nullptr || graph_.values[ref->value].kind != inner.values[inner.inputs[i]].kind) {
        return absl::InvalidArgumentError(absl::StrCat("value ", i, " is not of the kind that its graph takes"));
      }
      instruction.operands.push_back(*BindPlain(node.inputs[fixed + i].value));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueIndex from = inner.outputs[i], to = node.outputs[i].is_list ? kNoValue : node.outputs[i].values[0];
      if (from == kNoValue || to == kNoValue || inner.values[from].kind != graph_.values[to].kind) {
        return absl::InvalidArgumentError(absl::StrCat("output ", i, " is not of the kind that its graph returns"));
      }
    }
    PF_ASSIGN_OR_RETURN(Bound bound, Binder(inner, device_, places_).Bind());
    for (size_t i = 0; i < inner.inputs.size(); ++i)
      if (bound.written.contains(inner.inputs[i])) Write(instruction.operands[i]);
    // A region may return a view of any value that it takes.
    std::vector<ValueIndex> all;
    for (const Operand& operand : instruction.operands)
      all.insert(all.end(), operand.values.begin(), operand.values.end());
    aliases_.Follow(node, std::move(all));
    instruction.region = std::move(bound.code);
    return absl::OkStatus();
  }

  absl::Status BindOperator(const Node& node, Instruction& instruction) {
    const auto name = ParseOperator(node.target);
    if (!name) return absl::InvalidArgumentError("no operator has such a name");
    instruction.op = c10::Dispatcher::singleton().findSchema({name->name, name->overload});
    if (!instruction.op) return absl::InvalidArgumentError("this libtorch has no such operator");
    instruction.guard = FindGuard(name->name);
    instruction.estimate = FindEstimate(name->name);
    if (Draws(node)) instruction.draw = places_.draws++;
    if (name->name == "aten::batch_norm") instruction.norm = places_.norms++;
    const c10::FunctionSchema& schema = instruction.op->schema();
    PF_RETURN_IF_ERROR(BindArguments(node, schema, instruction));
    PF_RETURN_IF_ERROR(CheckOutputs(node, schema));
    return FollowAliases(node, schema, name->name, instruction);
  }

  absl::Status BindArguments(const Node& node, const c10::FunctionSchema& schema, Instruction& instruction) const {
    size_t given = 0;
    for (const c10::Argument& wanted : schema.arguments()) {
      const auto found = std::find_if(node.inputs.begin(), node.inputs.end(),
                                      [&](const NamedArgument& input) { return input.name == wanted.name(); });
      if (found != node.inputs.end()) {
        ++given;
        PF_RETURN_IF_ERROR(CheckDense(*found));
        PF_ASSIGN_OR_RETURN(Operand operand, BindArgument(found->value, wanted, graph_, device_));
        instruction.operands.push_back(std::move(operand));
      } else if (wanted.default_value()) {
        instruction.operands.emplace_back().constant = *wanted.default_value();
      } else {
        return absl::InvalidArgumentError(absl::StrCat(wanted.name(), ": is missing"));
      }
    }
    if (given == node.inputs.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(node.inputs.size() - given, " of its arguments are none of the operator's"));
  }

  // Refuses sparse gradients, since a sparse gradient and its parameter would have different layouts.
  static absl::Status CheckDense(const NamedArgument& argument) {
    const auto* flag = std::get_if<bool>(&argument.value);
    if ((argument.name != "sparse" && argument.name != "sparse_grad") || (flag != nullptr && !*flag)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(argument.name, ": only false is accepted"));
  }

  absl::Status CheckOutputs(const Node& node, const c10::FunctionSchema& schema) const {
    // If an operator returns nothing, its node may have one output that is None.
    const bool nothing = schema.returns().empty() && node.outputs.size() == 1 && node.outputs[0].values.size() == 1 &&
                         node.outputs[0].values[0] == kNoValue;
    if (!nothing && node.outputs.size() > schema.returns().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.outputs.size(), " outputs, where the operator has ", schema.returns().size()));
    }
    for (size_t i = 0; i < node.outputs.size() && !nothing; ++i) {
      const TypeKind returned = schema.returns()[i].type()->kind();
      if (!IsReturned(node.outputs[i], returned))
        return absl::InvalidArgumentError(absl::StrCat("output ", i, ": is not of the operator's type"));
    }
    return absl::OkStatus();
  }

  bool IsReturned(const Output& output, TypeKind returned) const {
    if (output.is_list) return returned == TypeKind::ListType;
    const ValueIndex value = output.values[0];
    if (value == kNoValue) return true;
    const bool is_tensor = graph_.values[value].kind == ValueKind::kTensor;
    return returned != TypeKind::ListType && (returned == TypeKind::TensorType) == is_tensor;
  }

  // Tells aliases_ to which values the operator writes, and of which values its outputs may be views.
  absl::Status FollowAliases(const Node& node, const c10::FunctionSchema& schema, const std::string& name,
                             const Instruction& instruction) {
    const bool any = ReturnsArguments(node);
    std::vector<ValueIndex> sources;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (alias == nullptr && !any) continue;
      const Operand& operand = instruction.operands[i];
      sources.insert(sources.end(), operand.values.begin(), operand.values.end());
      if (alias == nullptr || !alias->isWrite()) continue;
      if (operand.kind != Operand::Kind::kValue) {
        return absl::InvalidArgumentError(
            absl::StrCat(schema.arguments()[i].name(), ": is written to, and is a number"));
      }
      Write(operand);
    }
    aliases_.Follow(node, std::move(sources));
    for (const auto& row : kRunningStatistics) {
      if (name != row.name || schema.arguments().size() <= row.flag) continue;
      const Operand& training = instruction.operands[row.flag];
      if (training.kind == Operand::Kind::kConstant && training.constant.isBool() && !training.constant.toBool()) {
        continue;
      }
      Write(instruction.operands[row.mean]);
      Write(instruction.operands[row.variance]);
    }
    return absl::OkStatus();
  }
  void Write(const Operand& operand) {
    for (const ValueIndex value : operand.values) aliases_.Write(value);
  }

  void FindLastUses(Code& code) const {
    std::vector<bool> used(graph_.values.size());
    for (const ValueIndex output : graph_.outputs)
      if (output != kNoValue) used[output] = true;
    for (size_t i = code.instructions.size(); i-- > 0;) {
      Instruction& instruction = code.instructions[i];
      const auto last = [&](ValueIndex value) {
        if (value == kNoValue || used[value]) return;
        used[value] = true;
        instruction.dead.push_back(value);
      };
      for (const Output& output : instruction.node->outputs)
        for (const ValueIndex value : output.values) last(value);
      for (const Operand& operand : instruction.operands)
        for (const ValueIndex value : operand.values) last(value);
    }
  }

  const Graph& graph_;
  const c10::Device device_;
  Places& places_;
  Aliases aliases_;
};

}  // namespace

at::Tensor WrappedNumber(const IValue& number) {
  const at::ScalarType type = number.isBool() ? at::kBool : number.isInt() ? at::kLong : at::kDouble;
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), type);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

absl::StatusOr<Bound> Bind(const Program& program, c10::Device device) {
  Places places;
  return Binder(program.graph, device, places).Bind();
}
}  // namespace permafrost::program
