// ThreadSanitizer sees only the locks of code compiled with it, and packaged Abseil is not: every use of absl::Mutex
// would look like a race. So in such builds, and only there, this file stands in for Abseil's definitions with ones
// made of std::mutex, which ThreadSanitizer knows. The dynamic linker lets a program's definitions come before a
// library's. Reader locks are exclusive here. absl::CondVar, which reaches into a Mutex, is not served; Permafrost has
// none.
#if defined(__SANITIZE_THREAD__)
#define PF_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PF_THREAD_SANITIZER 1
#endif
#endif

#ifdef PF_THREAD_SANITIZER

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace {

struct Lockable {
  std::mutex mutex;
  std::condition_variable released;
};

// A Mutex is one word, zero at first: the address of its Lockable once it has one.
Lockable& Get(std::atomic<intptr_t>& word) {
  intptr_t address = word.load(std::memory_order_acquire);
  if (address == 0) {
    auto* made = new Lockable;
    if (word.compare_exchange_strong(address, reinterpret_cast<intptr_t>(made), std::memory_order_acq_rel))
      return *made;
    delete made;
  }
  return *reinterpret_cast<Lockable*>(address);
}

// With the lock held. Waking all first stands for the Unlock that a wait begins with.
bool WaitUntil(Lockable& lockable, const absl::Condition& condition, absl::Time deadline) {
  if (condition.Eval()) return true;
  lockable.released.notify_all();
  std::unique_lock<std::mutex> lock(lockable.mutex, std::adopt_lock);
  bool holds = false;
  if (deadline == absl::InfiniteFuture()) {
    lockable.released.wait(lock, [&condition] { return condition.Eval(); });
    holds = true;
  } else {
    // system_clock, since ThreadSanitizer does not know the function behind waits on a steady clock.
    holds = lockable.released.wait_until(lock, absl::ToChronoTime(deadline), [&condition] { return condition.Eval(); });
  }
  lock.release();
  return holds;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() { delete reinterpret_cast<Lockable*>(mu_.load(std::memory_order_acquire)); }

void Mutex::Lock() { Get(mu_).mutex.lock(); }
bool Mutex::TryLock() { return Get(mu_).mutex.try_lock(); }
void Mutex::Unlock() {
  Lockable& lockable = Get(mu_);
  lockable.released.notify_all();
  lockable.mutex.unlock();
}
void Mutex::ReaderLock() { Lock(); }
bool Mutex::ReaderTryLock() { return TryLock(); }
void Mutex::ReaderUnlock() { Unlock(); }
void Mutex::AssertHeld() const {}
void Mutex::AssertReaderHeld() const {}
void Mutex::AssertNotHeld() const {}

void Mutex::Await(const Condition& cond) { AwaitWithDeadline(cond, InfiniteFuture()); }
bool Mutex::AwaitWithTimeout(const Condition& cond, Duration timeout) {
  return AwaitWithDeadline(cond, Now() + timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& cond, Time deadline) { return WaitUntil(Get(mu_), cond, deadline); }

void Mutex::LockWhen(const Condition& cond) { LockWhenWithDeadline(cond, InfiniteFuture()); }
bool Mutex::LockWhenWithTimeout(const Condition& cond, Duration timeout) {
  return LockWhenWithDeadline(cond, Now() + timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& cond, Time deadline) {
  Lock();
  return AwaitWithDeadline(cond, deadline);
}
void Mutex::ReaderLockWhen(const Condition& cond) { LockWhen(cond); }
bool Mutex::ReaderLockWhenWithTimeout(const Condition& cond, Duration timeout) {
  return LockWhenWithTimeout(cond, timeout);
}
bool Mutex::ReaderLockWhenWithDeadline(const Condition& cond, Time deadline) {
  return LockWhenWithDeadline(cond, deadline);
}

Notification::~Notification() { MutexLock lock(&mutex_); }
void Notification::Notify() {
  MutexLock lock(&mutex_);
  notified_yet_.store(true, std::memory_order_release);
}
void Notification::WaitForNotification() const { WaitForNotificationWithDeadline(InfiniteFuture()); }
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  return WaitForNotificationWithDeadline(Now() + timeout);
}
bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  const bool notified = mutex_.LockWhenWithDeadline(Condition(&HasBeenNotifiedInternal, &notified_yet_), deadline);
  mutex_.Unlock();
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

#endif  // PF_THREAD_SANITIZER
