// Jobs and datasets as a server would report them.
#pragma once

#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// A queued job of three epochs. Every field of its spec is set.
v1::Job QueuedJob();
// A job in the middle of epoch `epoch` (1 to 3), without epoch entries.
v1::Job RunningJob(int64_t epoch);
void AddEpoch(int64_t epoch, v1::Job& job);
// A job with a result and without epoch entries.
v1::Job SucceededJob();

v1::Dataset ImportingDataset(int64_t bytes_read);
v1::Dataset ReadyDataset();

// A dataset of one large graph with sparse features.
v1::Dataset ReadyGraph();
// A running job that samples ReadyGraph.
v1::Job NodeLevelJob();

}  // namespace permafrost::client
