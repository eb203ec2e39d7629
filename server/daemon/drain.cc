#include "daemon/drain.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

bool IsLimited(absl::Duration timeout) { return timeout > absl::ZeroDuration() && timeout < absl::InfiniteDuration(); }

// Must not hang when another part of the process hangs. It therefore runs no other code of the process, and does not
// write to standard error if that is a full pipe.
[[noreturn]] void ExitLate(int code) {
  constexpr char kLine[] = "permafrostd: did not end within --exit-timeout\n";
  pollfd standard_error{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&standard_error, 1, 0) == 1 && (standard_error.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  }
  _exit(code);
}

void TellReload(const std::string& line) { telemetry::Log(telemetry::Severity::kInfo, absl::StrCat("reload: ", line)); }

void ReloadOptions(const std::function<ParsedOptions()>& read, DrainSignal& drain, Options& options) {
  const ParsedOptions parsed = read();
  if (!parsed.options) {
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("reload: options stay as they were: ",
                                absl::StripPrefix(absl::string_view(parsed.text), "permafrostd: ")));
    return;
  }
  for (const OptionChange& change : ChangesBetween(options, *parsed.options)) {
    TellReload(absl::StrCat(change.name, " ", change.from, " -> ", change.to,
                            change.reloads ? "" : ": takes effect at the next start"));
  }
  options.exit_timeout = parsed.options->exit_timeout;
  drain.SetExitTimeout(options.exit_timeout);
}

}  // namespace

DrainSignal::DrainSignal(absl::Duration exit_timeout, int late_exit_code)
    : late_exit_code_(late_exit_code), exit_timeout_(exit_timeout) {}

void DrainSignal::SetExitTimeout(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  exit_timeout_ = timeout;
}

void DrainSignal::Request(std::string reason) {
  absl::MutexLock lock(&mu_);
  if (requested_) return;
  requested_ = true;
  reason_ = std::move(reason);
  since_request_.Restart();
  StartDeadline();
  // The hook is called under the lock, so that Wait does not return before the hook has run.
  if (hook_) hook_();
}

bool DrainSignal::requested() const {
  absl::MutexLock lock(&mu_);
  return requested_;
}

std::unique_ptr<const DrainSignal::Hook> DrainSignal::OnRequest(std::function<void()> hook) {
  absl::MutexLock lock(&mu_);
  if (requested_) {
    hook();
  } else {
    hook_ = std::move(hook);
  }
  return std::make_unique<const Hook>(*this);
}

DrainSignal::Hook::~Hook() {
  absl::MutexLock lock(&drain_.mu_);
  drain_.hook_ = nullptr;
}

void DrainSignal::RequestReload() {
  absl::MutexLock lock(&mu_);
  reload_ = true;
}

void DrainSignal::StartDeadline() {
  if (!IsLimited(exit_timeout_)) return;
  try {
    // The thread is detached, because it must be able to end the process even during the last destructors.
    std::thread([timeout = exit_timeout_, code = late_exit_code_] {
      const Event never;
      never.WaitFor(timeout);
      ExitLate(code);
    }).detach();
  } catch (const std::system_error&) {
    // The system provided no thread. TimeLeft still limits the work. Nothing is logged, because a log that nobody
    // reads may block.
  }
}

std::string DrainSignal::Wait(const std::function<void()>& reload) {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto asked = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return requested_ || reload_; };
      mu_.Await(absl::Condition(&asked));
      if (requested_) return reason_;
      reload_ = false;
    }
    if (reload) reload();
  }
}

absl::Duration DrainSignal::TimeLeft() const {
  absl::MutexLock lock(&mu_);
  if (!requested_ || !IsLimited(exit_timeout_)) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), exit_timeout_ - since_request_.Elapsed());
}

void BlockSignals() {
  const sigset_t set = WaitedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalWaiter::SignalWaiter(DrainSignal& drain) : thread_([this, &drain] { Run(drain); }) {}

SignalWaiter::~SignalWaiter() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWaiter::Run(DrainSignal& drain) {
  const sigset_t set = WaitedSignals();
  bool asked = false;
  while (true) {
    int signal_number = 0;
    sigwait(&set, &signal_number);
    if (stopping_) return;
    if (signal_number == SIGHUP) {
      drain.RequestReload();
      continue;
    }
    // _exit runs no other code of the process, because such code may hang.
    if (asked) _exit(128 + signal_number);
    asked = true;
    drain.Request(signal_number == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

absl::Status StopWork(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running) {
  struct Progress {
    Event imports_stopped, jobs_ended;
  };
  // `progress` is shared, because the thread may outlive this call.
  auto progress = std::make_shared<Progress>();
  std::thread([&catalog, &jobs, progress] {
    catalog.StopImports();
    progress->imports_stopped.Set();
    jobs.Join();
    progress->jobs_ended.Set();
  }).detach();
  if (progress->jobs_ended.WaitFor(timeout == absl::ZeroDuration() ? absl::InfiniteDuration() : timeout)) {
    return absl::OkStatus();
  }
  const std::string limit = absl::StrCat(" within ", absl::FormatDuration(timeout), " (--exit-timeout)");
  if (!progress->imports_stopped.is_set()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the running import did not stop", limit, "; it begins anew at the next start"));
  }
  return absl::DeadlineExceededError(absl::StrCat("job ", running.value(), " reached no step boundary", limit,
                                                  "; it resumes from its last checkpoint at the next start"));
}

void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options) {
  if (const absl::Status tokens = what.tokens.Reload(); tokens.ok()) {
    TellReload(absl::StrCat(what.tokens.List().size(), " tokens"));
  } else {
    telemetry::Log(telemetry::Severity::kError, absl::StrCat("reload: tokens stay as they were: ", tokens.message()));
  }
  if (what.certificates != nullptr) {
    // Current logs files that cannot be read.
    const auto current = what.certificates->Current();
    TellReload(absl::StrCat("certificate of ", current->subject, ", valid until ",
                            absl::FormatTime("%Y-%m-%d", current->not_after, absl::UTCTimeZone())));
  }
  ReloadOptions(read, what.drain, options);
}

}  // namespace permafrost
