// Compares recordings of one step. Checks that they agree in all that must not change from batch to batch. Finds how
// the integers that differ follow from the inputs' sizes.
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

// One operator, and the slots of the tape that it is on.
struct OpOfTape {
  const Tape::Op& op;
  const std::vector<Tape::Slot>& slots;
};

// Returns why operator `place` differs between one step and the next; nullopt if it does not. Without `on_integer`,
// the steps have equal shapes, and everything but the tensors' values is compared. With `on_integer`, sizes may
// differ. It receives each integer argument that differs: the argument's place, and its value in each step.
std::optional<TapeBreak> FindDifference(size_t place, const OpOfTape& one, const OpOfTape& next,
                                        const OnInteger& on_integer = nullptr);

using graphcache::FindSum;
using graphcache::SizeSum;

// From this many shapes, four forms can be told apart: a size, a size plus a constant, two sizes added, and a
// multiple of a size.
inline constexpr size_t kLearnedShapes = 3;

// Finds how the integers among the operators' arguments follow from the sizes of a step's inputs. In recordings of one
// step at several shapes, only those integers differ that are sizes of the inputs or sums of them. Once these are
// known, one recording serves every shape.
class StepSizes {
 public:
  // An integer argument of an operator of the tape that differs from shape to shape.
  struct Argument {
    IntegerPlace place;
    SizeSum value;
  };

  // Takes at least kLearnedShapes recordings of one step, at shapes that differ in every size that can differ. The
  // first kLearnedShapes recordings are compared, and all further recordings check the result. If there are no
  // further recordings, Compare must check it. Returns nullopt if it could explain every integer that differs.
  // Otherwise returns the reason, with the operator and the integer.
  static std::optional<TapeBreak> Find(std::span<const std::unique_ptr<Tape>> tapes, StepSizes& out);

  // Reads the sizes of a batch. Errors: InvalidArgument if the inputs differ in kind from those of the recordings.
  absl::Status Read(const graphcache::StepInputs& inputs, std::vector<int64_t>& sizes) const;
  // Runs `body`, a step on `inputs` of any shape, and compares it with `tape`, operator by operator while it runs.
  // The sizes must have been found with `tape`. The step's integers must be those that follow from `inputs`;
  // otherwise the tape is broken afterwards. Returns the step's outputs. If `inputs` differ in kind from those of the
  // recordings, `body` does not run, nothing is returned, and the tape is broken. Exceptions pass through.
  std::vector<at::Tensor> Compare(Tape& tape, const graphcache::StepInputs& inputs, const Tape::Body& body) const;
  // The arguments, in the order of their places.
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
