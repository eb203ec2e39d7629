#include "base/change_hub.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/monotonic.h"

namespace permafrost {
struct ChangeHub::Impl {
  using Clock = std::chrono::steady_clock;

  struct Entry {
    std::uint64_t id;
    // Shared ownership lets a listener drop its own subscription while it runs.
    std::shared_ptr<const Listener> listener;
  };
  // A key exists only while it has listeners, so that the keys of deleted objects cost nothing.
  struct Key {
    std::vector<Entry> entries;
    bool pending = false;
    std::optional<Clock::time_point> last_call;
  };

  explicit Impl(absl::Duration interval) : min_interval(absl::ToChronoNanoseconds(interval)) {}

  void Unsubscribe(const std::string& name, std::uint64_t id) {
    // Declared before the lock, so that the listener's captures are destroyed after the lock is released.
    std::shared_ptr<const Listener> dropped;
    absl::MutexLock lock(&mu);
    if (const auto it = keys.find(name); it != keys.end()) {
      auto& entries = it->second.entries;
      const auto entry = std::find_if(entries.begin(), entries.end(), [id](const Entry& e) { return e.id == id; });
      if (entry != entries.end()) {
        dropped = std::move(entry->listener);
        entries.erase(entry);
      }
      if (entries.empty()) keys.erase(it);
    }
    // On the hub's thread, the listener that runs now is itself the caller of this function, so a wait would never
    // end.
    if (std::this_thread::get_id() == thread_id) return;
    const auto not_running = [this, id]() ABSL_SHARED_LOCKS_REQUIRED(mu) { return running != id; };
    mu.Await(absl::Condition(&not_running));
  }

  // Returns the time until the key's listeners may be called. Zero or negative: they may be called now.
  std::chrono::nanoseconds Left(const Key& key, Clock::time_point now) const {
    return key.last_call ? min_interval - (now - *key.last_call) : std::chrono::nanoseconds::zero();
  }

  // Returns the time until the listeners of some pending key may be called; nullopt if no key is pending.
  std::optional<std::chrono::nanoseconds> UntilNextCall(Clock::time_point now) const ABSL_SHARED_LOCKS_REQUIRED(mu) {
    std::optional<std::chrono::nanoseconds> next;
    for (const auto& [name, key] : keys) {
      if (key.pending && (!next || Left(key, now) < *next)) next = Left(key, now);
    }
    return next;
  }

  // Calls each listener that the key has at this moment. Skips a listener whose subscription ends before its turn.
  void Call(const std::string& name, Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    key.pending = false;
    key.last_call = Clock::now();
    std::vector<std::uint64_t> ids;
    for (const Entry& entry : key.entries) ids.push_back(entry.id);
    for (const std::uint64_t id : ids) {
      if (stopping) return;
      const auto it = keys.find(name);
      if (it == keys.end()) return;
      const auto& entries = it->second.entries;
      const auto entry = std::find_if(entries.begin(), entries.end(), [id](const Entry& e) { return e.id == id; });
      if (entry == entries.end()) continue;
      std::shared_ptr<const Listener> listener = entry->listener;
      running = id;
      mu.Unlock();
      (*listener)();
      // The listener is released before `running` becomes 0. So its captures are gone once its Subscription is gone.
      listener.reset();
      mu.Lock();
      running = 0;
    }
  }

  void Run() {
    absl::MutexLock lock(&mu);
    thread_id = std::this_thread::get_id();
    while (!stopping) {
      const Clock::time_point now = Clock::now();
      if (const auto next = UntilNextCall(now); !next || next->count() > 0) {
        mu.Unlock();
        changed.WaitFor(next ? absl::FromChrono(*next) : absl::InfiniteDuration());
        // Resets the event before it reads the state, so that any later change wakes the next wait.
        changed.Reset();
        mu.Lock();
        continue;
      }
      std::vector<std::string> due;
      for (const auto& [name, key] : keys) {
        if (key.pending && Left(key, now).count() <= 0) due.push_back(name);
      }
      for (const std::string& name : due) {
        if (const auto it = keys.find(name); it != keys.end() && it->second.pending) Call(name, it->second);
      }
    }
  }

  const std::chrono::nanoseconds min_interval;
  Event changed;  // set after each change of the members below that Run must react to
  absl::Mutex mu;
  std::map<std::string, Key> keys ABSL_GUARDED_BY(mu);
  std::uint64_t next_id ABSL_GUARDED_BY(mu) = 1;
  std::uint64_t running ABSL_GUARDED_BY(mu) = 0;  // id of the listener being called; 0: none
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::thread::id thread_id ABSL_GUARDED_BY(mu);
  std::thread thread;
};

namespace {

// Shares ownership of the hub's state, so that a subscription may outlive the hub.
template <class Impl>
class Handle : public ChangeHub::Subscription {
 public:
  Handle(std::shared_ptr<Impl> impl, std::string key, std::uint64_t id)
      : impl_(std::move(impl)), key_(std::move(key)), id_(id) {}
  ~Handle() override { impl_->Unsubscribe(key_, id_); }

 private:
  std::shared_ptr<Impl> impl_;
  std::string key_;
  std::uint64_t id_;
};

}  // namespace

ChangeHub::ChangeHub(absl::Duration min_interval) : impl_(std::make_shared<Impl>(min_interval)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

ChangeHub::~ChangeHub() {
  {
    absl::MutexLock lock(&impl_->mu);
    impl_->stopping = true;
  }
  impl_->changed.Set();
  impl_->thread.join();
}

std::unique_ptr<ChangeHub::Subscription> ChangeHub::Subscribe(const std::string& key, Listener listener) {
  auto shared = std::make_shared<const Listener>(std::move(listener));
  absl::MutexLock lock(&impl_->mu);
  const std::uint64_t id = impl_->next_id++;
  impl_->keys[key].entries.push_back({id, std::move(shared)});
  return std::make_unique<Handle<Impl>>(impl_, key, id);
}

size_t ChangeHub::subscriptions() const {
  absl::MutexLock lock(&impl_->mu);
  size_t count = 0;
  for (const auto& [name, key] : impl_->keys) count += key.entries.size();
  return count;
}

void ChangeHub::Notify(const std::string& key) {
  {
    absl::MutexLock lock(&impl_->mu);
    const auto it = impl_->keys.find(key);
    if (it == impl_->keys.end() || it->second.pending) return;
    it->second.pending = true;
  }
  impl_->changed.Set();
}

}  // namespace permafrost
