#include "client/received_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::client {
namespace {

constexpr size_t kCopyBytes = 1 << 20;

}  // namespace

absl::StatusOr<ReceivedFile> ReceivedFile::Create(OutputTarget target) {
  if (target.is_file()) {
    std::string temporary = absl::StrCat(target.file().string(), ".partial-", getpid());
    Descriptor file = OpenRetrying(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (!file.valid()) return SystemError(errno, target.name(), "create");
    return ReceivedFile(std::move(target), std::move(temporary), std::move(file));
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string name = ((error ? "/tmp" : folder) / "permafrost-XXXXXX").string();
  Descriptor file(mkstemp(name.data()));
  if (!file.valid()) return SystemError(errno, name, "create");
  unlink(name.c_str());
  return ReceivedFile(std::move(target), "", std::move(file));
}

ReceivedFile::ReceivedFile(OutputTarget target, std::string temporary, Descriptor file)
    : target_(std::move(target)), temporary_(std::move(temporary)), file_(std::move(file)) {}

ReceivedFile::ReceivedFile(ReceivedFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, "")),
      file_(std::move(other.file_)),
      size_(other.size_),
      hash_(std::move(other.hash_)) {}

ReceivedFile::~ReceivedFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status ReceivedFile::Append(std::string_view data) {
  hash_.Update(data.data(), data.size());
  size_ += static_cast<int64_t>(data.size());
  return WriteAll(file_.get(), target_.name(), data);
}

absl::Status ReceivedFile::Copy() const {
  std::vector<char> buffer(kCopyBytes);
  for (off_t at = 0; at < size_;) {
    const ssize_t count = pread(file_.get(), buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return SystemError(count < 0 ? errno : EIO, target_.name(), "read what was received for it");
    PF_RETURN_IF_ERROR(target_.Write({buffer.data(), static_cast<size_t>(count)}));
    at += count;
  }
  return absl::OkStatus();
}

absl::Status ReceivedFile::Commit(int64_t total_bytes, std::string_view xxh3) {
  const std::string& name = target_.name();
  if (size_ != total_bytes) {
    return absl::DataLossError(
        absl::StrCat(name, ": received ", size_, " bytes of ", total_bytes, "; nothing was written"));
  }
  const std::string hash = HashHex(hash_.Digest());
  if (hash != xxh3) {
    return absl::DataLossError(absl::StrCat(name, ": received bytes have the checksum ", hash, ", the server's is '",
                                            AbslView(xxh3), "'; nothing was written"));
  }
  if (!target_.is_file()) return Copy();
  if (fsync(file_.get()) != 0) return SystemError(errno, name, "write");
  if (std::rename(temporary_.c_str(), target_.file().c_str()) != 0) return SystemError(errno, name, "rename to");
  temporary_.clear();
  return absl::OkStatus();
}

namespace fs = std::filesystem;

OutputTarget::OutputTarget(std::string name, fs::path file, Descriptor stream, bool is_stdout)
    : name_(std::move(name)), file_(std::move(file)), stream_(std::move(stream)), is_stdout_(is_stdout) {}

absl::StatusOr<OutputTarget> OutputTarget::Open(const std::string& path) {
  struct stat there {};
  const bool exists = path != "-" && stat(path.c_str(), &there) == 0;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open_file {};
    const bool same =
        exists && fstat(fd, &open_file) == 0 && open_file.st_dev == there.st_dev && open_file.st_ino == there.st_ino;
    if (!same && (path != "-" || fd != STDOUT_FILENO)) continue;
    Descriptor stream(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!stream.valid()) return SystemError(errno, path, "write");
    const bool is_stdout = fd == STDOUT_FILENO;
    return OutputTarget(is_stdout ? "standard output" : path, {}, std::move(stream), is_stdout);
  }
  if (exists && (S_ISFIFO(there.st_mode) || S_ISCHR(there.st_mode))) {
    Descriptor stream = OpenRetrying(path, O_WRONLY | O_NOCTTY);
    if (!stream.valid()) return SystemError(errno, path, "open");
    return OutputTarget(path, {}, std::move(stream), /*is_stdout=*/false);
  }
  PF_ASSIGN_OR_RETURN(fs::path file, FileToReplace(path));
  return OutputTarget(path, std::move(file), Descriptor(-1), /*is_stdout=*/false);
}

bool OutputTarget::is_terminal() const { return stream_.valid() && isatty(stream_.get()) != 0; }

absl::Status OutputTarget::Write(std::string_view data) const { return WriteAll(stream_.get(), name_, data); }

absl::Status WriteOutput(const OutputTarget& target, std::string_view text) {
  return target.is_file() ? WriteFileAtomic(target.file(), text) : target.Write(text);
}

}  // namespace permafrost::client
