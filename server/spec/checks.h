// The checks of options: collects violations, compares options with their rows, and applies the rules between fields.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "spec/field.h"
#include "spec/train_options.h"

namespace permafrost::spec {

// Collects the violations of one message of a spec. Each check returns true if the value passes, and otherwise adds a
// violation. A field gets at most one violation, the first.
// Threads: one at a time.
class FieldChecker {
 public:
  // Prepends `prefix` ("spec.") to the names of fields. Borrows the violations.
  FieldChecker(std::string_view prefix, Violations& violations) : prefix_(prefix), violations_(violations) {}

  void Add(std::string_view field, std::string_view description);
  bool InRange(std::string_view field, int64_t value, int64_t low, int64_t high);
  // IsPositive and IsPart refuse NaN and infinities.
  bool IsPositive(std::string_view field, double value);
  // Checks that 0 <= value < 1.
  bool IsPart(std::string_view field, double value);
  bool Fits(std::string_view field, int64_t value, const Accepts& accepts);
  bool Fits(std::string_view field, double value, const Accepts& accepts);

 private:
  std::set<std::string, std::less<>> told_;
  const std::string prefix_;
  Violations& violations_;
};

// Holds says whether a field has a meaning for a job, and RefusalOf words why it has none. Threads: pure functions.

// True if a field with this need has a meaning for the job `options`.
bool Holds(Need need, const TrainOptions& options);
// Returns why a field with this need is refused, such as "is given for schedule step; accepted: for plateau". The
// need must not hold for `options`.
std::string RefusalOf(Need need, const TrainOptions& options);

// Checks options against their rows: the accepted ranges, and fields that have no meaning for the job.
// Threads: one at a time.
class RowCheck {
 public:
  // `job` decides which fields have a meaning. If `job` is null, every field has one. Borrows `check` and `job`.
  RowCheck(FieldChecker& check, const TrainOptions* job) : check_(check), job_(job) {}

  // Adds a violation for each field that has no meaning for the job and differs from its value in `usual`. For a
  // field that has a meaning, adds a violation if its number is out of range. Prepends `prefix` ("model.") to the
  // names of fields.
  template <HasFields T>
  void Visit(const T& options, const T& usual, const std::string& prefix = "") {
    VisitFields(Options<T>(), [&](const Field& field, auto member, const auto&... /*names*/) {
      Row(field, prefix, options.*member, usual.*member);
    });
  }

 private:
  template <class M>
  void Row(const Field& field, const std::string& prefix, const M& value, const M& usual) {
    if constexpr (HasFields<M>) {
      if (field.inlined != Inline::kNo) return Visit(value, usual, prefix);
    }
    const std::string name = prefix + field.name;
    for (const Need need : field.needs) {
      if (value == usual || job_ == nullptr || Holds(need, *job_)) continue;
      return check_.Add(name, RefusalOf(need, *job_));
    }
    if constexpr (HasFields<M>) {
      Visit(value, usual, name + ".");
    } else if constexpr (std::floating_point<M>) {
      check_.Fits(name, value, field.accepts);
    } else if constexpr (std::integral<M>) {
      check_.Fits(name, static_cast<int64_t>(value), field.accepts);
    }
  }

  FieldChecker& check_;
  const TrainOptions* const job_;
};

// Checks the rules between fields, which rows cannot express. Adds a violation for each set of fields that do not go
// together.
// Threads: pure function.
void CheckRules(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::spec
