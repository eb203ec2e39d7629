// The orderly end of the daemon is a drain. A signal or the Drain call requests it. Main waits for the request, and
// then stops the parts of the daemon in order. DrainSignal also tells main of SIGHUP, which requests a reload.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "access/tls.h"
#include "access/token_store.h"
#include "base/id.h"
#include "base/monotonic.h"
#include "daemon/options.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"

namespace permafrost {

// Threads: all methods are thread-safe.
class DrainSignal {
 public:
  // The handle that OnRequest returns. Borrows the DrainSignal.
  class Hook {
   public:
    explicit Hook(DrainSignal& drain) : drain_(drain) {}
    Hook(const Hook&) = delete;
    ~Hook();

   private:
    DrainSignal& drain_;
  };

  // If the process is still running `exit_timeout` after the first Request, it ends with `late_exit_code`, even if
  // some part hangs. Zero or infinite: no timeout.
  explicit DrainSignal(absl::Duration exit_timeout = absl::InfiniteDuration(), int late_exit_code = 1);

  // Sets the timeout for a later Request.
  void SetExitTimeout(absl::Duration timeout);
  // Requests a drain. Only the reason of the first call is kept. Never blocks, except while the hook runs.
  void Request(std::string reason);
  bool requested() const;
  // The first Request calls `hook` once, before Wait returns, even while Wait runs a reload. If a Request came
  // earlier, OnRequest calls the hook at once. The hook must not block and must not call this object. Destroying the
  // returned handle waits for a running call of the hook, and removes the hook.
  [[nodiscard]] std::unique_ptr<const Hook> OnRequest(std::function<void()> hook);
  // Requests a reload of what can change while the daemon runs. Never blocks.
  void RequestReload();

  // Waits for the first Request and returns its reason. Meanwhile, runs `reload` on this thread for each
  // RequestReload. Several requests to reload that come together share one run.
  std::string Wait(const std::function<void()>& reload = {});
  // Returns the time until the exit timeout. Infinite: there is no timeout, or no drain was requested yet.
  absl::Duration TimeLeft() const;

 private:
  void StartDeadline() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int late_exit_code_;
  mutable absl::Mutex mu_;
  absl::Duration exit_timeout_ ABSL_GUARDED_BY(mu_);
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
  bool reload_ ABSL_GUARDED_BY(mu_) = false;
  std::string reason_ ABSL_GUARDED_BY(mu_);
  std::function<void()> hook_ ABSL_GUARDED_BY(mu_);
  Stopwatch since_request_ ABSL_GUARDED_BY(mu_);
};

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and in threads that it creates later, and ignores SIGPIPE.
// Must be called before any other thread is created: a signal that some thread does not block would kill the process.
void BlockSignals();

// Receives the blocked signals on its own thread. SIGHUP requests a reload. The first SIGTERM or SIGINT requests a
// drain, and the second one ends the process at once with exit code 128 + its number. Owns the thread and borrows the
// DrainSignal.
class SignalWaiter {
 public:
  explicit SignalWaiter(DrainSignal& drain);
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

 private:
  void Run(DrainSignal& drain);

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Stops imports and waits until the running job ends. JobManager::Drain has already asked that job to stop. `running`
// names the job; empty: none. Errors: DeadlineExceeded, naming the import or job that still runs after `timeout` (0:
// no limit). After DeadlineExceeded, `catalog` and `jobs` are still in use: neither may be destroyed, so the process
// cannot end in order. Threads: call it once.
absl::Status StopWork(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running);

// The objects that a reload changes.
struct Reloaded {
  access::TokenStore& tokens;
  access::CertificateFiles* certificates;  // null: the daemon uses plain text
  DrainSignal& drain;
};

// Handles SIGHUP: reads certificates, tokens and options again. `read` reads the options from the places from which
// they were read at the start. Options that can change while the daemon runs take effect. The log lists changed
// options that wait for the next start. If the certificates, the tokens or the options cannot be read, they stay as
// they were, and the log reports it. On return, `options` holds the values in effect. Threads: the main thread.
void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options);

}  // namespace permafrost
