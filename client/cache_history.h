// Charts of what a job's graph cache did in each epoch, from what the job's epochs tell.
// Threads: pure functions.
#pragma once

#include <vector>

#include "client/line_chart.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Shows for each epoch the parts of its training steps that were replayed, the rows that padding added to its batches,
// and the bytes that the cache held at its end. An epoch that an older daemon ran tells nothing of this: it has no
// points, and neither has the one after it, whose own share of the counters is not known. Where no epoch tells it, or
// there is none, the charts have no points, so that DrawChart draws nothing.
std::vector<Chart> CacheHistory(const v1::Job& job);

}  // namespace permafrost::client
