// A watcher looks on while a step's operators run.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <functional>

#include "absl/functional/function_ref.h"

namespace permafrost::device {

// Called for each operator in the place of the operator. `place`: among the operators of the step as it is recorded;
// `stack`: its arguments. Calls `perform` once, which takes these off the stack and leaves the results there.
using CallWatcher = std::function<void(size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack,
                                       absl::FunctionRef<void()> perform)>;

}  // namespace permafrost::device
