// A child process of a test. It is killed at the end if it still runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace permafrost::e2e {

class Process {
 public:
  // Starts `argv`. ReadLine reads its stdout. Its stderr is appended to `stderr_path`, or shared with the test if
  // that is empty.
  Process(const std::vector<std::string>& argv, const std::string& stderr_path);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Returns the next line of stdout without its newline. Empty at the end of stdout, or after `limit`.
  std::string ReadLine(absl::Duration limit);
  void Signal(int signal) const;
  // Sends SIGSTOP and waits until every thread has stopped, so that no write to a file is still under way. SIGCONT
  // resumes the process.
  void Suspend() const;
  // Returns the exit code, or 128 + N after signal N, or -1 if the process still runs after `limit`.
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
// Runs a command to its end. A command that outlives `limit` is killed, and its code is -1.
Output RunCommand(const std::vector<std::string>& argv, absl::Duration limit = absl::Seconds(120));

// Polls until `condition` holds. Returns false if `limit` passes first.
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
