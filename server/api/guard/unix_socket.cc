#include "api/guard/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"

namespace permafrost::api {
namespace {

constexpr mode_t kSocketMode = 0600;

// Returns whether a process serves the socket.
bool IsServed(const std::filesystem::path& path) {
  const Descriptor client(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.string().size());
  return client.valid() && connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

size_t MaxSocketPath() { return sizeof(sockaddr_un::sun_path) - 1; }

absl::Status PrepareSocket(const std::filesystem::path& path) {
  const std::string text = path.string();
  if (text.size() > MaxSocketPath()) {
    return absl::FailedPreconditionError(absl::StrCat(text, ": a path of ", text.size(),
                                                      " bytes: the system takes sockets of at most ", MaxSocketPath()));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? absl::OkStatus() : SystemError(errno, path, "stat");
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(text, ": is there and is no socket: it is left alone"));
  }
  if (IsServed(path)) return absl::FailedPreconditionError(absl::StrCat(text, ": another process serves it"));
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : SystemError(errno, path, "remove");
}

std::string SocketUri(const std::filesystem::path& path) {
  std::string uri = "unix:";
  for (const char c : path.string()) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || std::strchr("/-._~", c) != nullptr) {
      uri += c;
    } else {
      absl::StrAppendFormat(&uri, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

absl::Status CloseToOthers(const std::filesystem::path& path) {
  return chmod(path.c_str(), kSocketMode) == 0 ? absl::OkStatus() : SystemError(errno, path, "chmod");
}

}  // namespace permafrost::api
