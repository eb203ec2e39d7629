// Tells a service manager (systemd's Type=notify) the state of the daemon: starting and needing more time, serving,
// reloading, alive, stopping. Without NOTIFY_SOCKET in the environment it does nothing.
//
// The protocol is one datagram of lines. The manual page sd_notify(3) promises that the protocol stays stable, and
// shows how to use it without libsystemd. That library is absent from macOS and small containers, and would add five
// more libraries.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost {

struct ServiceEnvironment {
  std::string socket;  // a path, or "@" and an abstract name; empty: there is no manager
  // The interval within which the manager expects a sign of life. Zero: it expects none.
  absl::Duration watchdog = absl::ZeroDuration();

  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID through `get_env`, which returns null for an unset variable.
  static ServiceEnvironment Read(const std::function<const char*(const char*)>& get_env);
};

// Threads: all methods are thread-safe; a thread of the notifier sends the recurring messages. If the manager does
// not read, a call blocks for at most a second and its datagram is lost.
class ServiceNotifier {
 public:
  // From now until Ready, tells the manager every few seconds that the daemon is still starting, for at most an hour.
  // Recovery may take longer than the manager's usual timeout, but must not take for ever.
  explicit ServiceNotifier(ServiceEnvironment environment);
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // Sends one line about the daemon's current work, which `systemctl status` shows.
  void Status(std::string_view line);
  // Reports that the daemon serves. From now on, also reports twice in each watchdog interval that the daemon is
  // alive. While `healthy` returns false, these reports stop, so that the manager restarts the daemon. `healthy` is
  // called on the notifier's thread.
  void Ready(std::string_view status, std::function<bool()> healthy);
  // Call these before and after a reload of what can change while the daemon serves.
  void Reloading();
  void Reloaded();
  // Reports that the daemon drains. Until the daemon ends, the notifier reports it as alive, because the drain has
  // its own time limit.
  void Stopping(std::string_view status);

 private:
  enum class Phase { kStarting, kServing, kStopping, kEnded };

  void Run();
  void Enter(Phase phase, const std::string& lines);
  void Send(const std::string& lines) const;

  const ServiceEnvironment environment_;
  const int socket_;  // -1: there is no manager, and no thread
  absl::Mutex mu_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kStarting;
  std::function<bool()> healthy_ ABSL_GUARDED_BY(mu_);
  Event changed_;  // the phase has changed
  std::thread thread_;
};

}  // namespace permafrost
