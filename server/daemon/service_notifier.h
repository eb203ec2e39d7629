// Tells a service manager (systemd's Type=notify) how the daemon stands: that it starts and needs longer, serves,
// reloads, lives, stops. Without NOTIFY_SOCKET in the environment it does nothing.
//
// The protocol is one datagram of lines, which sd_notify(3) promises to keep and shows how to speak without libsystemd:
// that library is not on macOS, not in small containers, and brings five more for these lines.
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
  std::string socket;  // a path, or "@" and an abstract name; empty: nobody listens
  // The interval at which the manager wants to hear that the daemon lives; zero: it does not.
  absl::Duration watchdog = absl::ZeroDuration();

  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID by `get_env` (nullptr: not set).
  static ServiceEnvironment Read(const std::function<const char*(const char*)>& get_env);
};

// Threads: a thread of its own sends what comes again and again; all methods are safe anywhere. A manager that does not
// read holds them up for a second at most, and loses the datagram.
class ServiceNotifier {
 public:
  // From now until Ready the manager hears every few seconds that starting goes on, for an hour at most: recovery may
  // take longer than it would wait otherwise, but not for ever.
  explicit ServiceNotifier(ServiceEnvironment environment);
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // One line of what the daemon is doing, as `systemctl status` shows it.
  void Status(std::string_view line);
  // It serves. From now on the manager hears twice in each watchdog interval that the daemon lives, unless `healthy`,
  // asked on the notifier's thread, says false: then it is left to restart the daemon.
  void Ready(std::string_view status, std::function<bool()> healthy);
  // Around a reload of what can change while the daemon serves.
  void Reloading();
  void Reloaded();
  // Tells that the daemon drains. The drain has a time limit of its own, so the daemon counts as alive until it ends.
  void Stopping(std::string_view status);

 private:
  enum class Phase { kStarting, kServing, kStopping, kEnded };

  void Run();
  void Enter(Phase phase, const std::string& lines);
  void Send(const std::string& lines) const;

  const ServiceEnvironment environment_;
  const int socket_;  // -1: nobody listens, and there is no thread
  absl::Mutex mu_;
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kStarting;
  std::function<bool()> healthy_ ABSL_GUARDED_BY(mu_);
  Event changed_;  // the phase
  std::thread thread_;
};

}  // namespace permafrost
