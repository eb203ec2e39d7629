// Findings about the steps of a graph cache: the causes of captures and misses, the replays that are audited, and the
// results of audits.
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

// Returns the mode with its article, for log lines and errors about a step.
// Threads: pure functions.
inline std::string_view StepWithArticle(Mode mode) { return mode == Mode::kTrain ? "a training" : "an evaluation"; }

enum class Cause {
  kFirstStep,  // the mode's first step, which needs the one executable for every shape
  kNewNodes,   // no held executable had this number of nodes
  kNewEdges,   // a held executable had this number of nodes, but none had this number of edges
  // One held executable had this number of nodes and another had this number of edges, but none had both.
  kNewShape,
  kLastBatch,     // the batch has fewer graphs than the job's batch size
  kEvaluation,    // an evaluation step for whose shape no executable was held
  kPolicy,        // the policy keeps no executables
  kPolicyChange,  // a command dropped the executable that would have served the step
  kResume,        // an executable that was held before a resume is captured again
  kFreeze,        // a freeze captures the ceilings and rungs
  kLimit,         // the cache holds max_executables executables
  kGraphBreak,    // the step cannot be captured
  kAudit,         // an audit withdrew the executable
  // The device forgot what it had compiled, and an executable is captured again.
  kDeviceEmptied,
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

// Returns true if captures for this cause are made ahead of the steps that use them, and false if a step waits for
// them.
constexpr bool IsAhead(Cause cause) {
  return cause == Cause::kPolicyChange || cause == Cause::kResume || cause == Cause::kFreeze ||
         cause == Cause::kDeviceEmptied;
}

// The number of times that each cause occurred.
struct CauseCounts {
  std::array<int64_t, kCauses> counts{};  // indexed by Cause
  int64_t& of(Cause cause) { return counts[static_cast<size_t>(cause)]; }
  int64_t of(Cause cause) const { return counts[static_cast<size_t>(cause)]; }
  int64_t Sum() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  bool operator==(const CauseCounts&) const = default;
};

// The facts from which the cause of a miss is found.
struct Missed {
  Mode mode = Mode::kTrain;
  bool graph_break = false;    // the step cannot be captured
  bool keeps_nothing = false;  // the policy keeps no executables
  bool dropped = false;        // a command dropped the executable that would have served the step
  bool full = false;           // the cache holds max_executables executables
  bool dynamic = false;        // one executable for every shape should serve the step
  bool partial = false;        // the batch has fewer graphs than the job's batch size
  bool nodes_held = false;     // an executable of the mode has this number of nodes
  bool edges_held = false;     // an executable of the mode has this number of edges
};

// Returns the cause of a miss, which is also the cause of its capture if it is captured. If several causes hold,
// returns the first of them in the order of the checks below. Never returns kResume, kFreeze, kAudit or
// kDeviceEmptied, because the code that captures or withdraws sets these causes itself.
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

// The error reason with which a failed audit fails a strict job. Its metadata are "mode", "shape", "step", "op" and
// "why".
inline constexpr char kAuditFailedReason[] = "GRAPH_CACHE_AUDIT_FAILED";

// Returns whether a replay is audited. Audits are due at the training steps with `step` = 1, every, 2 * every, ...,
// and at the first evaluation step after each of these. `every` = 0 means no audits. `step` is the number of
// optimizer steps done before the replay, so a resumed run audits the same steps. `eval_audit_step` is the number of
// optimizer steps done before the newest audited evaluation step, or 0 if there is none.
bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step);

// A difference that one or more audits found. `shape` and `step` are those of the first of these audits.
struct AuditFailure {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded
  int64_t step = 0;  // optimizer steps done before the audited step
  std::string op;    // schema name; empty if no single operator is to blame
  std::string why;   // one line
  int64_t count = 0;
  bool operator==(const AuditFailure&) const = default;
};

// Returns whether the operator with this schema name is a product of two matrices, with or without an added term.
// Covers all products that the models use.
bool IsProduct(std::string_view op);

// The times of the replay that was audited last, operator by operator.
struct StepProfile {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded
  int64_t step = 0;  // optimizer steps done before the replay
  double replay_seconds = 0, eager_seconds = 0;
  double product_seconds = 0;           // time of the step's matrix products, run alone
  std::vector<OperatorTime> operators;  // the longest first
  std::vector<LineTime> lines;          // lines of the user's module, the longest first
  bool operator==(const StepProfile&) const = default;
};

// The newest profile of each mode that has one. Copies share the profiles, because a snapshot is copied at each step.
class StepProfiles {
 public:
  const std::vector<StepProfile>& list() const;
  // Replaces the profile of the same mode.
  void Set(StepProfile profile);
  void Assign(std::vector<StepProfile> list);
  bool operator==(const StepProfiles& other) const { return list() == other.list(); }

 private:
  std::shared_ptr<const std::vector<StepProfile>> list_;  // nullptr if there are no profiles
};

}  // namespace permafrost::graphcache
