#include "base/change_hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace permafrost {
namespace {

// Counts calls and waits for them.
class Counter {
 public:
  void Add() {
    absl::MutexLock lock(&mu_);
    ++count_;
  }
  int count() const {
    absl::MutexLock lock(&mu_);
    return count_;
  }
  void AwaitAtLeast(int n) const {
    const auto reached = [this, n] { return count_ >= n; };
    absl::MutexLock lock(&mu_, absl::Condition(&reached));
  }

 private:
  mutable absl::Mutex mu_;
  int count_ = 0;
};

TEST(ChangeHub, CallsTheListenersOfTheKeyOnly) {
  ChangeHub hub(absl::ZeroDuration());
  Counter a1, a2, b;
  const auto s1 = hub.Subscribe("a", [&] { a1.Add(); });
  const auto s2 = hub.Subscribe("a", [&] { a2.Add(); });
  const auto s3 = hub.Subscribe("b", [&] { b.Add(); });
  hub.Notify("nobody");
  hub.Notify("a");
  a1.AwaitAtLeast(1);
  a2.AwaitAtLeast(1);
  EXPECT_EQ(b.count(), 0);
  hub.Notify("b");
  b.AwaitAtLeast(1);
  EXPECT_EQ(a1.count(), 1);
}

TEST(ChangeHub, CountsSubscriptionsOfAllKeys) {
  ChangeHub hub;
  EXPECT_EQ(hub.subscriptions(), 0U);
  auto first = hub.Subscribe("a", [] {});
  const auto second = hub.Subscribe("b", [] {});
  EXPECT_EQ(hub.subscriptions(), 2U);
  first.reset();
  EXPECT_EQ(hub.subscriptions(), 1U);
}

TEST(ChangeHub, NoticesBetweenCallsAreCoalescedAndTheLastIsNeverLost) {
  ChangeHub hub(absl::Milliseconds(20));
  absl::Mutex mu;
  int seen = 0, calls = 0;
  std::atomic<int> value = 0;
  const auto s = hub.Subscribe("a", [&] {
    absl::MutexLock lock(&mu);
    seen = value;
    ++calls;
  });
  for (int i = 1; i <= 10000; ++i) {
    value = i;
    hub.Notify("a");
  }
  const auto saw_last = [&] { return seen == 10000; };
  absl::MutexLock lock(&mu, absl::Condition(&saw_last));
  EXPECT_LT(calls, 5000) << "10,000 notices within moments are not as many calls";
}

TEST(ChangeHub, ANoticeDuringACallLeadsToAnother) {
  ChangeHub hub(absl::ZeroDuration());
  Counter calls;
  const auto s = hub.Subscribe("a", [&] {
    if (calls.count() < 3) hub.Notify("a");
    calls.Add();
  });
  hub.Notify("a");
  calls.AwaitAtLeast(4);
}

TEST(ChangeHub, AListenerMayDropItselfAndSubscribe) {
  // Declared before the subscriptions, whose listeners may be called until they are dropped.
  Counter first, second;
  absl::Notification ready;
  ChangeHub hub(absl::ZeroDuration());
  std::unique_ptr<ChangeHub::Subscription> self, other;
  self = hub.Subscribe("a", [&] {
    ready.WaitForNotification();  // until the test has stored `self`
    first.Add();
    Counter& counted = second;
    other = hub.Subscribe("a", [&counted] { counted.Add(); });
    self.reset();
  });
  ready.Notify();
  hub.Notify("a");
  first.AwaitAtLeast(1);
  while (second.count() == 0) {
    hub.Notify("a");
    std::this_thread::yield();
  }
  EXPECT_EQ(first.count(), 1);
}

TEST(ChangeHub, CallsOfAKeyAreAtLeastTheIntervalApart) {
  using Clock = std::chrono::steady_clock;
  const auto interval = std::chrono::milliseconds(20);
  ChangeHub hub(absl::FromChrono(interval));
  Counter calls;
  const auto s = hub.Subscribe("a", [&] {
    calls.Add();
    hub.Notify("a");
  });
  const Clock::time_point begin = Clock::now();
  hub.Notify("a");
  calls.AwaitAtLeast(4);
  EXPECT_GE(Clock::now() - begin, 3 * interval);
}

TEST(ChangeHub, AKeyThatWaitsHoldsUpNoOtherNorTheEnd) {
  ChangeHub hub(absl::Hours(1));
  Counter a, b;
  const auto s1 = hub.Subscribe("a", [&] { a.Add(); });
  const auto s2 = hub.Subscribe("b", [&] { b.Add(); });
  hub.Notify("a");
  a.AwaitAtLeast(1);
  hub.Notify("a");  // due in an hour
  hub.Notify("b");
  b.AwaitAtLeast(1);
  EXPECT_EQ(a.count(), 1);
}

TEST(ChangeHub, DestructionWaitsForARunningCall) {
  ChangeHub hub(absl::ZeroDuration());
  absl::Notification entered, leave;
  std::atomic<bool> left = false;
  auto s = hub.Subscribe("a", [&] {
    entered.Notify();
    leave.WaitForNotification();
    left = true;
  });
  hub.Notify("a");
  entered.WaitForNotification();
  std::thread dropper([&] {
    s.reset();
    EXPECT_TRUE(left);
  });
  leave.Notify();
  dropper.join();
}

TEST(ChangeHub, ASubscriptionMayOutliveTheHub) {
  auto hub = std::make_unique<ChangeHub>(absl::Hours(1));
  const auto captured = std::make_shared<int>(0);
  auto s = hub->Subscribe("a", [captured] {});
  hub->Notify("a");
  hub.reset();
  s.reset();
  EXPECT_EQ(captured.use_count(), 1) << "the listener's captures are released";
}

TEST(ChangeHub, ManyThreads) {
  ChangeHub hub(absl::Microseconds(10));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&hub, t] {
      for (int i = 0; i < 300; ++i) {
        auto alive = std::make_shared<std::atomic<bool>>(true);
        std::weak_ptr<std::atomic<bool>> weak = alive;
        auto s = hub.Subscribe(t % 2 == 0 ? "even" : "odd", [weak] { EXPECT_FALSE(weak.expired()); });
        hub.Notify("even");
        hub.Notify("odd");
        s.reset();
        alive.reset();  // any later call would find it expired
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace permafrost
