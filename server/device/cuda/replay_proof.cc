#include "device/cuda/replay_proof.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace permafrost::device {
namespace {

at::Tensor OnHost(const at::Tensor& t) {
  if (!t.defined()) return t;
  const at::Tensor host = t.detach().to(at::kCPU);
  // A tensor that is on the host already is no copy yet.
  return host.is_alias_of(t) ? host.clone() : host;
}

bool IsCompared(const at::Tensor& t) { return t.defined() && t.is_floating_point() && t.numel() > 0; }

// The largest |a - b|. Equal elements, and two NaNs, count as no difference. An element that is infinite or NaN in one
// alone counts nothing: it would allow the others any distance.
double Apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  return (x - y).abs().masked_fill(same, 0).nan_to_num(0, 0, 0).max().item<double>();
}

double Largest(const at::Tensor& a) { return a.to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>(); }

double Epsilon(c10::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

// `allowed`: beyond two roundings of each element's own size. An element that is not finite must be the same.
bool IsWithin(const at::Tensor& got, const at::Tensor& want, double allowed) {
  const at::Tensor x = got.to(at::kDouble), y = want.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor near = (x - y).abs().le(y.abs().mul(2 * Epsilon(want.scalar_type())).add(allowed));
  return near.logical_and(x.isfinite()).logical_and(y.isfinite()).logical_or(same).all().item<bool>();
}

bool IsEqual(const at::Tensor& got, const at::Tensor& want) {
  if (!want.defined() || !got.defined()) return want.defined() == got.defined();
  return got.sizes() == want.sizes() && got.scalar_type() == want.scalar_type() &&
         (IsCompared(want) || got.equal(want));
}

}  // namespace

HostValues ValuesOf(const StepProgram& program, const std::vector<at::Tensor>& outputs) {
  const at::NoGradGuard no_grad;
  HostValues values;
  for (const StateTensor& s : program.state) values.state.push_back(OnHost(s.value));
  for (const at::Tensor& t : outputs) values.outputs.push_back(OnHost(t));
  return values;
}

std::optional<std::string> FindDifference(const std::vector<StateTensor>& state, const HostValues& start,
                                          const HostValues& run, const HostValues& again, const HostValues& replay) {
  std::map<std::string, double> largest_change;
  for (size_t i = 0; i < state.size(); ++i) {
    if (!IsCompared(run.state[i])) continue;
    double& largest = largest_change[state[i].group];
    largest = std::max(largest, Apart(run.state[i], start.state[i]));
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const at::Tensor &want = run.state[i], &got = replay.state[i];
    if (!IsEqual(got, want)) return state[i].name;
    if (!IsCompared(want)) continue;
    const double allowed = kProofRelative * Apart(want, start.state[i]) + kProofNoise * Apart(again.state[i], want) +
                           kProofFloor * largest_change[state[i].group];
    if (!IsWithin(got, want, allowed)) return state[i].name;
  }
  if (replay.outputs.size() != run.outputs.size()) return "the number of outputs";
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const at::Tensor &want = run.outputs[i], &got = replay.outputs[i];
    const bool same =
        IsEqual(got, want) && (!IsCompared(want) || IsWithin(got, want,
                                                             (kProofRelative + kProofFloor) * Largest(want) +
                                                                 kProofNoise * Apart(again.outputs[i], want)));
    if (!same) return absl::StrCat("output ", i);
  }
  return std::nullopt;
}

}  // namespace permafrost::device
