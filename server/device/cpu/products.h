// The matrix products of a step, run alone: how much of its time is arithmetic that no fusion can take away.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>

namespace permafrost::device {

class StepProducts {
 public:
  // Adds the products of one operator, called with these arguments: for a product its own; for an operator that takes a
  // layer's weights (matrices named weight, w1 or w2) one for each, over the rows of its first tensor, and two where it
  // is the backward of such a one, since the weight and the input have gradients. Other products of a layer are not
  // known.
  void Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  // Runs all of them on tensors of the same sizes and returns how long they take; each size is run a few times.
  double SecondsAlone() const;

 private:
  std::map<std::array<int64_t, 3>, int64_t> counts_;  // how many [m, k] x [k, n], by (m, k, n)
};

}  // namespace permafrost::device
