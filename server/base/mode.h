// The two kinds of step.
#pragma once

#include "base/enum_names.h"

namespace permafrost {

// Training: forward, backward, optimizer. Evaluation: forward only, without dropout and with running statistics.
enum class Mode { kTrain, kEval };
inline constexpr EnumNames<Mode, 2> kModeNames{{{{Mode::kTrain, "train"}, {Mode::kEval, "eval"}}}};

}  // namespace permafrost
