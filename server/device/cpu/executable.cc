#include "device/cpu/executable.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"
#include "device/cpu/audit.h"

namespace permafrost::device {
namespace {

// The bytes of a TensorImpl and of a StorageImpl, each with malloc's overhead.
constexpr int64_t kTensorBytes = sizeof(c10::TensorImpl) + 16;
constexpr int64_t kStorageBytes = sizeof(c10::StorageImpl) + 16;
// The bytes of an IValue's list, which is a reference-counted vector.
constexpr int64_t kListBytes = sizeof(c10::detail::ListImpl) + 16;
constexpr int64_t kStringBytes = sizeof(c10::ivalue::ConstantString) + 16;
constexpr int64_t kHeapBlock = 16;  // malloc's overhead per block, and its unit of rounding

template <class T>
int64_t VectorBytes(const std::vector<T>& v) {
  return v.capacity() == 0 ? 0 : static_cast<int64_t>(v.capacity() * sizeof(T)) + kHeapBlock;
}

int64_t PayloadBytes(const c10::IValue& value) {
  if (value.isString()) return kStringBytes;
  if (!value.isList()) return 0;
  const auto list = value.toListRef();
  int64_t bytes = kListBytes + static_cast<int64_t>(list.size() * sizeof(c10::IValue)) + kHeapBlock;
  for (const c10::IValue& element : list) bytes += PayloadBytes(element);
  return bytes;
}

}  // namespace

// Turns a tape into calls: hoists views, drops unused operators, renumbers slots and finds last uses.
class CpuExecutable::Builder {
 public:
  Builder(const Tape& tape, CpuExecutable& out)
      : tape_(tape), out_(out), number_(tape.slots().size(), -1), sized_(tape.ops().size(), false) {}

  void Build() {
    if (out_.sizes_) {
      for (const StepSizes::Argument& a : out_.sizes_->arguments()) sized_[a.place.op] = true;
    }
    Hoist();
    Drop();
    for (const auto& [op, phase] : tape_.marks()) {
      const auto before = std::ranges::count(keep_.begin(), keep_.begin() + static_cast<std::ptrdiff_t>(op), true);
      out_.marks_.push_back({static_cast<size_t>(before), phase});
    }
    out_.lines_ = tape_.lines();
    for (size_t i = 0; i < tape_.ops().size(); ++i) {
      out_.origins_.push_back({tape_.ops()[i].line, tape_.ops()[i].is_backward});
      if (!keep_[i]) continue;
      AddCall(tape_.ops()[i], i);
      if (sized_[i]) AddIntegers(i);
    }
    for (const size_t slot : tape_.outputs()) {
      out_.output_slots_.push_back(Number(slot));
      if (!IsFixed(slot)) out_.made_outputs_.push_back(Number(slot));
    }
    FindReleases();
    out_.calls_.shrink_to_fit();
    out_.values_.shrink_to_fit();
  }

 private:
  bool IsFixed(size_t slot) const { return hoisted_[slot].defined(); }

  // Makes the views of tensors that are the same in every replay. They are made once and without autograd metadata.
  void Hoist() {
    const auto& slots = tape_.slots();
    hoisted_.resize(slots.size());
    for (size_t s = 0; s < slots.size(); ++s) {
      if (slots[s].kind == Tape::SlotKind::kState || slots[s].kind == Tape::SlotKind::kNumber)
        hoisted_[s] = slots[s].tensor;
      if (slots[s].kind == Tape::SlotKind::kNumber) out_.held_bytes_ += kTensorBytes + kStorageBytes + kHeapBlock;
    }
    keep_.assign(tape_.ops().size(), true);
    for (size_t i = 0; i < tape_.ops().size(); ++i) {
      const Tape::Op& op = tape_.ops()[i];
      const auto fixed = [this](const Tape::Use& use) { return IsFixed(use.slot) && !use.element; };
      if (sized_[i] || !op.view || op.returns.size() != 1 || op.returns[0].size() != 1 ||
          !std::ranges::all_of(op.uses, fixed))
        continue;
      const size_t made = op.returns[0][0];
      if (IsFixed(made)) {  // the view exists already, or equals a whole tensor
        keep_[i] = false;
        continue;
      }
      torch::jit::Stack stack(op.args.begin(), op.args.end());
      for (const Tape::Use& use : op.uses) stack[use.arg] = hoisted_[use.slot];
      op.handle.callBoxed(&stack);
      if (!stack.at(0).isTensor()) continue;  // a list of one tensor: not hoisted
      keep_[i] = false;
      hoisted_[made] = stack[0].toTensor();
      out_.held_bytes_ += kTensorBytes;
    }
  }

