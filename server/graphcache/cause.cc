#include "graphcache/cause.h"

#include <numeric>

namespace permafrost::graphcache {

int64_t CauseCounts::Sum() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

Cause FindCause(const Missed& missed) {
  if (missed.graph_break) return Cause::kGraphBreak;
  if (missed.keeps_nothing) return Cause::kPolicy;
  if (missed.dropped) return Cause::kPolicyChange;
  if (missed.full) return Cause::kLimit;
  if (missed.dynamic) return Cause::kFirstStep;
  if (missed.mode == Mode::kEval) return Cause::kEvaluation;
  if (missed.partial) return Cause::kLastBatch;
  if (!missed.nodes_held) return Cause::kNewNodes;
  return missed.edges_held ? Cause::kNewShape : Cause::kNewEdges;
}

}  // namespace permafrost::graphcache
