#include "train/run_memory.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// Copies of the parameters: themselves, gradients, two moments, the best epoch's, and, while a step is captured, three
// times the parameters with their moments.
constexpr double kParameterCopies = 5 + 3 * 3;
// Peak of a capture over that of an eager step.
constexpr double kCapturePeak = 2;

double Gigabytes(double bytes) { return bytes / 1e9; }

}  // namespace

double PeakBytes(const RunMemory& memory) {
  return sizeof(float) * (kParameterCopies * memory.cost.parameters + kCapturePeak * memory.cost.activations) +
         memory.batch_bytes + memory.result_bytes;
}

void CheckFits(const RunMemory& memory, uint64_t limit, std::string_view what, std::string_view prefix,
               Violations& violations) {
  const double needed = PeakBytes(memory), allowed = static_cast<double>(limit);
  if (needed <= allowed) return;
  violations.Add(absl::StrCat(AbslView(prefix), "model"),
                 absl::StrCat("needs about ", std::ceil(10 * Gigabytes(needed)) / 10, " GB (", AbslView(what),
                              "); this process may use ", std::floor(10 * Gigabytes(allowed)) / 10, " GB"));
}

}  // namespace permafrost::train
