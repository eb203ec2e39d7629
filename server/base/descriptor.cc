#include "base/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost {

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

bool Descriptor::Close() { return close(Release()) == 0; }

Descriptor OpenRetrying(const std::filesystem::path& path, int flags, mode_t mode) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return Descriptor(fd);
}

absl::Status SystemError(int error, const std::filesystem::path& path, std::string_view action) {
  const std::string message =
      absl::StrCat(path.string(), ": cannot ", AbslView(action), ": ", std::generic_category().message(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return AsTransient(absl::PermissionDeniedError(message));
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return AsTransient(absl::ResourceExhaustedError(message));
    default:
      return AsTransient(absl::InternalError(message));
  }
}

}  // namespace permafrost
