#include "device/cpu/tape.h"

#include <ATen/ATen.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

// A key below autograd that no backend here uses. 2.13 reserves it for a C++ FakeTensor mode, which is off in this
// process.
constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;
constexpr std::string_view kTestedTorchVersions[] = {"2.13.0"};

thread_local Tape* current_tape = nullptr;

template <class T>
std::string Text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string ArgumentName(const Tape::Op& op, size_t arg) { return op.handle.schema().arguments()[arg].name(); }

// Values that reach a kernel's code path: equal bits, so that NaN equals itself and 0.0 is not -0.0.
bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Of arguments that hold no tensors.
bool SameValue(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) return SameBits(a.toDouble(), b.toDouble());
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    return std::ranges::equal(x, y, SameValue);
  }
  if (a.isTensor() || b.isTensor()) return a.isTensor() && b.isTensor();  // uses are compared apart
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  return a == b;
}

bool SameNumber(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat("of type ", c10::toString(tensor.scalar_type()), " and shape ", Text(tensor.sizes()));
}

// aten::index is tagged for the sake of masks; by integers it is as static as any.
bool IndexesByNumber(const Tape::Op& op) {
  if (op.name() != "aten::index") return false;
  const auto indices = op.args[1].toListRef();
  return std::ranges::all_of(indices, [](const c10::IValue& index) {
    if (!index.isTensor()) return true;
    const c10::ScalarType type = index.toTensor().scalar_type();
    return type != c10::ScalarType::Bool && type != c10::ScalarType::Byte;
  });
}

bool IsView(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& r) {
    return r.alias_info() != nullptr && !r.alias_info()->isWrite();
  });
}

}  // namespace

struct TapeDispatch {
  static void Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    // What a kernel calls in turn is its own business.
    const c10::impl::ExcludeDispatchKeyGuard below(kRecordKey);
    const c10::DispatchKeySet rest = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecordKey);
    if (current_tape == nullptr) {
      op.redispatchBoxed(rest, stack);
    } else {
      current_tape->OnCall(op, rest, *stack);
    }
  }
};

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&TapeDispatch::Call>());
}

Tape::Key Tape::KeyOf(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(), tensor.sizes().vec(),
          tensor.strides().vec()};
}

Tape::Tape(const std::vector<at::Tensor>& inputs, const std::vector<StateTensor>& state) {
  const auto declare = [this](const at::Tensor& tensor, SlotKind kind, size_t index) {
    if (!tensor.defined()) return;
    slot_of_.try_emplace(KeyOf(tensor), slots_.size());
    slots_.push_back({kind, index, tensor});
  };
  for (size_t i = 0; i < inputs.size(); ++i) declare(inputs[i], SlotKind::kInput, i);
  for (size_t i = 0; i < state.size(); ++i) declare(state[i].value, SlotKind::kState, i);
}

void Tape::Record(const std::function<std::vector<at::Tensor>()>& body) {
  struct Recording {
    explicit Recording(Tape* tape) { current_tape = tape; }
    ~Recording() { current_tape = nullptr; }
  };
  std::vector<at::Tensor> outputs;
  {
    const Recording recording(this);
    const c10::impl::IncludeDispatchKeyGuard include(kRecordKey);
    outputs = body();
  }
  for (const at::Tensor& output : outputs) {
    const auto it = slot_of_.find(KeyOf(output));
    if (it == slot_of_.end()) {
      Break("", absl::StrCat("returns a tensor ", Describe(output), " that no operator made"));
      return;
    }
    outputs_.push_back(it->second);
  }
}

bool Tape::NoteMark(int phase) {
  if (current_tape == nullptr) return false;
  current_tape->marks_.push_back({current_tape->ops_.size(), phase});
  return true;
}

void Tape::Break(std::string_view op, std::string why) {
  if (!broken_) broken_ = TapeBreak{std::string(op), std::move(why)};
}

// Inputs come first among the slots.
bool Tape::IsInputStorage(const at::Tensor& tensor) const {
  const auto is_input = [](const Slot& slot) { return slot.kind == SlotKind::kInput; };
  const auto end = std::ranges::find_if_not(slots_, is_input);
  return std::any_of(slots_.begin(), end, [&](const Slot& slot) { return slot.tensor.is_alias_of(tensor); });
}

void Tape::AddUse(Op& op, size_t arg, std::optional<size_t> element, const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return;
  const auto [it, is_new] = slot_of_.try_emplace(KeyOf(tensor), slots_.size());
  if (is_new) {
    // Neither declared nor made here. Scalars that a kernel takes as tensors are such; anything else would be a
    // constant by accident.
    slots_.push_back({SlotKind::kNumber, 0, tensor});
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      Break(op.name(), absl::StrCat("reads, as ", ArgumentName(op, arg), ", a tensor ", Describe(tensor),
                                    " that is neither an input nor state of the step, nor made in it"));
    }
  }
  if (written && (slots_[it->second].kind == SlotKind::kNumber || IsInputStorage(tensor))) {
    Break(op.name(), absl::StrCat("writes to an input or a constant, as ", ArgumentName(op, arg)));
  }
  op.uses.push_back({arg, element, it->second, written});
}

size_t Tape::SlotOfResult(const at::Tensor& tensor) {
  const auto [it, is_new] = slot_of_.try_emplace(KeyOf(tensor), slots_.size());
  if (is_new) slots_.push_back({SlotKind::kMade, 0, tensor});
  return it->second;
}

