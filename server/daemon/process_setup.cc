#include "daemon/process_setup.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>  // defines __GLIBC__ if the C library is glibc
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/log.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace permafrost {

void KeepFewHeaps() {
#ifdef __GLIBC__
  constexpr int kHeaps = 2;
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, kHeaps);
#endif
}

void RaiseOpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    telemetry::Log(telemetry::Severity::kWarning,
                   absl::StrCat("at most ", before, " open files: cannot raise the limit to ", limit.rlim_max, ": ",
                                std::strerror(errno)));
  }
}

void UseShortSpins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // A count of 1000 takes about 10 us. That is longer than a wait within a region on free cores, and far shorter
  // than a time slice.
  if (setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0) != 0) return;
  // Executes the program by its resolved path. Otherwise ps and pkill would know the process by the name "exe".
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);
  execv("/proc/self/exe", argv);  // if the program's file is gone or was replaced
}

}  // namespace permafrost
