// One comparison of a job filter: a field of a job, an operator and a value.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "jobs/job.h"

namespace permafrost::jobs {

enum class FilterField { kName, kState, kDataset, kLabel, kPriority, kCreateTime, kStartTime, kEndTime };
// kHas: ":".
enum class FilterOperator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kHas };

// True if its values are numbers or times, which < and > compare.
bool HasOrder(FilterField field);

struct FilterComparison {
  FilterField field = FilterField::kName;
  std::string key;  // of a label
  FilterOperator op = FilterOperator::kEqual;
  bool any_value = false;  // ":*"
  // By the field's type.
  std::string text;
  JobState state = JobState::kQueued;
  int32_t number = 0;
  absl::Time time;

  // A label or a time that the job has not matches nothing.
  bool Matches(const Job& job) const;
};

}  // namespace permafrost::jobs
