// Operators of a test's own whose results go wrong when it says so: what an audit has to find.
// Included by one file of a test program. Threads: one.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace permafrost {

enum class OperatorFault {
  kNone,
  kInReplays,  // wherever an executable calls it, and nowhere else
  kOnce,       // at its next call
  kEachCall,   // another result each time
};

// Of the next calls.
inline OperatorFault operator_fault = OperatorFault::kNone;

// What a call adds to the right result.
inline double NextOperatorError() {
  static double calls = 0;
  switch (operator_fault) {
    case OperatorFault::kNone:
      return 0;
    case OperatorFault::kInReplays:
      // Executables call below autograd; a step does not.
      return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradCPU) ? 0.5 : 0;
    case OperatorFault::kOnce:
      operator_fault = OperatorFault::kNone;
      return 0.5;
    case OperatorFault::kEachCall:
      return calls += 1;
  }
  return 0;
}

// Of a tensor that needs no gradient: a copy of it.
inline at::Tensor CopyOf(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("faulty::copy", "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

// Adds one to each element.
inline void CountUp(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("faulty::count_up_", "").typed<void(const at::Tensor&)>();
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
