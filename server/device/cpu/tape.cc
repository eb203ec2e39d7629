#include "device/cpu/tape.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cpu/tape_compare.h"
#include "device/torch_version.h"

namespace permafrost::device {
namespace {

// Returns true for an aten::index whose indices are all integers. libtorch tags aten::index as having a dynamic
// output shape because of masks. With integers the shape is static.
bool IndexesByNumber(const Tape::Op& op) {
  if (op.name() != "aten::index") return false;
  const auto indices = op.args[1].toListRef();
  return std::ranges::all_of(indices, [](const c10::IValue& index) {
    if (!index.isTensor()) return true;
    const c10::ScalarType type = index.toTensor().scalar_type();
    return type != c10::ScalarType::Bool && type != c10::ScalarType::Byte;
  });
}

// Returns true if the operator has dropout 0. libtorch tags attention as random because of its dropout. Without
// dropout it draws no numbers.
bool DropsNothing(const Tape::Op& op) {
  const auto index = op.handle.schema().argumentIndexWithName("dropout_p");
  return index && op.args[static_cast<size_t>(*index)].isDouble() &&
         op.args[static_cast<size_t>(*index)].toDouble() == 0;
}

// Returns an argument in the form that a tape keeps, without its tensors.
c10::IValue WithoutTensors(const c10::IValue& value) {
  if (value.isTensor()) return at::Tensor();
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    list.resize(value.toListRef().size());
    return list;
  }
  if (!value.isList()) return value;
  const auto elements = value.toListRef();
  if (!std::ranges::any_of(elements, &c10::IValue::isTensor)) return value;
  c10::List<std::optional<at::Tensor>> list;
  list.resize(elements.size(), std::nullopt);
  return list;
}

// Identifies a tensor among those of one step by storage number, offset, type, sizes and strides. The address of the
// TensorImpl cannot identify it, since autograd unpacks saved tensors as new TensorImpls.
using TensorId = std::tuple<uint32_t, int64_t, c10::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

// Numbers storages in the order in which they are first seen. A weak reference to each storage keeps its address from
// being reused, but lets its bytes be freed when the step frees them.
class StorageNumbers {
 public:
  uint32_t Of(const at::Tensor& tensor) {
    const auto [it, is_new] =
        numbers_.try_emplace(tensor.storage().unsafeGetStorageImpl(), static_cast<uint32_t>(seen_.size()));
    if (is_new) seen_.push_back(tensor.storage().getWeakStorageImpl());
    return it->second;
  }

 private:
  absl::flat_hash_map<const c10::StorageImpl*, uint32_t> numbers_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
};

}  // namespace

absl::Status BreakStatus(const TapeBreak& broken) {
  const std::string text = broken.op.empty() ? broken.why : absl::StrCat(broken.op, " ", broken.why);
  return WithReason(absl::FailedPreconditionError(absl::StrCat("the step cannot be captured: ", text)),
                    graphcache::kGraphBreakReason, {{"op", broken.op}, {"why", broken.why}});
}

// One run of a step under the recording key: numbers the step's tensors, and passes each of its operators to OnOp.
class Tape::Pass {
 public:
  // The pass that runs on this thread; nullptr if operators are not recorded.
  static thread_local Pass* current;

  Pass(Tape& tape, const std::vector<at::Tensor>& inputs) : tape_(tape) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined()) input_storages_.insert(storages_.Of(inputs[i]));
      Declare(inputs[i], SlotKind::kInput, i);
    }
    for (size_t i = 0; i < tape.state_.size(); ++i) Declare(tape.state_[i].value, SlotKind::kState, i);
  }
  Pass(const Pass&) = delete;
  virtual ~Pass() = default;

  std::vector<at::Tensor> Run(const Body& body);
  void OnCall(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  virtual void OnMark(int phase) = 0;
  virtual void OnLine(std::string_view /*line*/) {}

 protected:
  virtual void OnOp(Op op) = 0;
  virtual void OnOutputs(std::vector<size_t> outputs) = 0;
  void Break(std::string_view op, std::string why) {
    if (!tape_.broken_) tape_.broken_ = TapeBreak{std::string(op), std::move(why)};
  }

  Tape& tape_;
  std::vector<Slot> slots_;

 private:
  TensorId IdOf(const at::Tensor& tensor) {
    return {storages_.Of(tensor), tensor.storage_offset(), tensor.scalar_type(), tensor.sizes().vec(),
            tensor.strides().vec()};
  }
  static Slot SlotOf(const at::Tensor& tensor, SlotKind kind, size_t index = 0) {
    const bool stays = kind == SlotKind::kState || kind == SlotKind::kNumber;
    return {
        kind, index, tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec(), stays ? tensor : at::Tensor()};
  }
  void Declare(const at::Tensor& tensor, SlotKind kind, size_t index) {
    if (!tensor.defined()) return;
    slot_of_.try_emplace(IdOf(tensor), slots_.size());
    slots_.push_back(SlotOf(tensor, kind, index));
  }
  void CheckTags(const Op& op);
  void AddUses(Op& op);
  void AddUse(Op& op, size_t arg, std::optional<size_t> element, const at::Tensor& tensor, bool written);
  size_t SlotOfResult(const at::Tensor& tensor);

  StorageNumbers storages_;
  absl::flat_hash_set<uint32_t> input_storages_;
  absl::flat_hash_map<TensorId, size_t> slot_of_;
};

