// A stand-in for the MPS device where there is none: tensors of device mps whose bytes are the host's. The dispatcher
// and autograd see MPS tensors, for which kernels are registered of exactly those operators that MPS has
// (mps_operators.h); each runs the CPU's kernel on the same bytes. So a step calls here the operators that it would
// call on a Mac, and one that MPS lacks, or float64, is refused, with its name. It says nothing of MPS's own
// arithmetic. No job runs on it: at::hasMPS() is false but within a MpsStandIn, and `--device auto` never takes it. Not
// on macOS, where MPS is real. RecordMpsCalls tells the calls of a step, on either.
#pragma once

#include <functional>
#include <vector>

#include "graphcache/census.h"

namespace permafrost::device {

// While one lives its thread may run steps on device mps. Backward must run on that thread, since the device has no
// threads of autograd's (SingleThreadedBackward in train/loop/step_engine.cc).
// Threads: any; each for itself.
class MpsStandIn {
 public:
  // Does nothing where !present().
  MpsStandIn();
  MpsStandIn(const MpsStandIn&) = delete;
  ~MpsStandIn();

  // Returns whether tensors of device mps are the stand-in's. Not on macOS, and not with a libtorch for another
  // accelerator, which autograd would ask for its stream.
  static bool present();

 private:
  const bool outer_;  // whether the thread was within another
};

// Runs `body`, a step on device mps, real or the stand-in's, and returns its calls in order. Only operators with a
// kernel on MPS count: what others are made of is called in turn. Threads: the device's, where it is real. Exceptions
// of the body pass through.
std::vector<graphcache::OpCall> RecordMpsCalls(const std::function<void()>& body);

}  // namespace permafrost::device
