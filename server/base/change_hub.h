// Change notices without a thread per listener: listeners are called on the hub's one thread, at most once in
// `min_interval` for each key; notices in between make one call. The interval is elapsed time: a wall clock that is set
// back delays nothing.
// Threads: all methods are safe anywhere. A listener must not block; it may subscribe, and drop subscriptions, its own
// too. Once a Subscription is destroyed its listener does not run and will not run again: destruction on another thread
// waits for a call that is under way.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace permafrost {

class ChangeHub {
 public:
  using Listener = std::function<void()>;

  // Ends the subscription when destroyed.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };

  explicit ChangeHub(absl::Duration min_interval = absl::Milliseconds(100));
  ~ChangeHub();
  ChangeHub(const ChangeHub&) = delete;
  ChangeHub& operator=(const ChangeHub&) = delete;

  std::unique_ptr<Subscription> Subscribe(const std::string& key, Listener listener);
  // Counts the subscriptions that have not ended.
  size_t subscriptions() const;
  // Never blocks on listeners.
  void Notify(const std::string& key);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace permafrost
