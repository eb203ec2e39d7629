// Compares recordings of one step: what two of them have to agree in, and how the integers that differ follow from the
// sizes of the step's inputs.
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

// "weight": the name of an argument.
std::string ArgumentName(const Tape::Op& op, size_t arg);
// "of type Float and shape [6, 4]"
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

// Why operator `place` of one step is not the same as that of the next; nullopt: it is. `on_integer` empty: the steps
// are of equal shapes, and everything is compared but the tensors' values. Otherwise sizes may differ, and each integer
// argument that does is handed to `on_integer`: its place, and its value in either step.
std::optional<TapeBreak> FindDifference(size_t place, const OpOfTape& one, const OpOfTape& next,
                                        const OnInteger& on_integer = nullptr);

using graphcache::FindSum;
using graphcache::SizeSum;

// At so many shapes a size, a size and a constant, two sizes, and a multiple of one are told apart.
inline constexpr size_t kLearnedShapes = 3;

// Finds how the integers that a step's operators are called with follow from the sizes of its inputs. A step recorded
// at several shapes is called with equal integers everywhere, but for those that are sizes of its inputs or sums of
// them. Once these are known, one recording serves every shape.
class StepSizes {
 public:
  // An integer of an operator of the tape that is another at each shape.
  struct Argument {
    IntegerPlace place;
    SizeSum value;
  };

  // Takes recordings of one step at shapes that differ in every size that can: at least kLearnedShapes. These are
  // compared, and others check what was found; where there are none, Compare has to. nullopt: it was found for every
  // integer that differs; else why not, naming the operator and the integer.
  static std::optional<TapeBreak> Find(std::span<const std::unique_ptr<Tape>> tapes, StepSizes& out);

  // The sizes of a batch. Errors: InvalidArgument for inputs that a step of the recordings' kind does not take.
  absl::Status Read(const graphcache::StepInputs& inputs, std::vector<int64_t>& sizes) const;
  // Compares `body`, a step on `inputs` of whatever shape, with `tape`, of which the sizes were found, operator by
  // operator while it runs: its integers must be those that follow from `inputs`. Where they are not, the tape is
  // broken afterwards. Returns what the step returned; nothing, and the tape is broken, where the recordings' kind does
  // not take `inputs`: `body` is not run then. Exceptions pass through.
  std::vector<at::Tensor> Compare(Tape& tape, const graphcache::StepInputs& inputs, const Tape::Body& body) const;
  // The arguments, in the order of their places.
  const std::vector<Argument>& arguments() const { return arguments_; }
  size_t count() const { return count_; }
  int64_t bytes() const;

 private:
  // A tensor of the inputs: each of its sizes is a constant or one of the sizes.
  struct Dimension {
    int64_t constant = 0;
    std::optional<size_t> size;
  };
  struct Input {
    c10::ScalarType type = c10::ScalarType::Undefined;  // of those that are defined
    std::vector<Dimension> dimensions;
  };
  std::vector<Input> inputs_;
  std::vector<Argument> arguments_;
  size_t count_ = 0;
};

}  // namespace permafrost::device
