// Findings about the steps of a graph cache: why an executable was captured, why a step was a miss, which replays are
// audited, and what audits found.
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "base/step.h"
#include "graphcache/executable.h"

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

// The reason of the error that fails a strict job at a failed audit, with metadata "mode", "shape", "step", "op" and
// "why".
inline constexpr char kAuditFailedReason[] = "GRAPH_CACHE_AUDIT_FAILED";

// Returns whether the step is audited if it is a replay. `every` > 0: training steps before which 1, every, 2 every,
// ... optimizer steps were done; and the first evaluation step after each of these, where `eval_audit_step` is the
// optimizer steps done before the evaluation step that was audited last, 0 for none. A resumed run audits the same
// steps. 0: none.
bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step);

// Audits that found the same difference.
struct AuditFailure {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded; of the first, as is the step
  int64_t step = 0;  // optimizer steps done before it
  std::string op;    // schema name; empty where no single operator is to blame
  std::string why;   // one line
  int64_t count = 0;
  bool operator==(const AuditFailure&) const = default;
};

// Returns whether an operator, given by its schema name, is a product of two matrices, whatever is added to it. The
// models have no others.
bool IsProduct(std::string_view op);

// The replay of the step that was audited last, operator by operator.
struct StepProfile {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded
  int64_t step = 0;  // optimizer steps done before it
  double replay_seconds = 0, eager_seconds = 0;
  double product_seconds = 0;           // of its matrix products, run alone
  std::vector<OperatorTime> operators;  // the longest first
  std::vector<LineTime> lines;          // likewise
  bool operator==(const StepProfile&) const = default;
};

// The newest profile of each mode that has one. Copies share it: a snapshot is copied at each step.
class StepProfiles {
 public:
  const std::vector<StepProfile>& list() const;
  // Replaces the profile of its mode.
  void Set(StepProfile profile);
  void Assign(std::vector<StepProfile> list);
  bool operator==(const StepProfiles& other) const { return list() == other.list(); }

 private:
  std::shared_ptr<const std::vector<StepProfile>> list_;  // nullptr: empty
};

}  // namespace permafrost::graphcache
