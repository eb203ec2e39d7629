#include "graphcache/cache_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace permafrost::graphcache {
namespace {

// A difference in time that no run would show.
constexpr double kAsFast = 1.01;
// Rows added that are worth fewer executables.
constexpr double kFewRows = 0.02;

std::string Describe(const PlanRow& row, const CachePlan& plan) {
  std::string text(spec::kPolicyNames.Name(row.options.policy));
  // Writes the policy as the table of rows does.
  if (row.options.policy == spec::Policy::kFreeze && row.shapes == spec::Shapes::kExact) {
    const int64_t freeze_at = plan.freeze_point.freeze_at;
    text += freeze_at > 0 ? absl::StrCat(" at ", freeze_at) : " never";
    text += ", ";
    text += spec::kOnMissNames.Name(row.options.on_miss);
  }
  if (row.shapes == spec::Shapes::kDynamic) absl::StrAppend(&text, " with one executable for every shape");
  if (row.shapes == spec::Shapes::kLadder) absl::StrAppend(&text, " with a ladder of ", row.train_executables);
  if (plan.schedules.size() > 1) {
    absl::StrAppend(&text, ", ", plan.schedules[static_cast<size_t>(row.schedule)].batching, " batches");
  }
  return text;
}

double RowsAdded(const PlanRow& row) {
  return row.real_rows == 0 ? 0 : static_cast<double>(row.padding_rows) / static_cast<double>(row.real_rows);
}

// Returns whether every step is a replay at the end, of evaluation too, whatever comes: the cache is sealed. Under
// exact shapes, only a cache that pads holds something that each batch fits into.
bool IsSealed(const PlanRow& row) {
  const bool serves_all = row.shapes != spec::Shapes::kExact || row.options.on_miss == spec::OnMiss::kPad;
  return row.options.policy == spec::Policy::kFreeze && serves_all && row.eager == 0 && row.rejected == 0 &&
         row.captures <= row.train_executables;
}

bool IsBetter(const PlanRow& a, const PlanRow& b) {
  if (a.train_seconds && b.train_seconds) {
    if (*a.train_seconds * kAsFast < *b.train_seconds) return true;
    if (*b.train_seconds * kAsFast < *a.train_seconds) return false;
  } else if (const double rows = RowsAdded(a), others = RowsAdded(b);
             rows != others && std::max(rows, others) > kFewRows) {
    return rows < others;
  }
  // Batches as they come rather than composed ones, then the fewest executables, then the fewest rows added.
  if (a.schedule != b.schedule) return a.schedule < b.schedule;
  const int64_t executables = a.train_executables + a.eval_executables;
  const int64_t others = b.train_executables + b.eval_executables;
  return executables != others ? executables < others : RowsAdded(a) < RowsAdded(b);
}

}  // namespace

void Recommend(CachePlan& plan) {
  size_t best = plan.rows.size();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (IsSealed(plan.rows[i]) && (best == plan.rows.size() || IsBetter(plan.rows[i], plan.rows[best]))) best = i;
  }
  plan.recommended = static_cast<int64_t>(best == plan.rows.size() ? 0 : best);
  const PlanRow& row = plan.rows[static_cast<size_t>(plan.recommended)];
  const int64_t executables = row.train_executables + row.eval_executables;
  plan.reason = absl::StrCat(Describe(row, plan), ": every step a replay by ", executables,
                             executables == 1 ? " executable" : " executables", ", never more, ",
                             absl::StrFormat("%.1f %% rows added", 1e2 * RowsAdded(row)));
  if (!row.train_seconds) return;
  const PlanRow& fastest =
      *std::ranges::min_element(plan.rows, {}, [](const PlanRow& other) { return *other.train_seconds; });
  const double times = *row.train_seconds / *fastest.train_seconds;
  // It is the fastest of those that replay every step.
  absl::StrAppend(&plan.reason,
                  times < kAsFast
                      ? ", as fast as any"
                      : absl::StrFormat(", training takes, with its captures, %.3g times as long as under the "
                                        "fastest of all, which does not replay every step: %s",
                                        times, Describe(fastest, plan)));
}

}  // namespace permafrost::graphcache
