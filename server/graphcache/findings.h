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

// Returns the mode with its article, for log lines and errors about a step.
// Threads: pure functions.
inline std::string_view StepWithArticle(Mode mode) { return mode == Mode::kTrain ? "a training" : "an evaluation"; }

enum class Cause {
  kFirstStep,      // the mode's first step, which needs the one executable for every shape
  kNewNodes,       // no executable with this number of nodes was held
  kNewEdges,       // executables with this number of nodes were held, but none with this number of edges
  kNewShape,       // executables with either number were held, but none with both
  kLastBatch,      // the batch has fewer graphs than the job's batch size
  kEvaluation,     // an evaluation step whose shape was not held
  kPolicy,         // the policy keeps nothing
  kPolicyChange,   // a command dropped the executable that had served the step
  kResume,         // the executable was held before a resume, and was captured again
  kFreeze,         // a freeze captured its ceilings and rungs
  kLimit,          // max_executables are held
  kGraphBreak,     // the step cannot be captured
  kAudit,          // an audit withdrew the executable
  kDeviceEmptied,  // the device forgot what it had compiled, and the executable was captured again
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

// Returns true if a capture for this cause is made ahead for later steps, and false if a step waits for it.
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

// The facts about a step that no executable served.
struct Missed {
  Mode mode = Mode::kTrain;
  bool graph_break = false;    // the step cannot be captured
  bool keeps_nothing = false;  // the policy keeps no executables
  bool dropped = false;        // a command dropped the executable that would have served it
  bool full = false;           // max_executables are held
  bool dynamic = false;        // one executable for every shape should serve the step
  bool partial = false;        // the batch has fewer graphs than the job's batch size
  bool nodes_held = false;     // an executable of the mode has this number of nodes
  bool edges_held = false;     // an executable of the mode has this number of edges
};

// Returns the cause of a miss, and of the capture that the miss may lead to. If several causes hold, returns the one
// that makes the others irrelevant. Never returns kResume, kFreeze, kAudit or kDeviceEmptied, because the code that
// captures or withdraws sets these causes itself.
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

// Returns whether a step is audited if it is a replay. `step` is the number of optimizer steps done before the step,
// so a resumed run audits the same steps. `every` = 0 means no audits. The audited steps are the training steps with
// `step` = 1, every, 2 every, ..., and the first evaluation step after each of these. `eval_audit_step` is the number
// of optimizer steps done before the newest audited evaluation step, or 0 if there is none.
bool IsAuditDue(Mode mode, int64_t every, int64_t step, int64_t eval_audit_step);

// One or more audits that found the same difference. Shape and step are those of the first of these audits.
struct AuditFailure {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded
  int64_t step = 0;  // optimizer steps done before it
  std::string op;    // schema name; empty if no single operator is to blame
  std::string why;   // one line
  int64_t count = 0;
  bool operator==(const AuditFailure&) const = default;
};

// Returns whether the operator with this schema name multiplies two matrices, with or without an added term. The
// models use no other products.
bool IsProduct(std::string_view op);

// The times of the replay that was audited last, operator by operator.
struct StepProfile {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // padded
  int64_t step = 0;  // optimizer steps done before it
  double replay_seconds = 0, eager_seconds = 0;
  double product_seconds = 0;           // the step's matrix products, run alone
  std::vector<OperatorTime> operators;  // the longest first
  std::vector<LineTime> lines;          // user's lines, the longest first
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
