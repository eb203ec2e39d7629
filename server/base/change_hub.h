// Change notices without a thread per listener: listeners are called on the hub's one thread, at most every
// `min_interval` a key, with notices in between coalesced into one call. The interval is one of elapsed time: setting
// the clock holds nothing up. Threads: all methods are safe anywhere. A listener must not block; it may Subscribe or
// drop subscriptions (its own too). Once a Subscription is destroyed its listener does not run and will not run again
// (destruction from another thread waits for a running call).
#pragma once

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
  // Never blocks on listeners.
  void Notify(const std::string& key);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace permafrost
