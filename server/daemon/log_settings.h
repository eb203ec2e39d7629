// The settings of the daemon's log.
#pragma once

#include <vector>

#include "daemon/setting.h"

namespace permafrost {

void AddLogSettings(std::vector<Setting>& settings);

}  // namespace permafrost
