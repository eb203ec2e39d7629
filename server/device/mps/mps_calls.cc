#include "device/mps/mps_calls.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/cpu/tape.h"
#include "device/mps/mps_operators.h"

namespace permafrost::device {
namespace {

// "mm", "add.Tensor"
std::string NameOf(const c10::OperatorName& op) {
  constexpr std::string_view kAten = "aten::";
  const std::string_view name = op.name;
  if (!name.starts_with(kAten)) return "";
  return absl::StrCat(std::string(name.substr(kAten.size())), op.overload_name.empty() ? "" : ".", op.overload_name);
}

bool HasMpsKernel(const c10::OperatorName& op) {
  static const absl::flat_hash_set<std::string> operators =
      absl::StrSplit(absl::string_view(kMpsOperators.data(), kMpsOperators.size()), ' ', absl::SkipEmpty());
  return op.name == "aten::copy_" || operators.contains(NameOf(op));
}

void AddTensor(const at::Tensor& tensor, graphcache::OpCall& call) {
  graphcache::CallTensor& added = call.tensors.emplace_back();
  if (!tensor.defined()) return;
  added.type = c10::toString(tensor.scalar_type());
  added.sizes = tensor.sizes().vec();
  added.contiguous = tensor.is_contiguous();
}

void AddArgument(const c10::IValue& value, graphcache::OpCall& call) {
  if (value.isTensor()) {
    AddTensor(value.toTensor(), call);
  } else if (value.isInt()) {
    call.integers.push_back(value.toInt());
  } else if (value.isList() || value.isTensorList()) {
    const auto elements = value.toListRef();
    absl::StrAppend(&call.rest, "[", elements.size(), "]");
    for (const c10::IValue& element : elements) AddArgument(element, call);
  } else if (value.isDouble()) {
    absl::StrAppend(&call.rest, value.toDouble(), ";");
  } else if (value.isBool()) {
    absl::StrAppend(&call.rest, value.toBool() ? "true;" : "false;");
  } else if (value.isString()) {
    absl::StrAppend(&call.rest, value.toStringRef(), ";");
  } else {
    absl::StrAppend(&call.rest, value.tagKind(), ";");
  }
}

bool IsOnMps(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_mps();
  if (value.isDevice()) return value.toDevice().is_mps();
  return (value.isList() || value.isTensorList()) && std::ranges::any_of(value.toListRef(), IsOnMps);
}

}  // namespace

std::vector<graphcache::OpCall> RecordMpsCalls(const std::function<void()>& body) {
  std::vector<graphcache::OpCall> calls;
  Tape::Listen(
      [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
        const auto first = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
        if (!HasMpsKernel(op.operator_name())) return true;
        if (!std::any_of(first, stack.end(), IsOnMps)) return true;
        graphcache::OpCall& call = calls.emplace_back();
        call.op = op.operator_name().name;
        for (auto value = first; value != stack.end(); ++value) AddArgument(*value, call);
        return false;
      },
      body);
  return calls;
}

}  // namespace permafrost::device
