// Chooses the row of a cache plan to recommend, and says why.
// Threads: any; nothing is kept between calls.
#pragma once

#include "graphcache/cache_plan.h"

namespace permafrost::graphcache {

// Fills `recommended` and `reason` from the rows, of which there is one at least. It is the fastest of those that
// replay every step in the end or, where nothing was measured, the one that adds the fewest rows; among about equal
// ones the simplest. Where none replays every step: the first.
void Recommend(CachePlan& plan);

}  // namespace permafrost::graphcache
