// Makes system calls fail, or kills the process at them. Loaded into permafrostd by LD_PRELOAD.
// PERMAFROST_FAULTS holds rules, separated by ';'. Each is FUNCTION:PATH_PART:NTH:ACTION[:TIMES].
//   FUNCTION   One of the functions below. For a call on a descriptor, the path is that of its file. For `allocate`,
//   PATH_PART is the least number of bytes. `clock` sets the wall clock back by an hour while PERMAFROST_STALL_FILE
//   exists.
//   NTH        The number of the first call that the rule hits, from 1. It counts calls of FUNCTION whose path
//   contains PATH_PART, or all calls if PATH_PART is empty.
//   ACTION     NUMBER: the call fails with this errno.
//              while-NUMBER: the same, while PERMAFROST_STALL_FILE exists.
//              kill: SIGKILL before the call. kill-after: SIGKILL after it.
//              short: a write takes half of its bytes.
//              stall: the call waits while PERMAFROST_STALL_FILE exists.
//   TIMES      The number of calls that the rule hits, or 0 for all from the NTH on. The default is 1.
// PERMAFROST_FAULTS_LOG names a file that gets a line for each call that a rule hits.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr int kMostRules = 16;
enum class Action { kErrno, kKill, kKillAfter, kShort, kStall };

struct Rule {
  char function[24] = {};
  char part[128] = {};
  long nth = 1, times = 1;
  Action action = Action::kErrno;
  int error = 0;
  bool only_while = false;
  std::atomic<long> seen{0};
};

Rule rules[kMostRules];
int rule_count = 0;
const char* log_path = nullptr;
const char* stall_path = nullptr;
thread_local bool inside = false;

template <class F>
F Real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

void Fatal(const char* text) {
  static_cast<void>(Real<ssize_t (*)(int, const void*, size_t)>("write")(2, text, strlen(text)));
  _exit(99);
}

__attribute__((constructor)) void ReadRules() {
  log_path = std::getenv("PERMAFROST_FAULTS_LOG");
  stall_path = std::getenv("PERMAFROST_STALL_FILE");
  const char* at = std::getenv("PERMAFROST_FAULTS");
  while (at != nullptr && *at != '\0') {
    if (rule_count == kMostRules) Fatal("PERMAFROST_FAULTS: too many rules\n");
    Rule& rule = rules[rule_count++];
    char action[16] = {};
    char line[256] = {};
    const char* end = std::strchr(at, ';');
    const size_t size = end == nullptr ? std::strlen(at) : static_cast<size_t>(end - at);
    if (size >= sizeof(line)) Fatal("PERMAFROST_FAULTS: a rule is too long\n");
    std::memcpy(line, at, size);  // NOLINT(bugprone-not-null-terminated-result): the rest is zero
    at = end == nullptr ? nullptr : end + 1;
    // %[^:] does not match an empty PATH_PART.
    int fields =
        std::sscanf(line, "%23[^:]:%127[^:]:%ld:%15[^:]:%ld", rule.function, rule.part, &rule.nth, action, &rule.times);
    if (fields == 1) {
      rule.part[0] = '\0';
      fields = 1 + std::sscanf(line + std::strlen(rule.function), "::%ld:%15[^:]:%ld", &rule.nth, action, &rule.times);
    }
    if (fields < 3) Fatal("PERMAFROST_FAULTS: not FUNCTION:PATH_PART:NTH:ACTION[:TIMES]\n");
    if (std::strcmp(action, "kill") == 0) {
      rule.action = Action::kKill;
    } else if (std::strcmp(action, "kill-after") == 0) {
      rule.action = Action::kKillAfter;
    } else if (std::strcmp(action, "short") == 0) {
      rule.action = Action::kShort;
    } else if (std::strcmp(action, "stall") == 0) {
      rule.action = Action::kStall;
    } else {
      constexpr char kWhile[] = "while-";
      rule.only_while = std::strncmp(action, kWhile, sizeof(kWhile) - 1) == 0;
      rule.error = std::atoi(rule.only_while ? action + sizeof(kWhile) - 1 : action);
      if (rule.error <= 0) Fatal("PERMAFROST_FAULTS: no such action\n");
    }
  }
}

