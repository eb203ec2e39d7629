// A child process of a test: killed at the end if it still runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace permafrost::e2e {

class Process {
 public:
  // Starts `argv` with stdout readable through ReadLine and stderr in `stderr_path` (empty: the test's own).
  Process(const std::vector<std::string>& argv, const std::string& stderr_path);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of stdout without its end; empty at its end or when `limit` has passed.
  std::string ReadLine(absl::Duration limit);
  void Signal(int signal) const;
  // SIGSTOP, until every thread stands still: what it did to files it has done. SIGCONT lets it go on.
  void Suspend() const;
  // The exit code, or 128 + signal; -1 when it still runs after `limit`.
  int Wait(absl::Duration limit);

 private:
  pid_t pid_ = -1;
  int stdout_ = -1;
  bool reaped_ = false;
  std::string buffer_;
};

struct Output {
  int code = 0;
  std::string out, err;
};
// Runs a command to its end. A command that outlives `limit` is killed and has code -1.
Output RunCommand(const std::vector<std::string>& argv, absl::Duration limit = absl::Seconds(120));

// Polls until `condition` holds; false when `limit` passes first.
template <class Condition>
bool WaitUntil(absl::Duration limit, Condition condition) {
  const absl::Time end = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

}  // namespace permafrost::e2e
