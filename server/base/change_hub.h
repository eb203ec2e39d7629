// Change notices without a thread per listener. The hub's one thread calls the listeners of a key at most once per
// `min_interval`. All notices that arrive within the interval lead to one call. The interval is elapsed time: a wall
// clock that is set back delays nothing.
// Threads: all methods are safe anywhere. A listener must not block. It may subscribe, and it may drop subscriptions,
// even its own. Once a Subscription is destroyed, its listener does not run any more: on any thread but the hub's,
// the destructor waits for a running call.
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
