#include "jobs/filter_comparison.h"

#include <compare>

namespace permafrost::jobs {
namespace {

bool Holds(FilterOperator op, std::weak_ordering order) {
  switch (op) {
    case FilterOperator::kEqual:
    case FilterOperator::kHas:
      return order == 0;
    case FilterOperator::kNotEqual:
      return order != 0;
    case FilterOperator::kLess:
      return order < 0;
    case FilterOperator::kLessEqual:
      return order <= 0;
    case FilterOperator::kGreater:
      return order > 0;
    case FilterOperator::kGreaterEqual:
      return order >= 0;
  }
  return false;
}

std::weak_ordering Order(absl::Time a, absl::Time b) {
  if (a < b) return std::weak_ordering::less;
  return b < a ? std::weak_ordering::greater : std::weak_ordering::equivalent;
}

std::weak_ordering OrderOfText(const std::string& a, const std::string& b) { return a.compare(b) <=> 0; }

}  // namespace

bool HasOrder(FilterField field) {
  return field == FilterField::kPriority || field == FilterField::kCreateTime || field == FilterField::kStartTime ||
         field == FilterField::kEndTime;
}

bool FilterComparison::Matches(const Job& job) const {
  const auto by_time = [this](absl::Time t) { return t != absl::InfinitePast() && Holds(op, Order(t, time)); };
  switch (field) {
    case FilterField::kName:
      return Holds(op, OrderOfText(job.id.value(), text));
    case FilterField::kState:
      return Holds(op, job.state <=> state);
    case FilterField::kDataset:
      return Holds(op, OrderOfText(job.spec.train.dataset.value(), text));
    case FilterField::kLabel: {
      const auto label = job.labels.find(key);
      return label != job.labels.end() && (any_value || Holds(op, OrderOfText(label->second, text)));
    }
    case FilterField::kPriority:
      return Holds(op, job.spec.priority <=> number);
    case FilterField::kCreateTime:
      return by_time(job.create_time);
    case FilterField::kStartTime:
      return by_time(job.start_time);
    case FilterField::kEndTime:
      return by_time(job.end_time);
  }
  return false;
}

}  // namespace permafrost::jobs
