#include "api/verify_stream.h"

#include <variant>

#include "absl/time/clock.h"
#include "api/slow_calls.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(250);

}  // namespace

VerifyStream::~VerifyStream() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<ChangeHub::Subscription> VerifyStream::Subscribe(ChangeHub::Listener listener) {
  auto subscription = hub_.Subscribe(key_, std::move(listener));
  thread_ = std::thread([this] { Verify(); });
  return subscription;
}

void VerifyStream::Verify() {
  const auto on_progress = [this](uint64_t done, uint64_t total) {
    bool go_on = false;
    {
      absl::MutexLock lock(&mu_);
      done_ = done;
      total_ = total;
      go_on = !stop_;
    }
    // The hub makes few calls of many notices.
    hub_.Notify(key_);
    return go_on;
  };
  const absl::Status outcome = WithoutThrowing(
      [&] { return std::visit([&](const auto& opened) { return opened->VerifyAll(on_progress); }, dataset_); });
  {
    absl::MutexLock lock(&mu_);
    outcome_ = outcome;
  }
  hub_.Notify(key_);
}

absl::StatusOr<Pull> VerifyStream::Next(v1::VerifyDatasetResponse& response) {
  absl::MutexLock lock(&mu_);
  if (outcome_ && !outcome_->ok()) return *outcome_;
  if (outcome_) {
    done_ = total_;
    if (sent_ == done_) return Pull::kEnd;
  } else if (total_ == 0 || sent_ == done_ || absl::Now() < next_) {
    return Pull::kWait;  // A notice comes soon: of more bytes, or of the end.
  }
  sent_ = done_;
  next_ = absl::Now() + kInterval;
  response.set_bytes_done(static_cast<int64_t>(done_));
  response.set_bytes_total(static_cast<int64_t>(total_));
  return outcome_ ? Pull::kLast : Pull::kMore;
}

}  // namespace permafrost::api
