// Records the operators of a step as they are dispatched below autograd. A recording keeps the operators' arguments
// but not the tensors that they made, so the step's storage is freed when the step frees it. Work that is not
// dispatched, such as a raw kernel or a host loop over data_ptr, is not recorded. cpu_backend.h detects such work by
// comparing a replay with the step itself.
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

// The dispatch key at which operators are recorded. It is below autograd, and nothing else in this process uses it.
// libtorch 2.13 reserves it for a C++ FakeTensor mode, which is off in this process.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

struct IntegerPlace;
// A function that receives each integer argument that differs between two steps: its place, and its value in each
// step.
using OnInteger = std::function<void(const IntegerPlace& place, int64_t one, int64_t next)>;

// The reason why a step cannot be captured.
struct TapeBreak {
  std::string op;   // the operator's name; empty if no single operator is the reason
  std::string why;  // one line
};

// Returns `broken` as FailedPrecondition with graphcache::kGraphBreakReason.
absl::Status BreakStatus(const TapeBreak& broken);

// A function that is called in place of each operator of a step. `place` is the operator's index in a recording of
// the step. `stack` holds the operator's arguments. The watcher must call `perform` once. `perform` takes the
// arguments off the stack, runs the operator and puts the results on the stack.
using CallWatcher = std::function<void(size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack,
                                       absl::FunctionRef<void()> perform)>;

class Tape {
 public:
  enum class SlotKind {
    kInput,   // a tensor of the inputs; `index` is its place there
    kState,   // a tensor of the declared state, which outlives the step
    kNumber,  // a number that a kernel takes as a tensor; constant
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
    bool written = false;  // true: by its schema, the operator writes to the tensor
  };
  struct Op {
    c10::OperatorHandle handle;
    // The arguments of the call, with each tensor replaced by an undefined tensor, or by nullopt in a list of
    // optional tensors.
    std::vector<c10::IValue> args;
    std::vector<Use> uses;
    // By return value: its slots. A tensor has one slot, and a list has one slot per element.
    std::vector<std::vector<size_t>> returns;
    bool view = false;  // true: by its schema, every output is a view of an input
    // The index in lines() of the user's line that called the operator.
    uint32_t line = 0;
    // True if the operator computes a gradient.
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
  // Runs `body`, a step on `inputs`, on this thread and compares each operator, as it runs, with the recording. The
  // inputs must be a batch other than the recorded one, with the same shapes. Every difference other than in tensors'
  // values (a host value, a constant, the order of operators) breaks the tape. With `on_integer`, the inputs may have
  // other shapes, and on_integer receives each integer argument that differs. Returns the outputs of `body`.
  // Exceptions pass through.
  std::vector<at::Tensor> Compare(const std::vector<at::Tensor>& inputs, const Body& body,
                                  const OnInteger& on_integer = nullptr);

  // Runs `body`, a step, on this thread and calls `watch` in place of each of its operators. `place` is then the
  // index that the operator would have in a recording. Returns the outputs of `body`. Exceptions pass through.
  static std::vector<at::Tensor> Watch(const CallWatcher& watch, const Body& body);

  // A function that receives each operator, with its arguments, before the operator runs. If it returns true, it also
  // receives the operators that this operator calls.
  using CallListener = std::function<bool(const c10::OperatorHandle& op, const torch::jit::Stack& stack)>;
  // Runs `body` on this thread and passes its operators to `listener`. Exceptions pass through.
  static void Listen(const CallListener& listener, const std::function<void()>& body);

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<size_t>& outputs() const { return outputs_; }
  const std::vector<Mark>& marks() const { return marks_; }
  // Returns the user's lines, each once. The first one is empty and stands for operators that belong to no line.
  const std::vector<std::string>& lines() const { return lines_; }
  // Returns the first reason why the step cannot be captured, if Record or Compare found one or Break was called.
  const std::optional<TapeBreak>& broken() const { return broken_; }
  // Notes a reason why the step cannot be captured. Only the first one is kept.
  void Break(TapeBreak broken) {
    if (!broken_) broken_ = std::move(broken);
  }

  // Notes a Mark on the tape that records on this thread. Returns false if no tape records. Called by MarkPhase
  // (step_program.h).
  static bool NoteMark(int phase);
  // If a tape records on this thread, assigns its later operators to `line`. Called by NoteLine (step_program.h).
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

// Checks that recording works with this libtorch. Errors: Internal if operators do not reach the recording key.
absl::Status CheckRecording();

}  // namespace permafrost::device
