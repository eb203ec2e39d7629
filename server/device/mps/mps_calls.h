// The calls of a step that reach MPS's kernels, as libtorch's cache of compiled graphs sees them.
#pragma once

#include <functional>
#include <vector>

#include "graphcache/census.h"

namespace permafrost::device {

// Runs `body`, a step on device mps, real or the stand-in's, and returns its calls in order. Only operators with a
// kernel on MPS count: what others are made of is called in turn. Threads: the device's, where it is real. Exceptions
// of the body pass through.
std::vector<graphcache::OpCall> RecordMpsCalls(const std::function<void()>& body);

}  // namespace permafrost::device
