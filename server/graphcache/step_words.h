// The words with which sentences of a graph cache begin a step. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/mode.h"

namespace permafrost::graphcache {

inline std::string_view StepWithArticle(Mode mode) { return mode == Mode::kTrain ? "a training" : "an evaluation"; }

}  // namespace permafrost::graphcache