void Tape::OnCall(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = handle.schema();
  const auto& arguments = schema.arguments();
  Op op{handle, {}, {}, {}, IsView(schema)};
  op.args.assign(stack.end() - static_cast<std::ptrdiff_t>(arguments.size()), stack.end());
  if (handle.hasTag(at::Tag::data_dependent_output)) {
    Break(op.name(), "reads a value back to the host: what follows could depend on it");
  } else if (handle.hasTag(at::Tag::dynamic_output_shape) && !IndexesByNumber(op)) {
    Break(op.name(), "the shape of its output depends on values");
  } else if (handle.hasTag(at::Tag::nondeterministic_seeded)) {
    Break(op.name(), "draws from a generator: a replay would draw other numbers than the step");
  }
  for (size_t a = 0; a < op.args.size(); ++a) {
    const bool written = arguments[a].alias_info() != nullptr && arguments[a].alias_info()->isWrite();
    const c10::IValue& value = op.args[a];
    if (value.isTensor()) {
      AddUse(op, a, std::nullopt, value.toTensor(), written);
    } else if (value.isList()) {
      const auto list = value.toListRef();
      for (size_t i = 0; i < list.size(); ++i)
        if (list[i].isTensor()) AddUse(op, a, i, list[i].toTensor(), written);
    } else if (value.isGenerator()) {
      Break(op.name(), "takes a random generator");
    }
  }
  handle.redispatchBoxed(keys, &stack);
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(schema.returns().size()); value != stack.end(); ++value) {
    std::vector<size_t> slots;
    if (value->isTensor()) {
      if (value->toTensor().defined()) slots.push_back(SlotOfResult(value->toTensor()));
    } else if (value->isTensorList()) {
      for (const at::Tensor& tensor : value->toTensorVector()) slots.push_back(SlotOfResult(tensor));
    } else {
      Break(op.name(), "returns a value to the host");
    }
    op.returns.push_back(std::move(slots));
  }
  ops_.push_back(std::move(op));
}

std::optional<TapeBreak> Compare(const Tape& first, const Tape& second) {
  const size_t common = std::min(first.ops().size(), second.ops().size());
  for (size_t i = 0; i < common; ++i) {
    const Tape::Op &x = first.ops()[i], &y = second.ops()[i];
    const std::string name(x.name());
    if (x.handle != y.handle) {
      return TapeBreak{name, absl::StrCat("is operator ", i, " of one step, and ", AbslView(y.name()), " of the next")};
    }
    for (size_t a = 0; a < x.args.size(); ++a) {
      if (SameValue(x.args[a], y.args[a])) continue;
      return TapeBreak{name,
                       absl::StrCat(ArgumentName(x, a), " is ", Text(x.args[a]), " in one step and ", Text(y.args[a]),
                                    " in the next, for equal shapes: a host value that changes")};
    }
    if (x.uses.size() != y.uses.size()) return TapeBreak{name, "takes another number of tensors in the next step"};
    for (size_t u = 0; u < x.uses.size(); ++u) {
      const std::string argument = ArgumentName(x, x.uses[u].arg);
      if (x.uses[u].slot != y.uses[u].slot) {
        return TapeBreak{name, absl::StrCat("takes another tensor as ", argument, " in the next step")};
      }
      const Tape::Slot& slot = first.slots()[x.uses[u].slot];
      if (slot.kind != Tape::SlotKind::kNumber) continue;
      const at::Tensor& next = second.slots()[y.uses[u].slot].tensor;
      if (SameNumber(slot.tensor, next)) continue;
      return TapeBreak{name, absl::StrCat(argument, " is ", Text(slot.tensor.item()), " in one step and ",
                                          Text(next.item()), " in the next: a host value that changes")};
    }
    if (x.returns != y.returns) return TapeBreak{name, "returns other tensors in the next step"};
    for (const auto& slots : x.returns) {
      for (const size_t s : slots) {
        const at::Tensor &a = first.slots()[s].tensor, &b = second.slots()[s].tensor;
        if (a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type()) continue;
        return TapeBreak{name, absl::StrCat("returns a tensor ", Describe(a), " in one step and ", Describe(b),
                                            " in the next, for equal shapes")};
      }
    }
  }
  if (first.ops().size() != second.ops().size()) {
    return TapeBreak{
        "", absl::StrCat("one step has ", first.ops().size(), " operators, and the next ", second.ops().size())};
  }
  if (first.outputs() != second.outputs()) return TapeBreak{"", "the next step returns other tensors"};
  return std::nullopt;
}

absl::Status CheckRecording() {
  if (std::ranges::find(kTestedTorchVersions, std::string_view(TORCH_VERSION)) == std::end(kTestedTorchVersions)) {
    return absl::FailedPreconditionError(absl::StrCat("libtorch ", TORCH_VERSION, ": capture of steps was tested with ",
                                                      AbslView(kTestedTorchVersions[0]), "; build with that version"));
  }
  const at::Tensor one = at::ones({2});
  Tape tape({one}, {});
  tape.Record([&] { return std::vector<at::Tensor>{one + one}; });
  if (tape.broken() || tape.ops().size() != 1 || tape.ops()[0].name() != "aten::add") {
    return absl::InternalError(absl::StrCat("libtorch ", TORCH_VERSION,
                                            ": operators cannot be recorded: the dispatch key for it is in other use"));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::device
