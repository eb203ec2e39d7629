#include "jobs/job_state.h"

#include <utility>

namespace permafrost::jobs {
namespace {

// The states that every run may lead to, whatever it was at.
bool CanLeaveDevice(JobState to) {
  return to == JobState::kCancelling || to == JobState::kSucceeded || to == JobState::kFailed ||
         to == JobState::kQueued || to == JobState::kPaused;
}

}  // namespace

bool CanMove(JobState from, JobState to) {
  switch (from) {
    case JobState::kQueued:
      return to == JobState::kPreparing || to == JobState::kRecovering || to == JobState::kPaused ||
             to == JobState::kCancelled || to == JobState::kFailed;
    case JobState::kPreparing:
      return to == JobState::kWarmingUp || to == JobState::kRunning || CanLeaveDevice(to);
    case JobState::kWarmingUp:
    case JobState::kRecovering:
      return to == JobState::kRunning || CanLeaveDevice(to);
    case JobState::kRunning:
      return CanLeaveDevice(to);
    case JobState::kCancelling:
      return to == JobState::kCancelled || to == JobState::kSucceeded || to == JobState::kFailed;
    case JobState::kPaused:
      return to == JobState::kQueued || to == JobState::kCancelled || to == JobState::kFailed;
    case JobState::kFailed:
    case JobState::kCancelled:
      return to == JobState::kQueued;
    case JobState::kSucceeded:
      return false;
  }
  return false;
}

void StateHistory::Add(StateChange change) {
  changes.push_back(std::move(change));
  if (changes.size() <= kMax) return;
  changes.erase(changes.begin());
  ++dropped;
}

}  // namespace permafrost::jobs
