#include "api/streams/stream_work.h"

#include <utility>

#include "absl/status/statusor.h"
#include "api/services/unary.h"
#include "base/status.h"

namespace permafrost::api {

StreamWork::StreamWork(std::string_view what, ChangeHub& hub, std::string key, Body body)
    : what_(what), hub_(hub), key_(std::move(key)), body_(std::move(body)) {}

StreamWork::~StreamWork() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<ChangeHub::Subscription> StreamWork::Start(ChangeHub::Listener listener) {
  auto subscription = hub_.Subscribe(key_, std::move(listener));
  absl::StatusOr<std::thread> thread = StartThread(what_, [this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    End(thread.status());
  }
  return subscription;
}

void StreamWork::Run() {
  const auto on_progress = [this](int64_t done, int64_t total) {
    bool go_on = false;
    {
      absl::MutexLock lock(&mu_);
      state_.done = done;
      state_.total = total;
      go_on = !stop_;
    }
    // The hub makes few calls of many notices.
    hub_.Notify(key_);
    return go_on;
  };
  End(WithoutThrowing(what_, [&] { return body_(on_progress); }));
}

void StreamWork::End(absl::Status outcome) {
  {
    absl::MutexLock lock(&mu_);
    state_.outcome = std::move(outcome);
  }
  hub_.Notify(key_);
}

StreamWork::State StreamWork::Read() {
  absl::MutexLock lock(&mu_);
  return state_;
}

}  // namespace permafrost::api
