#include "e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

// Runs in the child: only async-signal-safe calls until exec.
[[noreturn]] void Exec(const std::vector<char*>& argv, int out, const std::string& stderr_path) {
  dup2(out, STDOUT_FILENO);
  if (!stderr_path.empty()) {
    const int err = open(stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (err >= 0) dup2(err, STDERR_FILENO);
  }
  execv(argv[0], argv.data());
  _exit(127);
}

std::string Slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Process::Process(const std::vector<std::string>& argv, const std::string& stderr_path) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) Exec(arguments, pipe_ends[1], stderr_path);
  close(pipe_ends[1]);
  stdout_ = pipe_ends[0];
}

Process::~Process() {
  if (!reaped_) {
    Signal(SIGKILL);
    Wait(absl::Seconds(30));
  }
  close(stdout_);
}

std::string Process::ReadLine(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  while (true) {
    if (const size_t at = buffer_.find('\n'); at != std::string::npos) {
      std::string line = buffer_.substr(0, at);
      buffer_.erase(0, at + 1);
      return line;
    }
    pollfd ready{.fd = stdout_, .events = POLLIN, .revents = 0};
    const auto left = absl::ToInt64Milliseconds(end - absl::Now());
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return "";
    char piece[4096];
    const ssize_t got = read(stdout_, piece, sizeof(piece));
    if (got <= 0) return "";
    buffer_.append(piece, static_cast<size_t>(got));
  }
}

void Process::Suspend() const {
  Signal(SIGSTOP);
  siginfo_t stopped{};
  waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

void Process::Signal(int signal) const { kill(pid_, signal); }

int Process::Wait(absl::Duration limit) {
  int status = 0;
  if (!WaitUntil(limit, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Output RunCommand(const std::vector<std::string>& argv, absl::Duration limit) {
  const TempDir dir;
  // Runs the command through a shell that redirects its output to files, so that a full pipe cannot stall it.
  const std::string out = dir.path() / "out", err = dir.path() / "err";
  std::vector<std::string> shell = {"/bin/sh", "-c", "out=$1 err=$2; shift 2; exec \"$@\" >\"$out\" 2>\"$err\"",
                                    "sh",      out,  err};
  shell.insert(shell.end(), argv.begin(), argv.end());
  Process process(shell, "");
  Output output;
  output.code = process.Wait(limit);
  output.out = Slurp(out);
  output.err = Slurp(err);
  return output;
}

}  // namespace permafrost::e2e
