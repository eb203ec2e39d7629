// Why an executable was captured, and why a step was a miss.
// Threads: values and a pure function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/enum_names.h"
#include "base/step.h"

namespace permafrost::graphcache {

// The words with which sentences of a graph cache begin a step. Threads: pure functions.
inline std::string_view StepWithArticle(Mode mode) { return mode == Mode::kTrain ? "a training" : "an evaluation"; }

enum class Cause {
  kFirstStep,      // the mode had no step before: its one executable for every shape
  kNewNodes,       // no executable of so many nodes was held
  kNewEdges,       // executables of so many nodes were held, none of so many edges
  kNewShape,       // of so many nodes and of so many edges, but not together
  kLastBatch,      // fewer graphs than the job's batches have
  kEvaluation,     // an evaluation step of a shape that was not held
  kPolicy,         // the policy keeps nothing
  kPolicyChange,   // a command dropped what had served
  kResume,         // held before a resume, and captured again
  kFreeze,         // what a freeze seals with: ceilings and rungs
  kLimit,          // max_executables were held
  kGraphBreak,     // the step cannot be captured
  kAudit,          // an audit withdrew the executable
  kDeviceEmptied,  // the device forgot what it had compiled, and it is captured again
};
inline constexpr size_t kCauses = 14;
inline constexpr EnumNames<Cause, kCauses> kCauseNames{{{{Cause::kFirstStep, "first-step"},
                                                         {Cause::kNewNodes, "new-nodes"},
                                                         {Cause::kNewEdges, "new-edges"},
                                                         {Cause::kNewShape, "new-shape"},
                                                         {Cause::kLastBatch, "last-batch"},
                                                         {Cause::kEvaluation, "evaluation"},
                                                         {Cause::kPolicy, "policy"},
                                                         {Cause::kPolicyChange, "policy-change"},
                                                         {Cause::kResume, "resume"},
                                                         {Cause::kFreeze, "freeze"},
                                                         {Cause::kLimit, "limit"},
                                                         {Cause::kGraphBreak, "graph-break"},
                                                         {Cause::kAudit, "audit"},
                                                         {Cause::kDeviceEmptied, "device-emptied"}}}};

// Returns whether a capture for this cause serves steps to come, not one that waits.
constexpr bool IsAhead(Cause cause) {
  return cause == Cause::kPolicyChange || cause == Cause::kResume || cause == Cause::kFreeze ||
         cause == Cause::kDeviceEmptied;
}

// How often each cause occurred.
struct CauseCounts {
  std::array<int64_t, kCauses> counts{};  // by Cause
  int64_t& of(Cause cause) { return counts[static_cast<size_t>(cause)]; }
  int64_t of(Cause cause) const { return counts[static_cast<size_t>(cause)]; }
  int64_t Sum() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  bool operator==(const CauseCounts&) const = default;
};

// The facts about a step that no executable served.
struct Missed {
  Mode mode = Mode::kTrain;
  bool graph_break = false;    // the step cannot be captured
  bool keeps_nothing = false;  // the policy
  bool dropped = false;        // a command dropped what would have served it
  bool full = false;           // max_executables are held
  bool dynamic = false;        // it is to be served by one executable for every shape
  bool partial = false;        // fewer graphs than the job's batches have
  bool nodes_held = false;     // an executable of the mode has as many nodes
  bool edges_held = false;     // an executable of the mode has as many edges
};

// Returns the cause of a miss, and of the capture that it may lead to. If several hold, it is the one without which the
// others would not matter. Never returns kResume, kFreeze, kAudit or kDeviceEmptied, which the code that captures or
// withdraws knows.
inline Cause FindCause(const Missed& missed) {
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
