#include "base/patience.h"

#include <algorithm>
#include <utility>

namespace permafrost {
namespace {

thread_local const Patience* newest_patience = nullptr;

}  // namespace

Patience::Patience(absl::Duration most, std::function<bool()> wanted)
    : most_(std::min(most, Left(absl::InfiniteDuration()))), wanted_(std::move(wanted)), around_(newest_patience) {
  newest_patience = this;
}

Patience::~Patience() { newest_patience = around_; }

absl::Duration Patience::Left(absl::Duration most) {
  if (newest_patience == nullptr) return most;
  return std::clamp(newest_patience->most_ - newest_patience->watch_.Elapsed(), absl::ZeroDuration(), most);
}

bool Patience::IsWanted() {
  for (const Patience* patience = newest_patience; patience != nullptr; patience = patience->around_) {
    if (patience->wanted_) return patience->wanted_();
  }
  return true;
}

}  // namespace permafrost
