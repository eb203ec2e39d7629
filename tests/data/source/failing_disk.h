// A disk that is out of order, for what a test reads of it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "base/file.h"

#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <vector>
#endif

namespace permafrost::data {

// Puts in the place of `file`, wherever this process has it open, the same for writing only: its next read fails.
// Returns how often it was open; 0 where the system does not tell (no /proc).
inline int FailReadsOf(const std::filesystem::path& file) {
  const Descriptor unreadable = OpenRetrying(file, O_WRONLY);
  int replaced = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    const int descriptor = std::stoi(it->path().filename().string());
    std::error_code closed;
    if (descriptor == unreadable.get() || std::filesystem::read_symlink(it->path(), closed) != file) continue;
    replaced += dup2(unreadable.get(), descriptor) >= 0 ? 1 : 0;
  }
  return replaced;
}

#ifdef __linux__
// Lets stat(2) and its kin fail with `error` on the calling thread, by a seccomp filter that cannot be taken back.
// False: filters are not allowed here.
inline bool FailStatForGood(int error) {
  constexpr int kCalls[] = {
#ifdef __NR_stat
      __NR_stat, __NR_lstat,
#endif
      __NR_newfstatat, __NR_statx};
  std::vector<sock_filter> steps = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)}};
  for (const int call : kCalls) {
    steps.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(call)});
    steps.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)});
  }
  steps.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog program{.len = static_cast<unsigned short>(steps.size()), .filter = steps.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#endif

// Calls `work` on a thread of its own, where no path can be looked at: stat(2) fails with `error`. False, and no call,
// where the system has no filters of calls, or allows none.
template <class F>
bool WithoutStat([[maybe_unused]] int error, [[maybe_unused]] const F& work) {
  bool failing = false;
#ifdef __linux__
  std::thread([&] {
    failing = FailStatForGood(error);
    if (failing) work();
  }).join();
#endif
  return failing;
}

}  // namespace permafrost::data
