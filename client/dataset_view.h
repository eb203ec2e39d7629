// Datasets as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/job_view.h"
#include "client/style.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

std::string StateName(v1::Dataset::State state);

// One row a dataset.
std::string RenderDatasetList(const std::vector<v1::Dataset>& datasets, const ViewTime& time, const RenderStyle& style);
// Shows what the dataset is made of, and the sizes of its splits where it is READY.
std::string RenderDataset(const v1::Dataset& dataset, const ViewTime& time, const RenderStyle& style);

}  // namespace permafrost::client
