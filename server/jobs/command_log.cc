#include "jobs/command_log.h"

#include <algorithm>
#include <limits>

namespace permafrost::jobs {

using graphcache::Command;

CommandLog::CommandLog(std::vector<Command> commands)
    : newest_(commands.empty() ? 0 : commands.back().sequence), commands_(std::move(commands)) {}

std::vector<Command> CommandLog::commands() const {
  absl::MutexLock lock(&mu_);
  return commands_;
}

bool CommandLog::Append(const Command& command, Done done) {
  absl::MutexLock lock(&mu_);
  commands_.push_back(command);
  if (closed_) return false;
  waiting_.emplace_back(command.sequence, std::move(done));
  // After the command is there: who sees the number finds it.
  newest_.store(command.sequence, std::memory_order_release);
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

graphcache::PolicyOptions OptionsAfter(const graphcache::PolicyOptions& spec, const std::vector<Command>& commands) {
  graphcache::PolicyOptions options = spec;
  for (const Command& command : commands) options = graphcache::Updated(options, command.update);
  return options;
}

}  // namespace permafrost::jobs
