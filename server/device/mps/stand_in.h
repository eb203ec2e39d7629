// A stand-in for the MPS device on machines without it. Its tensors are of device mps, but their bytes are in host
// memory. The dispatcher and autograd see MPS tensors. Kernels are registered for exactly the operators that MPS has
// (mps_operators.h), and each kernel runs the CPU's kernel on the same bytes. So a step calls the operators that it
// would call on a Mac. An operator that MPS lacks is refused by name, and so is float64. The stand-in says nothing
// about MPS's own arithmetic. No job runs on it: at::hasMPS() is true only within an MpsStandIn, and `--device auto`
// never takes it. The stand-in is absent on macOS, where MPS is real. RecordMpsCalls lists the calls of a step, on the
// stand-in or on a Mac.
#pragma once

#include <functional>
#include <vector>

#include "graphcache/census.h"

namespace permafrost::device {

// While an MpsStandIn lives, its thread may run steps on device mps. Backward must run on that thread, since autograd
// has no threads for the stand-in (SingleThreadedBackward in train/loop/step_engine.cc).
// Threads: any; each thread needs its own.
class MpsStandIn {
 public:
  // Does nothing if present() is false.
  MpsStandIn();
  MpsStandIn(const MpsStandIn&) = delete;
  ~MpsStandIn();

  // Returns true if the stand-in provides device mps. Returns false on macOS, and if libtorch was built for another
  // accelerator, since autograd would ask that accelerator for its stream.
  static bool present();

 private:
  const bool outer_;  // true if the thread was within another MpsStandIn
};

// Runs `body`, a step on device mps, and returns the operators that it calls, in order. The device may be real or the
// stand-in. The list has only operators with a kernel on MPS. In place of a composite operator, it has the operators
// that the composite operator calls. Exceptions of the body pass through.
// Threads: the device's thread if MPS is real.
std::vector<graphcache::OpCall> RecordMpsCalls(const std::function<void()>& body);

}  // namespace permafrost::device
