#include "wait_policy.h"

#include <unistd.h>

#include <cstdlib>

namespace permafrost {

void UseShortSpins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // About 10 us: longer than the wait within a region on free cores, far shorter than a time slice.
  if (setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0) != 0) return;
  execv("/proc/self/exe", argv);
}

}  // namespace permafrost
