// Tells listeners that the object of a key has changed, without a thread for each listener. The hub's single thread
// calls the listeners of a key at most once per `min_interval`. Several notices of a key within one interval lead to
// one call. The interval is measured as elapsed time, so a wall clock that is set back delays no call.
// Threads: all methods are safe anywhere. A listener must not block. It may subscribe, and it may drop subscriptions,
// even its own. Once a Subscription is destroyed, its listener does not run any more. If the listener runs at that
// moment, the destructor waits for its end, except on the hub's own thread.
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
  // Returns the number of subscriptions that have not ended.
  size_t subscriptions() const;
  // Makes the hub call the listeners of `key` soon. Never waits for a listener.
  void Notify(const std::string& key);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace permafrost
