#include "base/work_pool.h"

#include <utility>

namespace permafrost {

WorkPool::WorkPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkPool::~WorkPool() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkPool::Post(std::function<void()> work) {
  absl::MutexLock lock(&mu_);
  if (work_.size() >= most_waiting_) return false;
  work_.push_back(std::move(work));
  return true;
}

void WorkPool::Run() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return ending_ || !work_.empty(); };
      mu_.Await(absl::Condition(&due));
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace permafrost
