// Text about datasets, for people.
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

// Makes one row per dataset.
std::string RenderDatasetList(const std::vector<v1::Dataset>& datasets, const ViewTime& time, const RenderStyle& style);
// Shows the contents of the dataset and, if it is READY, the sizes of its splits.
std::string RenderDataset(const v1::Dataset& dataset, const ViewTime& time, const RenderStyle& style);

}  // namespace permafrost::client
