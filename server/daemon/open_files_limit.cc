#include "daemon/open_files_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/log.h"

namespace permafrost {

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

}  // namespace permafrost
