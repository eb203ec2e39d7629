// Forbids io_uring to the calling thread and to every thread and program that it starts, as containers do. It
// installs a seccomp filter.
#pragma once

#ifdef __linux__

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

namespace permafrost {

// This cannot be undone, so call it on a thread or in a child process of its own. Returns false if filters are not
// allowed here.
inline bool ForbidIoUring() {
  sock_filter steps[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_io_uring_setup},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{.len = sizeof steps / sizeof *steps, .filter = steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace permafrost

#endif
