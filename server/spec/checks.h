// The checks of options: violations of one message, options held against their rows, and rules between fields.
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

// Violations of one message of a spec. Threads: one at a time.
// Each check returns true if the value passes, and else adds a violation. A field gets one violation, the first.
class FieldChecker {
 public:
  // Names of fields are put after `prefix` ("spec."). Borrows the violations.
  FieldChecker(std::string_view prefix, Violations& violations) : prefix_(prefix), violations_(violations) {}

  void Add(std::string_view field, std::string_view description);
  bool InRange(std::string_view field, int64_t value, int64_t low, int64_t high);
  // These two take neither NaN nor an infinity.
  bool IsPositive(std::string_view field, double value);
  // Checks that the value is at least 0 and below 1.
  bool IsPart(std::string_view field, double value);
  bool Fits(std::string_view field, int64_t value, const Accepts& accepts);
  bool Fits(std::string_view field, double value, const Accepts& accepts);

 private:
  std::set<std::string, std::less<>> told_;
  const std::string prefix_;
  Violations& violations_;
};

// Holds and RefusalOf say for which jobs a field means something. Threads: pure functions.

// True if `options` are a job for which a field with this need means something.
bool Holds(Need need, const TrainOptions& options);
// Tells why a field with a need that does not hold is refused: "is given for schedule step; accepted: for plateau".
std::string RefusalOf(Need need, const TrainOptions& options);

// Holds options against their rows: ranges, and fields that mean nothing for the job.
// Threads: one at a time.
class RowCheck {
 public:
  // `job` decides which fields mean something; null: all do. Borrows both.
  RowCheck(FieldChecker& check, const TrainOptions* job) : check_(check), job_(job) {}

  // Adds a violation for each field that differs from `usual` though it means nothing, and for each other number out of
  // its range. Fields are named after `prefix` ("model.").
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

// Checks what the rows of options cannot say: fields that have to agree with others. Adds a violation for each set of
// fields that do not go together. Threads: pure function.
void CheckRules(const TrainOptions& options, FieldChecker& check);

}  // namespace permafrost::spec
