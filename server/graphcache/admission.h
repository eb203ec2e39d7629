// Decides how a step is run: a pure function of the policy, of what the cache holds, and of the batch's shape.
// Threads: values and a pure function.
#pragma once

#include "spec/policy.h"

namespace permafrost::graphcache {

enum class Action {
  kReplay,        // replay the executable of exactly this shape
  kReplayPadded,  // pad the batch and replay the larger executable with the fewest rows
  kCaptureKeep,   // capture this shape, keep the executable, replay it
  kCaptureDrop,   // capture this shape, replay the executable, drop it
  kRunEager,      // run the step uncaptured
  kReject,        // fail the job without running the step
};

// The part of the cache that could serve a shape.
struct Lookup {
  bool exact = false;   // an executable of exactly this shape
  bool larger = false;  // an executable that the batch fits into when it is padded
  bool broken = false;  // a graph break was found: the step cannot be captured
  bool full = false;    // as many executables are held as may be
};

// kNever and kClearPerStep take nothing from the cache, and never freeze. kAlways and kFreeze replay an executable of
// the exact shape; a new shape is captured and kept until the cache is `frozen`, and then handled as on_miss says.
// Where it is full, and not frozen, a new shape is padded, or runs eager where nothing larger is held. Where the step
// cannot be captured, kRunEager takes the place of a capture; kReject is returned all the same.
Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup);

}  // namespace permafrost::graphcache
