#include "base/monotonic.h"

#include <algorithm>
#include <utility>

namespace permafrost {
namespace {

// The longest wait: a longer one would overflow the clock's time_point.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

}  // namespace

void Event::Set() {
  // Holds the lock to the end, because a thread that saw the event may destroy it at once.
  const std::lock_guard<std::mutex> lock(mu_);
  set_ = true;
  changed_.notify_all();
}

void Event::Reset() {
  const std::lock_guard<std::mutex> lock(mu_);
  set_ = false;
}

bool Event::is_set() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return set_;
}

void Event::Wait() const {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [this] { return set_; });
}

bool Event::WaitFor(absl::Duration timeout) const {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, kLongest));
  std::unique_lock<std::mutex> lock(mu_);
  if (timeout == absl::InfiniteDuration()) {
    changed_.wait(lock, [this] { return set_; });
  } else {
    changed_.wait_until(lock, end, [this] { return set_; });
  }
  return set_;
}

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
