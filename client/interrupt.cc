#include "client/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "client/exit_code.h"

namespace permafrost::client {
namespace {

// SIGUSR1 only wakes the waiting thread when the program ends by itself.
sigset_t Awaited() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = Awaited();
  // An ignored signal would never wake sigwait; SIGINT stays ignored where the parent (nohup) wished so.
  signal(SIGUSR1, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

Interrupt::~Interrupt() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

bool Interrupt::requested() const { return requested_.is_set(); }

bool Interrupt::WaitFor(absl::Duration duration) const { return requested_.WaitFor(duration); }

void Interrupt::Wait() {
  const sigset_t set = Awaited();
  while (true) {
    int signal_number = 0;
    sigwait(&set, &signal_number);
    if (signal_number == SIGINT) OnSignal();
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
  }
}

void Interrupt::OnSignal() {
  absl::MutexLock lock(&mu_);
  if (requested_.is_set() || scopes_.empty()) _exit(static_cast<int>(ExitCode::kInterrupted));
  requested_.Set();
  for (grpc::ClientContext* context : scopes_)
    if (context != nullptr) context->TryCancel();
}

Interrupt::Scope::Scope(Interrupt& interrupt, grpc::ClientContext* context) : interrupt_(interrupt), context_(context) {
  absl::MutexLock lock(&interrupt_.mu_);
  interrupt_.scopes_.push_back(context_);
  if (interrupt_.requested_.is_set() && context_ != nullptr) context_->TryCancel();
}

Interrupt::Scope::~Scope() {
  absl::MutexLock lock(&interrupt_.mu_);
  interrupt_.scopes_.erase(std::find(interrupt_.scopes_.begin(), interrupt_.scopes_.end(), context_));
}

}  // namespace permafrost::client
