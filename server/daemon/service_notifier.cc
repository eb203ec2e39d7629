#include "daemon/service_notifier.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

constexpr absl::Duration kExtendEvery = absl::Seconds(10);
constexpr absl::Duration kExtension = absl::Seconds(30);
constexpr absl::Duration kLongestStart = absl::Hours(1);

void WarnOfSocket(const std::string& name, const char* why) {
  telemetry::Log(
      telemetry::Severity::kWarning,
      absl::StrCat("NOTIFY_SOCKET ", name, ": ", why, "; the service manager is not told how the daemon stands"));
}

// Returns a socket connected to the manager, or -1.
int OpenNotifySocket(const std::string& name) {
  if (name.empty()) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof(address.sun_path)) {
    WarnOfSocket(name, "accepted: a path or an abstract name (@NAME)");
    return -1;
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const timeval second{.tv_sec = 1, .tv_usec = 0};
  if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second)) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    WarnOfSocket(name, std::strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
  }
  return fd;
}

// Returns the line of the datagram for a status.
std::string StatusLine(std::string_view text) {
  std::string line = absl::StrCat("STATUS=", AbslView(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::string ExtensionLine() { return absl::StrCat("EXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(kExtension)); }

}  // namespace

ServiceEnvironment ServiceEnvironment::Read(const std::function<const char*(const char*)>& get_env) {
  ServiceEnvironment environment;
  if (const char* name = get_env("NOTIFY_SOCKET")) environment.socket = name;
  int64_t microseconds = 0, pid = getpid();
  const char* interval = get_env("WATCHDOG_USEC");
  // If WATCHDOG_PID is another process's id, the interval is meant for that process.
  if (const char* owner = get_env("WATCHDOG_PID"); owner != nullptr && !absl::SimpleAtoi(owner, &pid)) pid = 0;
  if (interval != nullptr && absl::SimpleAtoi(interval, &microseconds) && microseconds > 0 && pid == getpid()) {
    environment.watchdog = absl::Microseconds(microseconds);
  }
  return environment;
}

ServiceNotifier::ServiceNotifier(ServiceEnvironment environment)
    : environment_(std::move(environment)), socket_(OpenNotifySocket(environment_.socket)) {
  if (socket_ < 0) return;
  Send(ExtensionLine());
  thread_ = std::thread([this] { Run(); });
}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ < 0) return;
  Enter(Phase::kEnded, "");
  thread_.join();
  close(socket_);
}

void ServiceNotifier::Status(std::string_view line) { Send(StatusLine(line)); }

void ServiceNotifier::Ready(std::string_view status, std::function<bool()> healthy) {
  {
    const absl::MutexLock lock(&mu_);
    healthy_ = std::move(healthy);
  }
  Enter(Phase::kServing, absl::StrCat("READY=1\n", StatusLine(status)));
}

void ServiceNotifier::Reloading() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", absl::ToInt64Microseconds(absl::DurationFromTimespec(now))));
}

void ServiceNotifier::Reloaded() { Send("READY=1"); }

void ServiceNotifier::Stopping(std::string_view status) {
  Enter(Phase::kStopping, absl::StrCat("STOPPING=1\n", StatusLine(status)));
}

void ServiceNotifier::Enter(Phase phase, const std::string& lines) {
  {
    const absl::MutexLock lock(&mu_);
    phase_ = phase;
  }
  if (!lines.empty()) Send(lines);
  changed_.Set();
}

void ServiceNotifier::Run() {
  const Stopwatch started;
  while (true) {
    changed_.Reset();
    Phase phase;
    std::function<bool()> healthy;
    {
      const absl::MutexLock lock(&mu_);
      phase = phase_;
      healthy = healthy_;
    }
    if (phase == Phase::kEnded) return;
    absl::Duration pause = absl::InfiniteDuration();
    if (phase == Phase::kStarting) {
      if (started.Elapsed() < kLongestStart) pause = kExtendEvery;
      if (!changed_.WaitFor(pause)) Send(ExtensionLine());
      continue;
    }
    if (environment_.watchdog > absl::ZeroDuration()) {
      if (phase == Phase::kStopping || !healthy || healthy()) Send("WATCHDOG=1");
      pause = environment_.watchdog / 2;
    }
    changed_.WaitFor(pause);
  }
}

void ServiceNotifier::Send(const std::string& lines) const {
  // If the manager has gone or does not read, the datagram is lost. The manager decides how to treat a silent
  // service.
  if (socket_ >= 0) send(socket_, lines.data(), lines.size(), 0);
}

}  // namespace permafrost
