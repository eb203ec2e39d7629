#include "data/rows/row_counters.h"

#include <cstddef>

namespace permafrost::data {

RowCounters Since(const RowCounters& before, RowCounters now) {
  for (int64_t RowCounters::*counter :
       {&RowCounters::hits, &RowCounters::misses, &RowCounters::evictions, &RowCounters::reads,
        &RowCounters::read_bytes, &RowCounters::read_errors, &RowCounters::over_budget, &RowCounters::resizes}) {
    now.*counter -= before.*counter;
  }
  for (size_t i = 0; i < now.read_seconds.size(); ++i) now.read_seconds[i] -= before.read_seconds[i];
  now.read_seconds_sum -= before.read_seconds_sum;
  now.stall_seconds -= before.stall_seconds;
  return now;
}

}  // namespace permafrost::data
