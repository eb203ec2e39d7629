// The settings of backups, of the daemon's end, and of what is done about a device thread that hangs.
// Threads: pure functions.
#pragma once

#include <vector>

#include "daemon/setting.h"

namespace permafrost {

void AddCareSettings(std::vector<Setting>& settings);

}  // namespace permafrost
