// Censuses of the graph cache of MPS as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>

#include "client/style.h"
#include "permafrost/v1/census.pb.h"

namespace permafrost::client {

// The schedule, and for each lowering the entries by operator and by policy. `subject`: what was counted, as "zinc,
// batches of 32".
std::string RenderCensus(const v1::CensusGraphCacheResponse& census, const std::string& subject,
                         const RenderStyle& style);

}  // namespace permafrost::client