  // Drops all operators except those that write to a tensor and those whose results are read later.
  void Drop() {
    std::vector<bool> needed(tape_.slots().size(), false);
    for (const size_t slot : tape_.outputs()) needed[slot] = true;
    for (size_t i = tape_.ops().size(); i-- > 0;) {
      if (!keep_[i]) continue;
      const Tape::Op& op = tape_.ops()[i];
      bool live = op.returns.empty() || std::ranges::any_of(op.uses, &Tape::Use::written);
      for (const auto& slots : op.returns)
        live = live || std::ranges::any_of(slots, [&](size_t s) { return needed[s]; });
      keep_[i] = live;
      if (!live) continue;
      for (const Tape::Use& use : op.uses) needed[use.slot] = true;
    }
  }

  uint32_t Number(size_t slot) {
    if (number_[slot] < 0) {
      number_[slot] = static_cast<int32_t>(out_.values_.size());
      out_.values_.push_back(hoisted_[slot]);
      fixed_.push_back(IsFixed(slot));
      const Tape::Slot& from = tape_.slots()[slot];
      if (from.kind == Tape::SlotKind::kInput) {
        out_.inputs_.emplace_back(number_[slot], static_cast<uint32_t>(from.index));
      }
    }
    return static_cast<uint32_t>(number_[slot]);
  }

  void AddCall(const Tape::Op& op, size_t place) {
    Call call{op.handle, op.args, {}, {}, {}, static_cast<uint32_t>(place)};
    for (size_t a = 0; a < op.args.size(); ++a) {
      Fill fill{.arg = static_cast<uint32_t>(a)};
      bool fixed = true;
      for (const Tape::Use& use : op.uses) {
        if (use.arg != a) continue;
        if (use.element) {
          fill.list = true;
          fill.slots.resize(op.args[a].toListRef().size(), -1);
        }
        fill.slots.resize(std::max<size_t>(fill.slots.size(), 1), -1);
        fill.slots[use.element.value_or(0)] = static_cast<int32_t>(Number(use.slot));
        fixed = fixed && IsFixed(use.slot);
      }
      if (fill.slots.empty()) continue;  // the argument has no tensor
      fill.optional = fill.list && !op.args[a].isTensorList();
      call.args[a] = fixed ? Value(fill, out_.values_) : c10::IValue();
      if (!fixed) call.fills.push_back(std::move(fill));
    }
    for (const auto& slots : op.returns) {
      std::vector<uint32_t>& numbers = call.returns.emplace_back();
      for (const size_t slot : slots) numbers.push_back(Number(slot));
    }
    call.fills.shrink_to_fit();
    out_.calls_.push_back(std::move(call));
  }

  // Adds the integers of the tape's operator `op` to the newest call, which was made from this operator.
  void AddIntegers(size_t op) {
    for (const StepSizes::Argument& a : out_.sizes_->arguments()) {
      if (a.place.op != op) continue;
      c10::IValue& arg = out_.calls_.back().args[a.place.arg];
      if (a.place.element) arg = arg.toList().copy();  // SetIntegers will write to the list
      SizedInteger integer{.call = static_cast<uint32_t>(out_.calls_.size() - 1),
                           .arg = static_cast<uint32_t>(a.place.arg),
                           .element = std::nullopt,
                           .value = a.value};
      if (a.place.element) integer.element = static_cast<uint32_t>(*a.place.element);
      out_.integers_.push_back(std::move(integer));
    }
  }

