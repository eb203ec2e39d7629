// What a step does about its executable: one pure function of the policy, the cache and the shape.
#pragma once

#include "graphcache/policy.h"

namespace permafrost::graphcache {

enum class Action {
  kReplay,        // the executable of this very shape
  kReplayPadded,  // the cheapest larger one
  kCaptureKeep,   // capture this shape, keep it, replay it
  kCaptureDrop,   // capture, replay, drop
  kRunEager,      // uncached
  kReject,        // fail the job
};

// What the cache knows of a shape.
struct Lookup {
  bool exact = false;   // it holds an executable of this very shape
  bool larger = false;  // it holds one that the batch fits into, padded
  // The step's program cannot be captured (a graph break was found): capturing is of no use.
  bool broken = false;
};

// `frozen`: nothing is inserted. kAlways and kFreeze serve exact hits whether frozen or not; kNever and kClearPerStep
// serve none and do not freeze. Where an action would capture a broken program, it is kRunEager; kReject stays.
Action Admit(const PolicyOptions& options, bool frozen, const Lookup& lookup);

}  // namespace permafrost::graphcache
