#include "daemon/drain.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

namespace permafrost {
namespace {

sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void DrainSignal::Request(std::string reason) {
  absl::MutexLock lock(&mu_);
  if (requested_) return;
  requested_ = true;
  reason_ = std::move(reason);
}

std::string DrainSignal::Wait() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&requested_));
  return reason_;
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
    // Whatever hangs must not hang this too, so nothing of the process is run.
    if (asked) _exit(128 + signal_number);
    asked = true;
    drain.Request(signal_number == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

}  // namespace permafrost
