// Compares recordings of one step. Checks that they agree in everything that must not change from batch to batch.
// Finds how the integers that differ between recordings follow from the inputs' sizes.
// Threads: pure functions and values; the device thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device/cpu/tape.h"
#include "graphcache/census.h"

namespace permafrost::device {

// Returns the name of an argument, such as "weight".
std::string ArgumentName(const Tape::Op& op, size_t arg);
// Returns text such as "of type Float and shape [6, 4]".
std::string Describe(c10::ScalarType type, at::IntArrayRef sizes);

// An integer among an operator's arguments: args[arg], or element `element` of the list args[arg].
struct IntegerPlace {
  size_t op = 0, arg = 0;
  std::optional<size_t> element;
  auto operator<=>(const IntegerPlace&) const = default;
};

// One operator, and the slots of the tape on which it is recorded.
struct OpOfTape {
  const Tape::Op& op;
  const std::vector<Tape::Slot>& slots;
};

// Returns why operator `place` differs between one step and the next; nullopt if it does not. Without `on_integer`,
// the steps have equal shapes, and everything but the tensors' values is compared. With `on_integer`, sizes may
// differ, and on_integer receives each integer argument that differs: its place, and its value in each step.
std::optional<TapeBreak> FindDifference(size_t place, const OpOfTape& one, const OpOfTape& next,
                                        const OnInteger& on_integer = nullptr);

using graphcache::FindSum;
using graphcache::SizeSum;

// The number of shapes from which four forms of an integer can be told apart: a size, a size plus a constant, the sum
// of two sizes, and a multiple of a size.
inline constexpr size_t kLearnedShapes = 3;

// Finds how the integers among the operators' arguments follow from the sizes of a step's inputs. In recordings of
// one step at several shapes, each integer that differs must be a sum that FindSum finds (graphcache/census.h). Once
// all sums are known, one recording serves every shape.
class StepSizes {
 public:
  // An integer argument of an operator of the tape. Its value differs from shape to shape.
  struct Argument {
    IntegerPlace place;
    SizeSum value;
  };

  // Takes at least kLearnedShapes recordings of one step, at shapes that differ in every size that can differ. Learns
  // from the first kLearnedShapes recordings and tests the result, `out`, on the others. If there are no others, the
  // caller must test it by Compare. Returns nullopt if every integer that differs was explained. Otherwise returns
  // the reason, with the operator and the integer.
  static std::optional<TapeBreak> Find(std::span<const std::unique_ptr<Tape>> tapes, StepSizes& out);

  // Sets `sizes` to those of a batch. Errors: InvalidArgument if an input's type, number of dimensions or sizes
  // contradict the recordings.
  absl::Status Read(const graphcache::StepInputs& inputs, std::vector<int64_t>& sizes) const;
  // Runs `body`, a step on `inputs` of any shape, and compares it with `tape`, operator by operator while it runs.
  // These StepSizes must have been found with `tape`. If an integer in the step is not the one that follows from
  // `inputs`, the tape is broken afterwards. Returns the step's outputs. If Read refuses `inputs`, breaks the tape
  // and returns no outputs, without running `body`. Exceptions pass through.
  std::vector<at::Tensor> Compare(Tape& tape, const graphcache::StepInputs& inputs, const Tape::Body& body) const;
  // Returns the integer arguments that differ, sorted by place.
  const std::vector<Argument>& arguments() const { return arguments_; }
  size_t count() const { return count_; }
  int64_t bytes() const;

 private:
  // A dimension of an input tensor: a constant or one of the batch's sizes.
  struct Dimension {
    int64_t constant = 0;
    std::optional<size_t> size;
  };
  struct Input {
    c10::ScalarType type = c10::ScalarType::Undefined;  // kept for defined tensors only
    std::vector<Dimension> dimensions;
  };
  std::vector<Input> inputs_;
  std::vector<Argument> arguments_;
  size_t count_ = 0;
};

}  // namespace permafrost::device
