#include "train/run_memory.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "device/capture_memory.h"

namespace permafrost::train {
namespace {

constexpr double kMostBytes = 1e18;  // no machine has as many
// Copies of the parameters that live as long as the run: themselves, two moments, the best epoch's. A capture copies
// the first three.
constexpr double kLastingCopies = 4, kStateCopies = 3;

int64_t ToBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, kMostBytes)); }
double Gigabytes(double bytes) { return bytes / 1e9; }

// Of the weights and of a step at its worst moment.
double StepBytes(const RunMemory& memory, bool records) {
  const double parameters = sizeof(float) * memory.cost.parameters;
  // With the gradients.
  const double step = sizeof(float) * memory.cost.activations + parameters;
  const double peak =
      records ? static_cast<double>(device::CapturePeakBytes(ToBytes(step), ToBytes(kStateCopies * parameters))) : step;
  return kLastingCopies * parameters + peak;
}

}  // namespace

void CheckFits(const RunMemory& memory, const MemoryLimits& limits, std::string_view what, std::string_view prefix,
               Violations& violations) {
  const auto check = [&](double needed, uint64_t limit, std::string_view whose) {
    const auto allowed = static_cast<double>(limit);
    if (needed <= allowed) return;
    violations.Add(absl::StrCat(AbslView(prefix), "model"),
                   absl::StrCat("needs about ", std::ceil(10 * Gigabytes(needed)) / 10, " GB (", AbslView(what), "); ",
                                AbslView(whose), " ", std::floor(10 * Gigabytes(allowed)) / 10, " GB"));
  };
  const double steps = StepBytes(memory, limits.records), rest = memory.batch_bytes + memory.result_bytes;
  check(limits.device ? rest : steps + rest, limits.process, "this process may use");
  if (limits.device) check(steps, *limits.device, "the device has");
}

}  // namespace permafrost::train
