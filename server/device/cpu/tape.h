// The operators of a step, recorded as they are dispatched below autograd.
// A recording keeps what the operators were called with, and no tensor that they made: storage is freed when the step
// itself frees it. An operator that is not dispatched (a raw kernel, a host loop over data_ptr) is not seen;
// cpu_backend.h finds out by comparing a replay with the step itself. Threads: the device thread.
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

// The key that operators are recorded at: below autograd, and one that no backend here uses. 2.13 reserves it for a C++
// FakeTensor mode, which is off in this process.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

struct IntegerPlace;
// Hears of an integer argument that another step is called with otherwise: its place, and its value in either step.
using OnInteger = std::function<void(const IntegerPlace& place, int64_t one, int64_t next)>;

// Why a step cannot be captured.
struct TapeBreak {
  std::string op;   // schema name; empty where no single operator is to blame
  std::string why;  // one line
};

// FailedPrecondition with graphcache::kGraphBreakReason.
absl::Status BreakStatus(const TapeBreak& broken);

// Looks on while a step's operators run: called for each operator in the place of it. `place`: among the operators of
// the step as it is recorded; `stack`: its arguments. Calls `perform` once, which takes these off the stack and leaves
// the results there.
using CallWatcher = std::function<void(size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack,
                                       absl::FunctionRef<void()> perform)>;

class Tape {
 public:
  enum class SlotKind {
    kInput,   // a declared input; its index is the place among them
    kState,   // a declared tensor that outlives the step
    kNumber,  // a scalar that a kernel takes as a tensor; constant
    kMade,    // made by an operator of the tape
  };
  struct Slot {
    SlotKind kind = SlotKind::kMade;
    size_t index = 0;
    c10::ScalarType type = c10::ScalarType::Undefined;
    std::vector<int64_t> sizes, strides;
    at::Tensor tensor;  // of kState and kNumber; undefined for the others
  };
  // A tensor among an operator's arguments: args[arg], or element `element` of the list args[arg].
  struct Use {
    size_t arg = 0;
    std::optional<size_t> element;
    size_t slot = 0;
    bool written = false;  // by its schema
  };
  struct Op {
    c10::OperatorHandle handle;
    // The arguments of the call, without tensors: an undefined tensor stands for each, or none in a list of optional
    // ones.
    std::vector<c10::IValue> args;
    std::vector<Use> uses;
    // Slots of each return value; several for a list.
    std::vector<std::vector<size_t>> returns;
    bool view = false;  // every output is a view of an input, by its schema
    // `line` is the place in lines() of the user's line that called it; `is_backward` is true if it computes a
    // gradient.
    uint32_t line = 0;
    bool is_backward = false;
    std::string_view name() const { return handle.operator_name().name; }
  };
  struct Mark {
    size_t op = 0;  // before this one
    int phase = 0;
  };
  using Body = std::function<std::vector<at::Tensor>()>;

  // Borrows `state`.
  explicit Tape(const std::vector<StateTensor>& state) : state_(state) {}
  Tape(const Tape&) = delete;

  // Both run `body`, a step on `inputs`, on this thread and return what it returned. Exceptions pass through.
  // Records it. Called once.
  std::vector<at::Tensor> Record(const std::vector<at::Tensor>& inputs, const Body& body);
  // Compares it, operator by operator as it runs, with what was recorded. Its inputs are others of equal shapes; a
  // difference in anything else (a host value, a constant, the order of operators) is a break.
  // With `on_integer` its inputs may be of other shapes, and each integer argument that differs is handed to it.
  std::vector<at::Tensor> Compare(const std::vector<at::Tensor>& inputs, const Body& body,
                                  const OnInteger& on_integer = nullptr);

  // Runs `body`, a step, on this thread with `watch` in the place of each of its operators, whose places are those of a
  // recording. Returns what it returned. Exceptions pass through.
  static std::vector<at::Tensor> Watch(const CallWatcher& watch, const Body& body);

  // Hears of each operator before it is called, with its arguments. Returns whether it hears of what that calls in
  // turn, too.
  using CallListener = std::function<bool(const c10::OperatorHandle& op, const torch::jit::Stack& stack)>;
  // Runs `body` on this thread under a listener. Exceptions pass through.
  static void Listen(const CallListener& listener, const std::function<void()>& body);

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<size_t>& outputs() const { return outputs_; }
  const std::vector<Mark>& marks() const { return marks_; }
  // Each line appears once. The first is empty, for operators that belong to no line.
  const std::vector<std::string>& lines() const { return lines_; }
  // The first thing seen, by either, that cannot be captured.
  const std::optional<TapeBreak>& broken() const { return broken_; }
  // Says that it cannot; the first to say so is kept.
  void Break(TapeBreak broken) {
    if (!broken_) broken_ = std::move(broken);
  }

  // For MarkPhase: notes the place on the tape that records on this thread. False if none does.
  static bool NoteMark(int phase);
  // For the NoteLine of step_program.h: tells the tape that records on this thread, if one does.
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

// Returns whether every output is a view of an input.
bool ReturnsViews(const c10::FunctionSchema& schema);

// Checks whether recording works with this libtorch. Errors: Internal if the fallback does not fire.
absl::Status CheckRecording();

}  // namespace permafrost::device
