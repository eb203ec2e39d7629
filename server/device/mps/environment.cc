#include "device/mps/environment.h"

#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::device {
namespace {

// The defaults of ATen/mps/MPSAllocator.h: default_high_watermark_ratio, default_high_watermark_upper_bound,
// default_low_watermark_ratio (of unified memory). Parts of the recommended maximum.
constexpr double kHighWatermark = 1.7, kMostWatermark = 2.0, kLowWatermark = 1.4;
constexpr char kHigh[] = "PYTORCH_MPS_HIGH_WATERMARK_RATIO", kLow[] = "PYTORCH_MPS_LOW_WATERMARK_RATIO";

struct Switch {
  const char* name;
  const char* warning;  // of a value other than 0; nullptr: none
};
constexpr std::array<Switch, 6> kSwitches{
    {{"PYTORCH_ENABLE_MPS_FALLBACK",
      "operators that MPS lacks run on the CPU without a word, and each waits for the device; unset it, so that a "
      "missing operator fails the job and is known"},
     {"PYTORCH_MPS_PREFER_METAL",
      "matrix products leave MPSGraph, so that counts of its entries are others than those that Permafrost plans with"},
     {"PYTORCH_MPS_FAST_MATH", "sums of the loss and comparisons with the CPU lose digits"},
     {"PYTORCH_DEBUG_MPS_ALLOCATOR", "libtorch prints what it allocates"},
     {"PYTORCH_MPS_LOG_PROFILE_INFO", "libtorch prints what it runs, and waits for it"},
     {"PYTORCH_MPS_TRACE_SIGNPOSTS", "libtorch traces what it runs, which slows it down"}}};

struct Ratio {
  double value = 0;
  bool given = false;
};

absl::StatusOr<Ratio> ReadRatio(const Environment& environment, const char* name, double fallback, double most) {
  const std::optional<std::string> text = environment(name);
  if (!text) return Ratio{.value = fallback};
  double value = -1;
  // NaN is none either.
  const bool ok = absl::SimpleAtod(*text, &value) && value >= 0 && value <= most;
  if (!ok) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": \"", *text, "\" is no ratio that MPS takes: accepted: 0 to ", most, ", or unset"));
  }
  return Ratio{.value = value, .given = true};
}

}  // namespace

absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment) {
  MpsEnvironment out;
  for (const Switch& s : kSwitches) {
    const std::optional<std::string> value = environment(s.name);
    if (!value) continue;
    out.settings.push_back({s.name, *value});
    if (*value != "0" && !value->empty()) out.warnings.push_back(absl::StrCat(s.name, "=", *value, ": ", s.warning));
  }
  PF_ASSIGN_OR_RETURN(const Ratio high, ReadRatio(environment, kHigh, kHighWatermark, kMostWatermark));
  PF_ASSIGN_OR_RETURN(const Ratio low, ReadRatio(environment, kLow, kLowWatermark, kMostWatermark));
  // 0: no limit, which libtorch takes for the most.
  const double limit = high.value > 0 ? high.value : kMostWatermark;
  if (low.value > limit) {
    return absl::FailedPreconditionError(
        absl::StrCat(kLow, low.given ? " is " : " is not set and is taken as ", low.value, ", above ", kHigh, " (",
                     limit, "), which MPS refuses at its first allocation: accepted: 0 to ", limit));
  }
  if (high.given && high.value == 0) {
    out.warnings.push_back(
        absl::StrCat(kHigh, "=0: memory has no limit, and the whole machine may run out of it before a job fails"));
  }
  out.settings.push_back({kHigh, absl::StrCat(high.value)});
  out.settings.push_back({kLow, absl::StrCat(low.value)});
  return out;
}

}  // namespace permafrost::device