void Tell(const char* function, const char* path, long nth) {
  if (log_path == nullptr) return;
  char line[PATH_MAX + 64];
  const int size = std::snprintf(line, sizeof(line), "%s %ld %s\n", function, nth, path);
  const int fd =
      Real<int (*)(const char*, int, ...)>("open")(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  static_cast<void>(Real<ssize_t (*)(int, const void*, size_t)>("write")(fd, line, static_cast<size_t>(size)));
  close(fd);
}

void Kill() {
  kill(getpid(), SIGKILL);
  pause();
}

// Returns the rule that this call hits, or null. Has already done what the rule does before a call.
const Rule* Met(const char* function, const char* path) {
  const Rule* met = nullptr;
  for (int i = 0; i < rule_count; ++i) {
    Rule& rule = rules[i];
    if (std::strcmp(rule.function, function) != 0 || std::strstr(path, rule.part) == nullptr) continue;
    if (rule.only_while && (stall_path == nullptr || access(stall_path, F_OK) != 0)) continue;
    const long nth = ++rule.seen;
    if (nth < rule.nth || (rule.times != 0 && nth >= rule.nth + rule.times)) continue;
    Tell(function, path, nth);
    met = &rule;
  }
  if (met == nullptr) return nullptr;
  if (met->action == Action::kKill) Kill();
  while (met->action == Action::kStall && stall_path != nullptr && access(stall_path, F_OK) == 0) usleep(20'000);
  return met;
}

struct FilePath {
  explicit FilePath(int fd) {
    char link[64];
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, text, sizeof(text) - 1);
    text[size < 0 ? 0 : size] = '\0';
  }
  char text[PATH_MAX];
};

// Calls `real`. If a rule makes the call fail, returns `failed` instead.
template <class R, class F>
R Call(const char* function, const char* path, R failed, F real) {
  if (inside || rule_count == 0) return real();
  inside = true;
  const int before = errno;
  const Rule* rule = Met(function, path);
  errno = before;
  inside = false;
  if (rule != nullptr && rule->action == Action::kErrno) {
    errno = rule->error;
    return failed;
  }
  const R result = real();
  if (rule != nullptr && rule->action == Action::kKillAfter) Kill();
  return result;
}

template <class F>
ssize_t Write(const char* function, int fd, size_t size, F real) {
  if (inside || rule_count == 0) return real(size);
  inside = true;
  const int before = errno;
  const Rule* rule = Met(function, FilePath(fd).text);
  errno = before;
  inside = false;
  if (rule != nullptr && rule->action == Action::kErrno) {
    errno = rule->error;
    return -1;
  }
  const bool cut = rule != nullptr && rule->action == Action::kShort && size > 1;
  const ssize_t result = real(cut ? size / 2 : size);
  if (rule != nullptr && rule->action == Action::kKillAfter) Kill();
  return result;
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// The system names their parameters otherwise.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  return Write("write", fd, size, [&](size_t n) { return real(fd, data, n); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  return Write("write", fd, size, [&](size_t n) { return real(fd, data, n, offset); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

int fsync(int fd) {
  static const auto real = Real<int (*)(int)>("fsync");
  return Call("fsync", FilePath(fd).text, -1, [&] { return real(fd); });
}
int fdatasync(int fd) {
  static const auto real = Real<int (*)(int)>("fdatasync");
  return Call("fsync", FilePath(fd).text, -1, [&] { return real(fd); });
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  return Call("rename", to, -1, [&] { return real(from, to); });
}
int link(const char* from, const char* to) noexcept {
  static const auto real = Real<int (*)(const char*, const char*)>("link");
  return Call("link", to, -1, [&] { return real(from, to); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = Real<int (*)(const char*, mode_t)>("mkdir");
  return Call("mkdir", path, -1, [&] { return real(path, mode); });
}
int unlink(const char* path) noexcept {
  static const auto real = Real<int (*)(const char*)>("unlink");
  return Call("unlink", path, -1, [&] { return real(path); });
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  static const auto real = Real<int (*)(int, const char*, int)>("unlinkat");
  const FilePath folder(directory);
  return Call("unlink", directory == AT_FDCWD ? path : folder.text, -1, [&] { return real(directory, path, flags); });
}
int ftruncate64(int fd, off64_t size) noexcept {
  static const auto real = Real<int (*)(int, off64_t)>("ftruncate64");
  return Call("ftruncate", FilePath(fd).text, -1, [&] { return real(fd, size); });
}
int ftruncate(int fd, off_t size) noexcept { return ftruncate64(fd, size); }

void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
  static const auto real = Real<void* (*)(void*, size_t, int, int, int, off64_t)>("mmap64");
  if (fd < 0) return real(at, size, protection, flags, fd, offset);
  return Call("mmap", FilePath(fd).text, MAP_FAILED, [&] { return real(at, size, protection, flags, fd, offset); });
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  return mmap64(at, size, protection, flags, fd, offset);
}

int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  static const auto real = Real<int (*)(void**, size_t, size_t)>("posix_memalign");
  if (inside || rule_count == 0) return real(out, alignment, size);
  for (int i = 0; i < rule_count; ++i) {
    Rule& rule = rules[i];
    if (std::strcmp(rule.function, "allocate") != 0 || size < static_cast<size_t>(std::atol(rule.part))) continue;
    const long nth = ++rule.seen;
    if (nth < rule.nth || (rule.times != 0 && nth >= rule.nth + rule.times)) continue;
    inside = true;
    Tell("allocate", rule.part, nth);
    inside = false;
    return rule.error;
  }
  return real(out, alignment, size);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = Real<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, time);
  if (clock != CLOCK_REALTIME || inside || stall_path == nullptr) return result;
  inside = true;
  const int before = errno;
  for (int i = 0; i < rule_count; ++i) {
    if (std::strcmp(rules[i].function, "clock") == 0 && access(stall_path, F_OK) == 0) time->tv_sec -= 3600;
  }
  errno = before;
  inside = false;
  return result;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  static const auto real = Real<int (*)(const char*, int, ...)>("open64");
  return Call("open", path, -1, [&] { return real(path, flags, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  static const auto real = Real<FILE* (*)(const char*, const char*)>("fopen64");
  return Call("open", path, static_cast<FILE*>(nullptr), [&] { return real(path, mode); });
}
FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return open(path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  static const auto real = Real<int (*)(int, const char*, int, ...)>("openat");
  return Call("open", path, -1, [&] { return real(directory, path, flags, mode); });
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
