// The self-test of permafrostd --self-test-device. It checks that a device of this machine keeps its promises
// (train/loop/device_self_test.h). Threads: the main thread.
#pragma once

#include "daemon/options.h"

namespace permafrost {

// Imports options.self_test_data into a temporary directory, runs the self-test on *options.self_test_device, and
// prints its table. Returns the exit code of the process: kExitDrained (0) if all checks pass, else kExitFailure.
int SelfTest(const Options& options);

}  // namespace permafrost