thread_local Tape::Pass* Tape::Pass::current = nullptr;

// A step that runs under a watcher.
struct Tape::Watched {
  const CallWatcher& watch;
  size_t place = 0;  // the index of the next operator
  static thread_local Watched* current;
};
thread_local Tape::Watched* Tape::Watched::current = nullptr;

// The listener of this thread; nullptr: none.
thread_local const Tape::CallListener* listening = nullptr;

struct TapeDispatch {
  static void Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const c10::DispatchKeySet rest = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRecordKey);
    if (listening != nullptr && (*listening)(op, *stack)) {
      op.redispatchBoxed(rest, stack);
      return;
    }
    // Operators that the kernel calls are not recorded.
    const c10::impl::ExcludeDispatchKeyGuard below(kRecordKey);
    if (Tape::Pass::current != nullptr) {
      Tape::Pass::current->OnCall(op, rest, *stack);
    } else if (Tape::Watched* const watched = Tape::Watched::current) {
      watched->watch(watched->place++, op, *stack, [&] { op.redispatchBoxed(rest, stack); });
    } else {
      op.redispatchBoxed(rest, stack);
    }
  }
};

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&TapeDispatch::Call>());
}

std::vector<at::Tensor> Tape::Pass::Run(const Body& body) {
  struct Current {
    explicit Current(Pass* pass) { current = pass; }
    Current(const Current&) = delete;
    ~Current() { current = nullptr; }
  };
  std::vector<at::Tensor> returned;
  {
    const Current scope(this);
    const c10::impl::IncludeDispatchKeyGuard include(kRecordKey);
    returned = body();
  }
  std::vector<size_t> outputs;
  for (const at::Tensor& output : returned) {
    const auto it = slot_of_.find(IdOf(output));
    if (it == slot_of_.end()) {
      Break("", absl::StrCat("returns a tensor ", Describe(output.scalar_type(), output.sizes()),
                             " that no operator made"));
      return returned;
    }
    outputs.push_back(it->second);
  }
  OnOutputs(std::move(outputs));
  return returned;
}

void Tape::Pass::AddUse(Op& op, size_t arg, std::optional<size_t> element, const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return;
  const auto [it, is_new] = slot_of_.try_emplace(IdOf(tensor), slots_.size());
  if (is_new) {
    // The tensor is neither declared nor made in this step. This is normal for a number that a kernel takes as a
    // tensor. Any other tensor would silently become a constant of the tape.
    slots_.push_back(SlotOf(tensor, SlotKind::kNumber));
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      Break(op.name(), absl::StrCat("reads, as ", ArgumentName(op, arg), ", a tensor ",
                                    Describe(slots_.back().type, slots_.back().sizes),
                                    " that is neither an input nor state of the step, nor made in it"));
    }
  }
  const bool read_only =
      slots_[it->second].kind == SlotKind::kNumber || input_storages_.contains(std::get<0>(it->first));
  if (written && read_only) {
    Break(op.name(), absl::StrCat("writes to an input or a constant, as ", ArgumentName(op, arg)));
  }
  op.uses.push_back({arg, element, it->second, written});
}

size_t Tape::Pass::SlotOfResult(const at::Tensor& tensor) {
  const auto [it, is_new] = slot_of_.try_emplace(IdOf(tensor), slots_.size());
  if (is_new) slots_.push_back(SlotOf(tensor, SlotKind::kMade));
  return it->second;
}

void Tape::Pass::CheckTags(const Op& op) {
  if (op.handle.hasTag(at::Tag::data_dependent_output)) {
    Break(op.name(), "reads a value back to the host: what follows could depend on it");
  } else if (op.handle.hasTag(at::Tag::dynamic_output_shape) && !IndexesByNumber(op)) {
    Break(op.name(), "the shape of its output depends on values");
  } else if (op.handle.hasTag(at::Tag::nondeterministic_seeded) && !DropsNothing(op)) {
    Break(op.name(), "draws from a generator: a replay would draw other numbers than the step");
  }
}

void Tape::Pass::AddUses(Op& op) {
  const auto& arguments = op.handle.schema().arguments();
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
}

void Tape::Pass::OnCall(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = handle.schema();
  Op op{handle, {}, {}, {}, ReturnsViews(schema)};
  op.args.assign(stack.end() - static_cast<std::ptrdiff_t>(schema.arguments().size()), stack.end());
  CheckTags(op);
  AddUses(op);
  // The recording drops its references to the tensors before the call, since some kernels depend on reference counts.
  for (c10::IValue& value : op.args) value = WithoutTensors(value);
  handle.redispatchBoxed(keys, &stack);
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(schema.returns().size()); value != stack.end(); ++value) {
    std::vector<size_t> slots;
    if (value->isTensor()) {
      if (value->toTensor().defined()) slots.push_back(SlotOfResult(value->toTensor()));
    } else if (value->isTensorList()) {
      for (const c10::IValue& tensor : value->toListRef()) slots.push_back(SlotOfResult(tensor.toTensor()));
    } else {
      Break(op.name(), "returns a value to the host");
    }
    op.returns.push_back(std::move(slots));
  }
  OnOp(std::move(op));
}

