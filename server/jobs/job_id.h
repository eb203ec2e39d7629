// Ids of jobs whose client chose none.
#pragma once

#include "absl/time/time.h"
#include "base/id.h"

namespace permafrost::jobs {

// "job-20250131-142311-k3x9qa": sorts by `time` (UTC); the random end keeps two of one second apart.
// Threads: safe anywhere.
JobId MakeJobId(absl::Time time);

}  // namespace permafrost::jobs
