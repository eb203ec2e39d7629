#include "client/output_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::client {

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
