// Jobs and datasets as a server would show them.
#pragma once

#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// A queued job of three epochs, every field of its spec set.
v1::Job QueuedJob();
// Within `epoch` (1..3), half of it done; without epoch entries.
v1::Job RunningJob(int64_t epoch);
void AddEpoch(int64_t epoch, v1::Job& job);
// Without epoch entries, with a result.
v1::Job SucceededJob();

v1::Dataset ImportingDataset(int64_t bytes_read);
v1::Dataset ReadyDataset();

// One large graph with sparse features.
v1::Dataset ReadyGraph();
// A running job that samples it.
v1::Job NodeLevelJob();

}  // namespace permafrost::client
