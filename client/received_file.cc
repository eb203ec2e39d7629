#include "client/received_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::client {
namespace {

absl::Status SystemError(const std::string& path, const char* action) {
  return absl::InternalError(absl::StrCat(path, ": cannot ", action, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<ReceivedFile> ReceivedFile::Create(const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".partial-", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError(path, "create");
  return ReceivedFile(path, temporary, fd);
}

ReceivedFile::ReceivedFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

ReceivedFile::ReceivedFile(ReceivedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      hash_(std::move(other.hash_)) {}

ReceivedFile::~ReceivedFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

absl::Status ReceivedFile::Append(std::string_view data) {
  hash_.Update(data.data(), data.size());
  size_ += static_cast<int64_t>(data.size());
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(path_, "write");
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status ReceivedFile::Commit(int64_t total_bytes, std::string_view xxh3) {
  if (size_ != total_bytes) {
    return absl::DataLossError(
        absl::StrCat(path_, ": received ", size_, " bytes of ", total_bytes, "; nothing was written"));
  }
  const std::string hash = HashHex(hash_.Digest());
  if (hash != xxh3) {
    return absl::DataLossError(absl::StrCat(path_, ": received bytes have the checksum ", hash, ", the server's is '",
                                            AbslView(xxh3), "'; nothing was written"));
  }
  if (fsync(fd_) != 0) return SystemError(path_, "write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return SystemError(path_, "rename to");
  close(std::exchange(fd_, -1));
  return absl::OkStatus();
}

}  // namespace permafrost::client