  void FindReleases() {
    std::vector<bool> stays = fixed_;
    for (const uint32_t slot : out_.output_slots_) stays[slot] = true;
    for (size_t i = out_.calls_.size(); i-- > 0;) {
      Call& call = out_.calls_[i];
      const auto see = [&](uint32_t slot) {
        if (!stays[slot]) call.releases.push_back(slot);
        stays[slot] = true;
      };
      for (const Fill& fill : call.fills) {
        for (const int32_t slot : fill.slots)
          if (slot >= 0) see(static_cast<uint32_t>(slot));
      }
      for (const auto& slots : call.returns) std::ranges::for_each(slots, see);
    }
  }

 public:
  static c10::IValue Value(const Fill& fill, const std::vector<at::Tensor>& values) {
    if (!fill.list) return values[static_cast<size_t>(fill.slots[0])];
    if (fill.optional) {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(fill.slots.size());
      for (const int32_t slot : fill.slots) {
        list.push_back(slot < 0 ? std::nullopt : std::optional<at::Tensor>(values[static_cast<size_t>(slot)]));
      }
      return list;
    }
    c10::List<at::Tensor> list;
    list.reserve(fill.slots.size());
    for (const int32_t slot : fill.slots) {
      list.push_back(slot < 0 ? at::Tensor() : values[static_cast<size_t>(slot)]);
    }
    return list;
  }

 private:
  const Tape& tape_;
  CpuExecutable& out_;
  std::vector<int32_t> number_;      // by tape slot: the slot in values_, or -1
  std::vector<at::Tensor> hoisted_;  // by tape slot: the tensor, if it is the same in every replay
  std::vector<bool> fixed_;          // by slot in values_
  std::vector<bool> keep_;           // by operator
  std::vector<bool> sized_;          // by operator: true if an integer argument follows from sizes
};

CpuExecutable::CpuExecutable(const Tape& tape, const StepProgram& program, Arena& arena, std::optional<StepSizes> sizes)
    : program_(program), arena_(arena), sizes_(std::move(sizes)) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Builder(tape, *this).Build();
}

void CpuExecutable::SetIntegers(const graphcache::StepInputs& inputs) {
  const absl::Status read = sizes_->Read(inputs, sizes_now_);
  TORCH_CHECK(read.ok(), std::string(read.message()));
  if (sizes_now_ == sizes_set_) return;
  for (const SizedInteger& integer : integers_) {
    c10::IValue& arg = calls_[integer.call].args[integer.arg];
    const int64_t value = integer.value.At(sizes_now_);
    if (integer.element) {
      arg.toList().set(*integer.element, value);
    } else {
      arg = value;
    }
  }
  sizes_set_ = sizes_now_;
}

void CpuExecutable::Invoke(Call& call) {
  stack_.assign(call.args.begin(), call.args.end());
  for (const Fill& fill : call.fills) stack_[fill.arg] = Builder::Value(fill, values_);
  if (watch_ == nullptr) {
    call.op.callBoxed(&stack_);
  } else {
    (*watch_)(call.place, call.op, stack_, [&] { call.op.callBoxed(&stack_); });
  }
  for (size_t r = 0; r < call.returns.size(); ++r) {
    const std::vector<uint32_t>& slots = call.returns[r];
    if (stack_[r].isTensor()) {
      if (!slots.empty()) values_[slots[0]] = std::move(stack_[r]).toTensor();
    } else {
      std::vector<at::Tensor> list = stack_[r].toTensorVector();
      for (size_t i = 0; i < slots.size(); ++i) values_[slots[i]] = std::move(list[i]);
    }
  }
  stack_.clear();
  for (const uint32_t slot : call.releases) values_[slot].reset();
}

