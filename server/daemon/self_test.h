// permafrostd --self-test-device: shows on this machine that a device keeps its promises
// (train/loop/device_self_test.h). Threads: the main one.
#pragma once

#include "daemon/options.h"

namespace permafrost {

// Imports options.self_test_data into a folder of its own, runs the self-test on *options.self_test_device, and prints
// its table. Returns the process's exit code: kExitDrained (0) where all holds, else kExitFailure.
int SelfTest(const Options& options);

}  // namespace permafrost
