#include "api/verify_source.h"

#include <variant>

#include "api/threaded_call.h"
#include "base/status.h"
#include "base/without_throwing.h"

namespace permafrost::api {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(250);
constexpr char kWhat[] = "the verification";

}  // namespace

VerifySource::~VerifySource() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<ChangeHub::Subscription> VerifySource::Subscribe(ChangeHub::Listener listener) {
  auto subscription = hub_.Subscribe(key_, std::move(listener));
  absl::StatusOr<std::thread> thread = StartThread(kWhat, [this] { Verify(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    End(thread.status());
  }
  return subscription;
}

void VerifySource::Verify() {
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
  End(WithoutThrowing(
      kWhat, [&] { return std::visit([&](const auto& opened) { return opened->VerifyAll(on_progress); }, dataset_); }));
}

void VerifySource::End(absl::Status outcome) {
  {
    absl::MutexLock lock(&mu_);
    outcome_ = std::move(outcome);
  }
  hub_.Notify(key_);
}

absl::StatusOr<Pull> VerifySource::Next(v1::VerifyDatasetResponse& response) {
  absl::MutexLock lock(&mu_);
  if (outcome_ && !outcome_->ok()) return *outcome_;
  if (outcome_) {
    done_ = total_;
    if (sent_ == done_) return Pull::kEnd;
  } else if (total_ == 0 || sent_ == done_ || (since_sent_ && since_sent_->Elapsed() < kInterval)) {
    return Pull::kWait;  // A notice comes soon: of more bytes, or of the end.
  }
  sent_ = done_;
  since_sent_.emplace();
  response.set_bytes_done(static_cast<int64_t>(done_));
  response.set_bytes_total(static_cast<int64_t>(total_));
  return outcome_ ? Pull::kLast : Pull::kMore;
}

}  // namespace permafrost::api