std::vector<at::Tensor> CpuExecutable::Run(const graphcache::StepInputs& inputs,
                                           const std::function<void(int)>& on_phase) {
  if (sizes_) SetIntegers(inputs);
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const auto& [slot, index] : inputs_) values_[slot] = inputs.tensors.at(index);
  auto mark = marks_.begin();
  const auto tell = [&](size_t call) {
    for (; mark != marks_.end() && mark->op == call; ++mark)
      if (on_phase) on_phase(mark->phase);
  };
  for (size_t i = 0; i < calls_.size(); ++i) {
    tell(i);
    StoragePlan::BeginPart(static_cast<uint32_t>(i));
    Invoke(calls_[i]);
  }
  // The executable keeps no reference to outputs that the replay made, since the next replay overwrites them.
  std::vector<at::Tensor> outputs;
  outputs.reserve(output_slots_.size());
  for (const uint32_t slot : output_slots_) outputs.push_back(values_[slot]);
  for (const uint32_t slot : made_outputs_) values_[slot].reset();
  for (const auto& [slot, index] : inputs_) values_[slot].reset();
  tell(calls_.size());
  return outputs;
}

std::vector<at::Tensor> CpuExecutable::Learn(const graphcache::StepInputs& inputs) {
  std::vector<at::Tensor> outputs;
  plan_ = StoragePlan::Learn([&] { outputs = Run(inputs, nullptr); });
  bytes_ = CountBytes();
  return outputs;
}

void CpuExecutable::TakePlan(const StoragePlan& plan) {
  plan_ = plan;
  bytes_ = CountBytes();
}

std::vector<at::Tensor> CpuExecutable::Serve(const graphcache::StepInputs& inputs,
                                             const std::function<void(int)>& on_phase) {
  std::vector<at::Tensor> outputs;
  const auto run = [&] { outputs = Run(inputs, on_phase); };
  unplanned_ = sizes_ ? plan_.ServeAnySize(arena_, run) : plan_.Serve(arena_, run);
  return outputs;
}

absl::StatusOr<graphcache::StepResult> CpuExecutable::Replay(const graphcache::StepInputs& inputs) {
  return std::make_shared<const graphcache::StepOutputs>(Serve(inputs, program_.on_phase));
}

std::vector<at::Tensor> CpuExecutable::ReplayInSilence(const graphcache::StepInputs& inputs) {
  return Serve(inputs, nullptr);
}

std::vector<at::Tensor> CpuExecutable::ReplayWatched(const graphcache::StepInputs& inputs, const CallWatcher& watch) {
  const absl::Cleanup unwatched = [this] { watch_ = nullptr; };
  watch_ = &watch;
  return ReplayInSilence(inputs);
}

absl::StatusOr<std::optional<graphcache::AuditedStep>> CpuExecutable::ReplayAudited(
    const graphcache::StepInputs& inputs) {
  PF_ASSIGN_OR_RETURN(graphcache::AuditedStep audited, AuditOnCpu(*this, program_, inputs, arena_));
  return audited;
}

int64_t CpuExecutable::CountBytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof(*this)) + kHeapBlock + held_bytes_ + VectorBytes(calls_) +
                  VectorBytes(values_) + VectorBytes(inputs_) + VectorBytes(output_slots_) + VectorBytes(marks_) +
                  VectorBytes(origins_) + VectorBytes(lines_) + VectorBytes(stack_) +
                  static_cast<int64_t>(plan_.bytes()) + kHeapBlock;
  if (sizes_) bytes += sizes_->bytes() + VectorBytes(sizes_now_) + VectorBytes(sizes_set_);
  bytes += VectorBytes(integers_);
  for (const std::string& line : lines_) bytes += static_cast<int64_t>(line.capacity()) + kHeapBlock;
  for (const SizedInteger& integer : integers_) bytes += VectorBytes(integer.value.terms);
  for (const Call& call : calls_) {
    bytes += VectorBytes(call.args) + VectorBytes(call.fills) + VectorBytes(call.returns) + VectorBytes(call.releases);
    for (const c10::IValue& value : call.args) bytes += PayloadBytes(value);
    for (const Fill& fill : call.fills) bytes += VectorBytes(fill.slots);
    for (const auto& slots : call.returns) bytes += VectorBytes(slots);
  }
  return bytes;
}

}  // namespace permafrost::device
