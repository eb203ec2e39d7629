// Makes the disk fail under the code that a test calls.
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

// Wherever this process has `file` open, replaces the descriptor by a write-only one of the same file, so that its
// next read fails. Returns how many descriptors were replaced, or 0 on a system without /proc.
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
// Makes stat(2) and its variants fail with `error` on the calling thread. It uses a seccomp filter, which cannot be
// removed. Returns false if filters are not allowed here.
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

// Calls `work` on a new thread on which stat(2) fails with `error`, so that no path can be inspected. Returns false
// without calling `work` if the system has no system call filters or does not allow them.
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
