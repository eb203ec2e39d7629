#include "jobs/caretaker.h"

namespace permafrost::jobs {

Caretaker::~Caretaker() {
  stop_.Set();
  if (thread_.joinable()) thread_.join();
}

void Caretaker::Start() {
  if (thread_.joinable()) return;
  thread_ = std::thread([this] {
    while (!stop_.WaitFor(every_)) work_();
  });
}

}  // namespace permafrost::jobs
