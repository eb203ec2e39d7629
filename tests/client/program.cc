#include "client/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <util.h>

// On Linux, unistd.h declares it.
extern char** environ;
#else
#include <pty.h>
#endif

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace permafrost::client {
namespace {

constexpr int kPatienceMilliseconds = 30000;

// The strings of an argv or envp, and the array of pointers to them.
class CStrings {
 public:
  explicit CStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& s : strings_) pointers_.push_back(s.data());
    pointers_.push_back(nullptr);
  }
  CStrings(const CStrings&) = delete;
  CStrings& operator=(const CStrings&) = delete;
  char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

std::vector<std::string> Arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"permafrost"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

// Returns the test's own environment plus `extra`, without the variables that change the program's output.
std::vector<std::string> Environment(std::map<std::string, std::string> extra) {
  extra.try_emplace("TZ", "UTC");
  extra.try_emplace("TERM", "xterm");
  extra.try_emplace("LC_ALL", "C");
  extra.try_emplace("XDG_CONFIG_HOME", "/nonexistent");
  std::vector<std::string> all;
  all.reserve(extra.size());
  for (const auto& [name, value] : extra) all.push_back(absl::StrCat(name, "=", value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (name != "PERMAFROST_SERVER" && name != "NO_COLOR" && !extra.contains(name)) all.push_back(text);
  }
  return all;
}

std::string ReadAll(std::FILE* file) {
  if (std::fseek(file, 0, SEEK_SET) != 0) std::abort();
  std::string text;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, n);
  std::fclose(file);
  return text;
}

int ExitCodeOf(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment) {
  CStrings argv(Arguments(arguments)), envp(Environment(environment));
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err), STDERR_FILENO);
  pid_t pid = -1;
  ProgramResult result;
  if (posix_spawn(&pid, PERMAFROST_PROGRAM, &actions, nullptr, argv.data(), envp.data()) == 0)
    result.exit_code = ExitCodeOf(pid);
  posix_spawn_file_actions_destroy(&actions);
  result.out = ReadAll(out);
  result.err = ReadAll(err);
  return result;
}

TerminalProgram::TerminalProgram(const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string> variables = environment;
  variables.try_emplace("NO_COLOR", "1");
  // Allocates everything before the fork, because gRPC's threads may hold malloc's lock.
  CStrings argv(Arguments(arguments)), envp(Environment(variables));
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 100;
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ == 0) {
    execve(PERMAFROST_PROGRAM, argv.data(), envp.data());
    _exit(127);
  }
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    ExitCodeOf(pid_);
  }
  if (fd_ >= 0) close(fd_);
}

bool TerminalProgram::ReadSome() {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, kPatienceMilliseconds) <= 0) return false;
  char buffer[4096];
  // The end of a pseudo-terminal is an error on Linux, and 0 elsewhere.
  const ssize_t n = read(fd_, buffer, sizeof buffer);
  if (n <= 0) return false;
  output_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool TerminalProgram::ReadUntil(const std::string& text) {
  while (!absl::StrContains(output_, text))
    if (!ReadSome()) return false;
  return true;
}

void TerminalProgram::Type(const std::string& keys) const {
  if (write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) std::abort();
}

int TerminalProgram::Wait() {
  while (ReadSome()) {
  }
  const int code = ExitCodeOf(pid_);
  pid_ = -1;
  return code;
}

}  // namespace permafrost::client
