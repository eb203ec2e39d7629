#include "device/cpu/products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "graphcache/audit.h"

namespace permafrost::device {
namespace {

// The least counts: nothing makes a product faster than it is.
constexpr int kRuns = 5;

bool IsMatrix(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 2;
}

bool IsWeight(std::string_view argument) { return argument == "weight" || argument == "w1" || argument == "w2"; }

}  // namespace

void StepProducts::Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  const std::string& name = op.operator_name().name;
  if (graphcache::IsProduct(name)) {
    const size_t first = name == "aten::mm" ? 0 : 1;
    const at::Tensor &a = arguments[first].toTensor(), &b = arguments[first + 1].toTensor();
    ++counts_[{a.size(0), a.size(1), b.size(1)}];
    return;
  }
  if (arguments.empty() || !IsMatrix(arguments[0])) return;
  const int64_t rows = arguments[0].toTensor().size(0);
  const int64_t each = absl::EndsWith(name, "_backward") ? 2 : 1;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!IsWeight(op.schema().arguments()[a].name()) || !IsMatrix(arguments[a])) continue;
    const at::Tensor& weight = arguments[a].toTensor();
    counts_[{rows, weight.size(1), weight.size(0)}] += each;
  }
}

double StepProducts::SecondsAlone() const {
  double seconds = 0;
  for (const auto& [sizes, count] : counts_) {
    const at::Tensor a = at::ones({sizes[0], sizes[1]}), b = at::ones({sizes[1], sizes[2]});
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kRuns; ++run) {
      const Stopwatch watch;
      at::mm(a, b);
      least = std::min(least, watch.Elapsed());
    }
    seconds += static_cast<double>(count) * absl::ToDoubleSeconds(least);
  }
  return seconds;
}

}  // namespace permafrost::device
