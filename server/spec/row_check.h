// Holds options against their rows: ranges, and fields that mean nothing for the job.
// Threads: one at a time.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "base/string_view.h"
#include "spec/field_checker.h"
#include "spec/needs.h"

namespace permafrost::spec {

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

}  // namespace permafrost::spec
