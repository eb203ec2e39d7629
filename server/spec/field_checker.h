// Violations of one message of a spec.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "spec/field.h"

namespace permafrost::spec {

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

}  // namespace permafrost::spec
