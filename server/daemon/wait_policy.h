// Sets how long the math library's threads spin while they wait for each other.
#pragma once

namespace permafrost {

// GNU OpenMP spins for milliseconds before it sleeps. A training step is hundreds of regions of microseconds, so as
// soon as anything else wants a core each of them waits out a time slice: beside two compilers a step took 30 times as
// long as with short spins. libgomp reads GOMP_SPINCOUNT when it is loaded, which is before main: where neither it nor
// OMP_WAIT_POLICY is set, this sets it and starts the program anew in the same process. Returns in the process that has
// it, and where there is no /proc (macOS, whose libomp sleeps early by itself). Threads: first thing in main, before
// any thread.
void UseShortSpins(char** argv);

}  // namespace permafrost
