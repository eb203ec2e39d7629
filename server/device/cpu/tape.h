// The operators of a step, recorded as they are dispatched below autograd. A recording keeps the arguments of the
// operators but no tensor that they made: storage is freed when the step itself frees it. An operator that is not
// dispatched (a raw kernel, a host loop over data_ptr) is not seen. cpu_backend.h finds such operators by comparing a
// replay with the step itself.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "device/step_program.h"

namespace permafrost::device {

// The dispatch key at which operators are recorded. It is below autograd, and no backend uses it here. libtorch 2.13
// reserves it for a C++ FakeTensor mode, which is off in this process.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

struct IntegerPlace;
// Receives an integer argument that differs between two steps: its place, and its value in each step.
using OnInteger = std::function<void(const IntegerPlace& place, int64_t one, int64_t next)>;

// The reason why a step cannot be captured.
struct TapeBreak {
  std::string op;   // the schema's name; empty if no single operator is to blame
  std::string why;  // one line
};

// Returns FailedPrecondition with graphcache::kGraphBreakReason.
absl::Status BreakStatus(const TapeBreak& broken);

// Is called in place of each operator while a step runs. `place` is the operator's index in a recording of the step.
// `stack` holds its arguments. The watcher must call `perform` once, which takes the arguments off the stack and
// leaves the results there.
using CallWatcher = std::function<void(size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack,
                                       absl::FunctionRef<void()> perform)>;

class Tape {
 public:
  enum class SlotKind {
    kInput,   // a declared input; `index` is its place among the inputs
    kState,   // a declared tensor that outlives the step
    kNumber,  // a scalar that a kernel takes as a tensor; constant
    kMade,    // made by an operator of the tape
  };
  struct Slot {
    SlotKind kind = SlotKind::kMade;
    size_t index = 0;
    c10::ScalarType type = c10::ScalarType::Undefined;
    std::vector<int64_t> sizes, strides;
    at::Tensor tensor;  // defined for kState and kNumber only
  };
  // A tensor among an operator's arguments: args[arg], or element `element` of the list args[arg].
  struct Use {
    size_t arg = 0;
    std::optional<size_t> element;
    size_t slot = 0;
    bool written = false;  // true if the schema says that the operator writes it
  };
  struct Op {
    c10::OperatorHandle handle;
    // The arguments of the call without its tensors. In place of each tensor there is an undefined tensor, or nullopt
    // in a list of optional tensors.
    std::vector<c10::IValue> args;
    std::vector<Use> uses;
    // The slots of each return value: one, or several if the value is a list.
    std::vector<std::vector<size_t>> returns;
    bool view = false;  // the schema says that every output is a view of an input
    // `line` is the index in lines() of the user's line that called the operator. `is_backward` is true if the
    // operator computes a gradient.
    uint32_t line = 0;
    bool is_backward = false;
    std::string_view name() const { return handle.operator_name().name; }
  };
  struct Mark {
    size_t op = 0;  // the index of the operator that follows the mark
    int phase = 0;
  };
  using Body = std::function<std::vector<at::Tensor>()>;

  // Borrows `state`.
  explicit Tape(const std::vector<StateTensor>& state) : state_(state) {}
  Tape(const Tape&) = delete;

  // Runs `body`, a step on `inputs`, on this thread and records its operators. Call it once per tape. Returns the
  // outputs of `body`. Exceptions pass through.
  std::vector<at::Tensor> Record(const std::vector<at::Tensor>& inputs, const Body& body);
  // Runs `body`, a step on `inputs`, on this thread and compares it with the recording, operator by operator as it
  // runs. Returns the outputs of `body`. Exceptions pass through. The inputs are another batch than the recorded one,
  // of equal shapes. Every other difference (in a host value, a constant, the order of operators) is a break. With
  // `on_integer`, the inputs may have other shapes, and each integer argument that differs is passed to it.
  std::vector<at::Tensor> Compare(const std::vector<at::Tensor>& inputs, const Body& body,
                                  const OnInteger& on_integer = nullptr);

  // Runs `body`, a step, on this thread and calls `watch` in place of each of its operators. It passes to `watch` the
  // places that the operators would have in a recording. Returns the outputs of `body`. Exceptions pass through.
  static std::vector<at::Tensor> Watch(const CallWatcher& watch, const Body& body);

  // Receives each operator with its arguments before it is called. Returns true to receive also the operators that
  // this one calls in turn.
  using CallListener = std::function<bool(const c10::OperatorHandle& op, const torch::jit::Stack& stack)>;
  // Runs `body` on this thread and passes its operators to `listener`. Exceptions pass through.
  static void Listen(const CallListener& listener, const std::function<void()>& body);

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<size_t>& outputs() const { return outputs_; }
  const std::vector<Mark>& marks() const { return marks_; }
  // Each line appears once. The first is empty, for operators that belong to no line.
  const std::vector<std::string>& lines() const { return lines_; }
  // The first reason why the step cannot be captured, found by Record or Compare.
  const std::optional<TapeBreak>& broken() const { return broken_; }
  // Notes a reason why the step cannot be captured. Only the first one is kept.
  void Break(TapeBreak broken) {
    if (!broken_) broken_ = std::move(broken);
  }

  // Notes a mark on the tape that records on this thread, for MarkPhase. Returns false if no tape records.
  static bool NoteMark(int phase);
  // Tells the line to the tape that records on this thread, if any. For NoteLine of step_program.h.
  static void NoteLine(std::string_view line);

 private:
  class Pass;
  class Recording;
  class Comparison;
  struct Watched;
  friend struct TapeDispatch;

  const std::vector<StateTensor>& state_;
  std::vector<Op> ops_;
  std::vector<Slot> slots_;
  std::vector<size_t> outputs_;
  std::vector<Mark> marks_;
  std::vector<std::string> lines_ = {""};
  std::optional<TapeBreak> broken_;
};

// Returns true if every output is a view of an input.
bool ReturnsViews(const c10::FunctionSchema& schema);

// Checks that recording works with this libtorch. Errors: Internal if the fallback does not fire.
absl::Status CheckRecording();

}  // namespace permafrost::device
