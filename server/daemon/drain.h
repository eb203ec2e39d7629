// The one way in which the daemon ends: a signal or the Drain call asks, main waits and then stops the rooms in order.
// By the way main hears of SIGHUP here, too, which asks for a reload.
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

// Threads: all methods are safe anywhere.
class DrainSignal {
 public:
  // The hook that OnRequest returns. Borrows the DrainSignal.
  class Hook {
   public:
    explicit Hook(DrainSignal& drain) : drain_(drain) {}
    Hook(const Hook&) = delete;
    ~Hook();

   private:
    DrainSignal& drain_;
  };

  // `exit_timeout` after the first Request the process ends with `late_exit_code`, whatever it hangs in, unless it has
  // ended before. Zero or infinite: never.
  explicit DrainSignal(absl::Duration exit_timeout = absl::InfiniteDuration(), int late_exit_code = 1);

  // Sets the timeout of a Request to come.
  void SetExitTimeout(absl::Duration timeout);
  // Keeps the first reason. Never blocks, unless the hook does.
  void Request(std::string reason);
  bool requested() const;
  // `hook` is called once, by the first Request, before Wait returns and whatever Wait does meanwhile; at once where
  // that came before. It must not block, nor call anything here. It is dropped with what is returned, which waits for a
  // call of it to end.
  [[nodiscard]] std::unique_ptr<const Hook> OnRequest(std::function<void()> hook);
  // Asks for a reload of what can change while the daemon runs. Never blocks.
  void RequestReload();

  // Waits for the first Request; returns its reason. Meanwhile runs `reload` on this thread for each RequestReload, or
  // for several that came together.
  std::string Wait(const std::function<void()>& reload = {});
  // Until the process ends by itself; infinite: it does not, or nothing was requested yet.
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

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and in those it makes from now on, and ignores SIGPIPE.
// Before any other thread is made, or a signal would reach a thread that dies of it.
void BlockSignals();

// Takes the blocked signals on a thread of its own: SIGHUP requests a reload, the first other one a drain, the second
// ends the process at once with 128 + its number. Owns the thread; borrows the DrainSignal.
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

// Ends the daemon's work: stops imports, and waits for the job that runs (`running`, empty: none) to end, which
// JobManager::Drain has asked for. Errors: DeadlineExceeded, saying which of them goes on, where that takes longer than
// `timeout` (0: no limit). Both references are then still in use, so that the process cannot end in order: neither may
// be destroyed. Threads: one call.
absl::Status StopWork(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running);

// A reload changes these.
struct Reloaded {
  access::TokenStore& tokens;
  access::CertificateFiles* certificates;  // null: plain text
  DrainSignal& drain;
};

// Does what SIGHUP asks for: certificates, tokens and options are read again. Threads: the main one.
// `read` reads the options as at start. Options that can change while the daemon runs take effect; the log says of the
// others that they do at the next start. A part that cannot be read is told in a line, and stays as it was. `options`
// becomes what holds from here on.
void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options);

}  // namespace permafrost
