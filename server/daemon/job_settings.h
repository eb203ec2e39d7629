// The settings that say how jobs share the device, and what is kept of those that have ended.
// Threads: pure functions.
#pragma once

#include <vector>

#include "daemon/setting.h"

namespace permafrost {

void AddJobSettings(std::vector<Setting>& settings);

}  // namespace permafrost
