// A hub of changes whose subscriptions and calls a test counts.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/change_hub.h"

namespace permafrost::api {

// Long enough for a slow machine under a sanitizer; a test that passes never waits for it.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Counts the subscriptions that are alive and the calls that their listeners got.
class CountedHub {
 public:
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const std::string& key, ChangeHub::Listener listener) {
    absl::MutexLock lock(&mu_);
    ++alive_;
    return std::make_unique<Counted>(*this, hub_.Subscribe(key, [this, listener = std::move(listener)] {
      listener();
      absl::MutexLock called(&mu_);
      ++calls_;
    }));
  }
  void Notify(const std::string& key) { hub_.Notify(key); }
  bool AwaitAlive(int count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return alive_ == count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }
  bool AwaitCalls(int64_t count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return calls_ >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

 private:
  class Counted : public ChangeHub::Subscription {
   public:
    Counted(CountedHub& hub, std::unique_ptr<ChangeHub::Subscription> inner) : hub_(hub), inner_(std::move(inner)) {}
    ~Counted() override {
      inner_.reset();
      absl::MutexLock lock(&hub_.mu_);
      --hub_.alive_;
    }

   private:
    CountedHub& hub_;
    std::unique_ptr<ChangeHub::Subscription> inner_;
  };

  absl::Mutex mu_;
  int alive_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  ChangeHub hub_{absl::ZeroDuration()};
};

}  // namespace permafrost::api
