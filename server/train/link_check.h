// Checks, before a job that predicts links is made, that it has some to learn and to rank.
// Threads: safe anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "spec/train_options.h"

namespace permafrost::train {

// Returns what the job's user should know of its links, a line each. Divides the links of a graph that is small, or has
// a node with an edge to every other one; of any other nothing can be amiss, and its edges are not read. `keep_going`
// is asked now and then. Errors: InvalidArgument with a violation of PREFIXlink_prediction where no link of a split is
// left to rank; those of Links::Create; Cancelled; DataLoss.
absl::StatusOr<std::vector<std::string>> CheckLinks(const spec::TrainOptions& options,
                                                    const std::shared_ptr<const data::Graph>& graph,
                                                    std::string_view prefix, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
