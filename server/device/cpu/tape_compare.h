// Checks what two recordings of a step have to agree in.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/cpu/tape.h"

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

}  // namespace permafrost::device
