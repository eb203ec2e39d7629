#include "data/catalog/upload_layout.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/descriptor.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<int64_t> BytesAt(const fs::path& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) return S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : 0;
  if (errno == ENOENT || errno == ENOTDIR) return int64_t{0};
  return SystemError(errno, path, "look at");
}

bool IsRegular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

}  // namespace permafrost::data
