// The parts of a job's description for people, one line each.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

std::string LinkText(const v1::LinkPrediction& links);
std::string BatchingText(const v1::Batching& batching);
// Returns whether only a budget limits the number of graphs in a batch.
bool HasOnlyBudget(const v1::JobSpec& spec);
std::string WalkText(const v1::Node2Vec& walks);
std::string SamplingText(const v1::NeighborSampling& sampling);
std::string LossText(const v1::JobSpec& spec);
std::string ModelText(const v1::Job& job);
std::string OptimizerText(const v1::OptimizerSpec& optimizer);
std::string InitText(const v1::InitFrom& from);
// Describes the job's checkpoints, including the newest one on disk.
std::string CheckpointText(const v1::Job& job);

}  // namespace permafrost::client
