#include "program/code.h"

#include <ATen/Functions.h>
#include <ATen/core/jit_type.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "program/dtypes.h"

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

// A number of the file, bool or int or double.
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

// An argument that is a value of the graph.
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

// Types, layouts and formats are ints on the stack. An int of a file is not accepted for one: it may be outside the
// enum.
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

}  // namespace

at::Tensor WrappedNumber(const IValue& number) {
  const at::ScalarType type = number.isBool() ? at::kBool : number.isInt() ? at::kLong : at::kDouble;
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), type);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

absl::StatusOr<Operand> BindArgument(const Argument& argument, const c10::Argument& wanted, const Graph& graph,
                                     c10::Device device) {
  // The type that the schema says, where wanted.type() is how the stack holds it.
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

absl::StatusOr<Operand> BindPlain(const Argument& argument) {
  if (const auto* ref = std::get_if<Ref>(&argument)) return OperandOf(Operand::Kind::kValue, {ref->value});
  if (const auto number = NumberOf(argument)) return Constant(*number);
  if (const auto* text = std::get_if<std::string>(&argument)) return Constant(*text);
  if (std::holds_alternative<None>(argument)) return Constant(IValue());
  return absl::InvalidArgumentError("an argument is neither a value nor a number");
}

}  // namespace permafrost::program
