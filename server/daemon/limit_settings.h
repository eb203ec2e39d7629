// The settings that bound what clients may have the daemon keep.
// Threads: pure functions.
#pragma once

#include <vector>

#include "daemon/setting.h"

namespace permafrost {

void AddLimitSettings(std::vector<Setting>& settings);

}  // namespace permafrost
