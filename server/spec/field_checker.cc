#include "spec/field_checker.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::spec {

void FieldChecker::Add(std::string_view field, std::string_view description) {
  if (!told_.emplace(field).second) return;
  violations_.Add(absl::StrCat(prefix_, AbslView(field)), description);
}

bool FieldChecker::InRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return true;
  Add(field, absl::StrCat(value, " is outside ", low, "..", high));
  return false;
}

bool FieldChecker::IsPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return true;
  Add(field, absl::StrCat(value, " is not a finite number above 0"));
  return false;
}

bool FieldChecker::IsPart(std::string_view field, double value) {
  if (value >= 0 && value < 1) return true;
  Add(field, absl::StrCat(value, " is not a number of at least 0 and below 1"));
  return false;
}

bool FieldChecker::Fits(std::string_view field, int64_t value, const Accepts& accepts) {
  switch (accepts.kind) {
    case Accepts::Kind::kBetween:
      return InRange(field, value, accepts.low, accepts.high);
    case Accepts::Kind::kBetweenOr0:
      if (value == 0 || (value >= accepts.low && value <= accepts.high)) return true;
      Add(field, absl::StrCat(value, " is outside ", accepts.low, "..", accepts.high, ", or 0 ", accepts.zero));
      return false;
    case Accepts::Kind::kNotNegative:
      if (value >= 0) return true;
      Add(field, absl::StrCat(value, " is below 0"));
      return false;
    default:
      return true;
  }
}

bool FieldChecker::Fits(std::string_view field, double value, const Accepts& accepts) {
  switch (accepts.kind) {
    case Accepts::Kind::kBetween:
      // Written so that NaN is outside.
      if (value >= static_cast<double>(accepts.low) && value <= static_cast<double>(accepts.high)) return true;
      Add(field, absl::StrCat(value, " is outside ", accepts.low, "..", accepts.high));
      return false;
    case Accepts::Kind::kPositive:
      return IsPositive(field, value);
    case Accepts::Kind::kPart:
      return IsPart(field, value);
    case Accepts::Kind::kNotNegative:
      if (std::isfinite(value) && value >= 0) return true;
      Add(field, absl::StrCat(value, " is not a finite number of at least 0"));
      return false;
    default:
      return true;
  }
}

}  // namespace permafrost::spec
