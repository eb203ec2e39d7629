// Chooses which replays are audited, and keeps what audits found.
// Threads: values and a pure function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/step.h"
#include "graphcache/executable.h"

namespace permafrost::graphcache {

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
