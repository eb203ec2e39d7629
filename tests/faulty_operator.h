// Operators for tests whose results go wrong on demand, so that an audit has something to find.
// Include this file in only one file of a test program. Threads: one.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

namespace permafrost {

enum class OperatorFault {
  kNone,
  kInReplays,  // whenever an executable calls the operator, and never when a step does
  kOnce,       // at the next call
  kEachCall,   // at each call, by a different amount
};

// The fault of the calls from now on.
inline OperatorFault operator_fault = OperatorFault::kNone;

// True while a step calls the operator. An executable calls the operator directly, so the flag is false then.
inline bool called_by_step = false;
struct CalledByStep {
  CalledByStep() { called_by_step = true; }
  CalledByStep(const CalledByStep&) = delete;
  ~CalledByStep() { called_by_step = false; }
};

// Returns the number that a call adds to the correct result.
inline double NextOperatorError() {
  static double calls = 0;
  switch (operator_fault) {
    case OperatorFault::kNone:
      return 0;
    case OperatorFault::kInReplays:
      return called_by_step ? 0 : 0.5;
    case OperatorFault::kOnce:
      operator_fault = OperatorFault::kNone;
      return 0.5;
    case OperatorFault::kEachCall:
      return calls += 1;
  }
  return 0;
}

// Returns a copy of a tensor that needs no gradient, made by the faulty operator.
inline at::Tensor CopyOf(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("faulty::copy", "").typed<at::Tensor(const at::Tensor&)>();
  const CalledByStep scope;
  return op.call(x);
}

// Adds one to each element of `x`, by a faulty operator.
inline void CountUp(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("faulty::count_up_", "").typed<void(const at::Tensor&)>();
  const CalledByStep scope;
  op.call(x);
}

TORCH_LIBRARY(faulty, library) {
  library.def("copy(Tensor x) -> Tensor");
  library.def("count_up_(Tensor(a!) x) -> ()");
}
TORCH_LIBRARY_IMPL(faulty, CPU, library) {
  library.impl("copy", [](const at::Tensor& x) { return x + NextOperatorError(); });
  library.impl("count_up_", [](const at::Tensor& x) { at::Tensor(x).add_(1 + NextOperatorError()); });
}

}  // namespace permafrost
