#include "program/code.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/aliases.h"
#include "program/dtypes.h"

namespace permafrost::program {
namespace {

using c10::TypeKind;

constexpr size_t kNoGradArguments = 2, kAutocastArguments = 5;  // before the values that a region takes

// Batch and instance norm write to these; their schemas do not say so.
constexpr struct {
  const char* name;
  size_t mean, variance, flag;
} kRunningStatistics[] = {{"aten::batch_norm", 3, 4, 5}, {"aten::instance_norm", 3, 4, 5}};

// Counts of random nodes and of batch norms so far, those in regions included.
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
  // Makes room for the argument: those that are left out are None.
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
    // A region may return a view of anything that it takes.
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

  // A gradient would have another layout than its parameter.
  static absl::Status CheckDense(const NamedArgument& argument) {
    const auto* flag = std::get_if<bool>(&argument.value);
    if ((argument.name != "sparse" && argument.name != "sparse_grad") || (flag != nullptr && !*flag)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(argument.name, ": only false is accepted"));
  }

  absl::Status CheckOutputs(const Node& node, const c10::FunctionSchema& schema) const {
    // An operator that returns nothing may have one output that is None.
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

  // Tells aliases_ what the outputs may be views of, and what is written to.
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

absl::StatusOr<Bound> Bind(const Program& program, c10::Device device) {
  Places places;
  return Binder(program.graph, device, places).Bind();
}

}  // namespace permafrost::program
