#include "jobs/command_log.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace permafrost::jobs {

using graphcache::Command;

CommandLog::CommandLog(const spec::PolicyOptions& spec, std::vector<Command> commands)
    : newest_(commands.empty() ? 0 : commands.back().sequence), commands_(std::move(commands)), options_(spec) {
  for (const Command& command : commands_) options_ = graphcache::Updated(options_, command.update);
}

CommandLog::State CommandLog::state() const {
  absl::MutexLock lock(&mu_);
  State state{options_, newest_.load(std::memory_order_relaxed), 0};
  // Steps rise, and the ones without come last.
  for (auto it = commands_.rbegin(); it != commands_.rend() && state.last_step == 0; ++it) {
    state.last_step = it->step.value_or(0);
  }
  return state;
}

std::vector<Command> CommandLog::Unstamped() const {
  absl::MutexLock lock(&mu_);
  auto first = commands_.end();
  while (first != commands_.begin() && !std::prev(first)->step) --first;
  return {first, commands_.end()};
}

bool CommandLog::Append(const Command& command, Done done) {
  absl::MutexLock lock(&mu_);
  commands_.push_back(command);
  options_ = graphcache::Updated(options_, command.update);
  // After the command is there: who sees the number finds it.
  newest_.store(command.sequence, std::memory_order_release);
  if (closed_) return false;
  if (done) waiting_.emplace_back(command.sequence, std::move(done));
  return true;
}

std::vector<Command> CommandLog::Due(int64_t after_sequence, int64_t step) const {
  absl::MutexLock lock(&mu_);
  std::vector<Command> due;
  for (auto it = std::ranges::upper_bound(commands_, after_sequence, {}, &Command::sequence); it != commands_.end();
       ++it) {
    if (it->step && *it->step > step) break;
    due.push_back(*it);
  }
  return due;
}

void CommandLog::Stamp(const std::vector<Command>& stamped) {
  absl::MutexLock lock(&mu_);
  for (const Command& command : stamped) {
    std::ranges::lower_bound(commands_, command.sequence, {}, &Command::sequence)->step = command.step;
  }
}

std::vector<CommandLog::Done> CommandLog::TakeWaiting(int64_t sequence) {
  absl::MutexLock lock(&mu_);
  const auto end = std::ranges::upper_bound(waiting_, sequence, {}, &std::pair<int64_t, Done>::first);
  std::vector<Done> taken;
  for (auto it = waiting_.begin(); it != end; ++it) taken.push_back(std::move(it->second));
  waiting_.erase(waiting_.begin(), end);
  return taken;
}

std::vector<CommandLog::Done> CommandLog::Close() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  return TakeWaiting(std::numeric_limits<int64_t>::max());
}

void CommandLog::Open() {
  absl::MutexLock lock(&mu_);
  closed_ = false;
}

}  // namespace permafrost::jobs
