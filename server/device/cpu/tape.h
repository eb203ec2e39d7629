// The operators of a step, recorded as they are dispatched below autograd.
// An operator that is not dispatched (a raw kernel, a host loop over data_ptr) is not seen; capture.h finds out by
// comparing a replay with the step itself.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "device/step_program.h"

namespace permafrost::device {

// Why a step cannot be captured.
struct TapeBreak {
  std::string op;   // schema name; empty where no single operator is to blame
  std::string why;  // one line
};

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
    at::Tensor tensor;  // as recorded; keeps its storage from being used again while the tape lives
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
    std::vector<c10::IValue> args;
    std::vector<Use> uses;
    // Slots of each return value; several for a list.
    std::vector<std::vector<size_t>> returns;
    bool view = false;  // every output is a view of an input, by its schema
    std::string_view name() const { return handle.operator_name().name; }
  };
  struct Mark {
    size_t op = 0;  // before this one
    int phase = 0;
  };

  Tape(const std::vector<at::Tensor>& inputs, const std::vector<StateTensor>& state);
  Tape(const Tape&) = delete;

  // Runs `body` on this thread and records it. What it returns are the step's outputs. Exceptions pass through.
  void Record(const std::function<std::vector<at::Tensor>()>& body);

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<size_t>& outputs() const { return outputs_; }
  const std::vector<Mark>& marks() const { return marks_; }
  // The first thing seen that cannot be captured.
  const std::optional<TapeBreak>& broken() const { return broken_; }

  // For MarkPhase: notes the place on the tape that records on this thread. False if none does.
  static bool NoteMark(int phase);

 private:
  friend struct TapeDispatch;
  // Storage, offset, type, sizes, strides: autograd unpacks saved tensors as new TensorImpls of equal ones.
  using Key = std::tuple<const void*, int64_t, c10::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
  static Key KeyOf(const at::Tensor& tensor);

  void OnCall(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  bool IsInputStorage(const at::Tensor& tensor) const;
  void AddUse(Op& op, size_t arg, std::optional<size_t> element, const at::Tensor& tensor, bool written);
  size_t SlotOfResult(const at::Tensor& tensor);
  void Break(std::string_view op, std::string why);

  std::vector<Op> ops_;
  std::vector<Slot> slots_;
  std::vector<size_t> outputs_;
  std::vector<Mark> marks_;
  absl::flat_hash_map<Key, size_t> slot_of_;
  std::optional<TapeBreak> broken_;
};

// The first difference between two recordings of one step that is not among their inputs: a host value, a constant, an
// order of operators that changed.
std::optional<TapeBreak> Compare(const Tape& first, const Tape& second);

// Whether recording works with this libtorch. Errors: FailedPrecondition for a version that was not tested, Internal if
// the fallback does not fire.
absl::Status CheckRecording();

}  // namespace permafrost::device