class Tape::Recording final : public Pass {
 public:
  using Pass::Pass;
  ~Recording() override { tape_.slots_ = std::move(slots_); }
  void OnMark(int phase) override { tape_.marks_.push_back({tape_.ops_.size(), phase}); }
  void OnLine(std::string_view line) override {
    if (line == tape_.lines_[begun_.back().line]) return;
    const auto [known, is_new] = places_.try_emplace(std::string(line), static_cast<uint32_t>(tape_.lines_.size()));
    if (is_new) tape_.lines_.emplace_back(line);
    begun_.push_back({at::sequence_number::peek(), known->second});
  }

 private:
  // Autograd numbers the nodes of the backward pass in the order in which the forward pass makes them. The nodes
  // numbered `first` and up, to the next Begun, belong to line `line`.
  struct Begun {
    uint64_t first = 0;
    uint32_t line = 0;
  };

  void OnOp(Op op) override {
    const auto node = torch::autograd::get_current_node();
    op.is_backward = node != nullptr;
    op.line = node == nullptr ? begun_.back().line : LineOfNode(node->sequence_nr());
    tape_.ops_.push_back(std::move(op));
  }
  void OnOutputs(std::vector<size_t> outputs) override { tape_.outputs_ = std::move(outputs); }

  uint32_t LineOfNode(uint64_t number) const {
    // A node that accumulates a parameter's gradient has a larger number than all other nodes, and belongs to no
    // line.
    if (number >= at::sequence_number::peek()) return 0;
    const auto later = std::ranges::upper_bound(begun_, number, {}, &Begun::first);
    return later == begun_.begin() ? 0 : std::prev(later)->line;
  }

  std::vector<Begun> begun_ = {{}};
  absl::flat_hash_map<std::string, uint32_t> places_ = {{"", 0}};  // index in lines_, by line
};

class Tape::Comparison final : public Pass {
 public:
  Comparison(Tape& tape, const std::vector<at::Tensor>& inputs, const OnInteger& on_integer)
      : Pass(tape, inputs), on_integer_(on_integer) {}
  void OnMark(int /*phase*/) override {}

 private:
  void OnOp(Op op) override {
    if (!tape_.broken_ && count_ < tape_.ops_.size()) {
      tape_.broken_ = FindDifference(count_, {tape_.ops_[count_], tape_.slots_}, {op, slots_}, on_integer_);
    }
    ++count_;
  }
  void OnOutputs(std::vector<size_t> outputs) override {
    if (count_ != tape_.ops_.size()) {
      Break("", absl::StrCat("one step has ", tape_.ops_.size(), " operators, and the next ", count_));
    } else if (outputs != tape_.outputs_) {
      Break("", "the next step returns other tensors");
    }
  }

  const OnInteger& on_integer_;
  size_t count_ = 0;  // number of operators so far
};

std::vector<at::Tensor> Tape::Record(const std::vector<at::Tensor>& inputs, const Body& body) {
  return Recording(*this, inputs).Run(body);
}

std::vector<at::Tensor> Tape::Compare(const std::vector<at::Tensor>& inputs, const Body& body,
                                      const OnInteger& on_integer) {
  return Comparison(*this, inputs, on_integer).Run(body);
}

std::vector<at::Tensor> Tape::Watch(const CallWatcher& watch, const Body& body) {
  Watched watched{.watch = watch};
  const absl::Cleanup unwatched = [] { Watched::current = nullptr; };
  Watched::current = &watched;
  const c10::impl::IncludeDispatchKeyGuard include(kRecordKey);
  return body();
}

void Tape::Listen(const CallListener& listener, const std::function<void()>& body) {
  const absl::Cleanup unheard = [outer = std::exchange(listening, &listener)] { listening = outer; };
  const c10::impl::IncludeDispatchKeyGuard include(kRecordKey);
  body();
}

bool Tape::NoteMark(int phase) {
  if (Pass::current == nullptr) return false;
  Pass::current->OnMark(phase);
  return true;
}

void Tape::NoteLine(std::string_view line) {
  if (Pass::current != nullptr) Pass::current->OnLine(line);
}

bool ReturnsViews(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& r) {
    return r.alias_info() != nullptr && !r.alias_info()->isWrite();
  });
}

absl::Status CheckRecording() {
  const at::Tensor one = at::ones({2});
  const std::vector<StateTensor> no_state;
  Tape tape(no_state);
  tape.Record({one}, [&] { return std::vector<at::Tensor>{one + one}; });
  if (tape.broken() || tape.ops().size() != 1 || tape.ops()[0].name() != "aten::add") {
    return absl::InternalError(absl::StrCat("libtorch ", LoadedTorchVersion(),
                                            ": operators cannot be recorded: the dispatch key for it is in other use"));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::device
