#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <ios>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

namespace fs = std::filesystem;

absl::Status WriteAll(int fd, const fs::path& path, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, path, "write");
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

namespace {

absl::Status Sync(int fd, const fs::path& path) {
#ifdef F_FULLFSYNC
  // On macOS, fsync leaves the data in the drive's cache, and F_FULLFSYNC also empties that cache. On a file system
  // without F_FULLFSYNC, falls back to fsync.
  if (fcntl(fd, F_FULLFSYNC) == 0) return absl::OkStatus();
#endif
  int result;
  do {
    result = fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? absl::OkStatus() : SystemError(errno, path, "fsync");
}

absl::Status WriteAndSync(Descriptor& file, const fs::path& path, std::string_view data) {
  PF_RETURN_IF_ERROR(WriteAll(file.get(), path, data));
  PF_RETURN_IF_ERROR(Sync(file.get(), path));
  if (!file.Close()) return SystemError(errno, path, "close");
  return absl::OkStatus();
}

// The system follows at most this many links.
constexpr int kMostLinks = 40;

const char* KindOf(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "directory";
    case fs::file_type::fifo:
      return "pipe";
    case fs::file_type::socket:
      return "socket";
    default:
      return "device";
  }
}

absl::Status NoFileError(const fs::path& path, fs::file_type type) {
  return absl::FailedPreconditionError(
      absl::StrCat(path.string(), ": is a ", KindOf(type), "; a file, or a name that is free, is accepted"));
}

fs::path ParentOf(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

absl::StatusOr<std::string> ReadFile(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  std::string data;
  // Reserves memory for the whole file at once. A growing string would hold all bytes twice while it reallocates, and
  // half of its capacity could stay unused. The reported size is only a hint: the file may change meanwhile, and the
  // kernel's own files report a size of 0 or of one page. The reservation is bounded, so that a wrong size cannot
  // exhaust memory.
  constexpr off_t kMostReserved = off_t{1} << 28;
  struct stat status;
  if (fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    data.reserve(static_cast<std::size_t>(std::min(status.st_size, kMostReserved)));
  }
  constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
  PF_RETURN_IF_ERROR(ReadPieces(file, path, kPieceBytes, [&data](std::string_view piece) {
    data.append(piece);
    return absl::OkStatus();
  }));
  return data;
}

absl::Status ReadPieces(const Descriptor& file, const fs::path& path, std::size_t most_bytes,
                        const std::function<absl::Status(std::string_view)>& take) {
  // The buffer is on the heap, because a thread that answers HTTP has a stack of only 100 KB.
  const auto piece = std::make_unique_for_overwrite<char[]>(most_bytes);
  for (;;) {
    const ssize_t n = read(file.get(), piece.get(), most_bytes);
    if (n == 0) return absl::OkStatus();
    if (n < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, path, "read");
    }
    PF_RETURN_IF_ERROR(take(std::string_view(piece.get(), static_cast<std::size_t>(n))));
  }
}

bool IsBelow(const fs::path& path, const fs::path& root) {
  const auto end = root.end();
  // The last component of "/data/" is empty.
  const auto last = root.has_filename() ? end : std::prev(end);
  return std::mismatch(root.begin(), last, path.begin(), path.end()).first == last;
}

absl::Status ReadPieces(const fs::path& path, int64_t offset, const std::function<bool(std::string_view)>& take) {
  const auto cannot_read = [&path] {
    return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be read", errno == 0 ? "" : ": ",
                                               errno == 0 ? "" : std::strerror(errno)));
  };
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  in.seekg(offset);
  if (!in) return cannot_read();
  constexpr std::size_t kPieceBytes = std::size_t{1} << 19;
  std::string piece(kPieceBytes, '\0');
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto got = static_cast<size_t>(in.gcount());
    if (got > 0 && !take(std::string_view(piece).substr(0, got))) return absl::OkStatus();
  }
  return in.eof() ? absl::OkStatus() : cannot_read();
}

absl::StatusOr<fs::path> FileToReplace(const fs::path& path) {
  fs::path target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target, error);
    if (status.type() == fs::file_type::not_found || status.type() == fs::file_type::regular) return target;
    if (status.type() == fs::file_type::none) return SystemError(error.value(), path, "look at");
    if (status.type() != fs::file_type::symlink) return NoFileError(path, status.type());
    const fs::path next = fs::read_symlink(target, error);
    if (error) return SystemError(error.value(), path, "follow");
    target = ParentOf(target) / next;
  }
  return SystemError(ELOOP, path, "follow");
}

absl::Status WriteFileAtomic(const fs::path& path, std::string_view data) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::none) return SystemError(error.value(), path, "look at");
  const bool replaceable =
      type == fs::file_type::regular || type == fs::file_type::symlink || type == fs::file_type::not_found;
  if (!replaceable) return NoFileError(path, type);
  std::string temporary = path.string() + ".tmp.XXXXXX";
  Descriptor file(mkstemp(temporary.data()));
  if (!file.valid()) return SystemError(errno, temporary, "create");
  fcntl(file.get(), F_SETFD, FD_CLOEXEC);
  absl::Status written = [&] {
    PF_RETURN_IF_ERROR(WriteAndSync(file, temporary, data));
    if (rename(temporary.c_str(), path.c_str()) != 0) {
      return SystemError(errno, path, absl::StrCat("rename ", temporary, " to it"));
    }
    return absl::OkStatus();
  }();
  if (!written.ok()) {
    unlink(temporary.c_str());
    return written;
  }
  return SyncDirectory(ParentOf(path));
}

absl::Status WriteFileSynced(const fs::path& path, std::string_view data) {
  Descriptor file = OpenRetrying(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!file.valid()) return SystemError(errno, path, "create");
  return WriteAndSync(file, path, data);
}

absl::Status SyncDirectory(const fs::path& path) {
  Descriptor directory = OpenRetrying(path, O_RDONLY | O_DIRECTORY);
  if (!directory.valid()) return SystemError(errno, path, "open");
  return Sync(directory.get(), path);
}

absl::Status CreateDirectories(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = path; !fs::is_directory(at, error); at = ParentOf(at)) {
    // The walk upwards has ended at a root or working directory that cannot be read.
    if (!missing.empty() && at == missing.back()) break;
    missing.push_back(at);
  }
  std::ranges::reverse(missing);
  for (const fs::path& at : missing) {
    const bool made = fs::create_directory(at, error);
    if (error) return SystemError(error.value(), path, "create");
    if (!made) continue;
    // Removes the directory. If it stayed, the next try would find it there and take it for durable.
    if (absl::Status synced = SyncDirectory(ParentOf(at)); !synced.ok()) {
      fs::remove(at, error);
      return synced;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<std::string>>> ListDirectory(const fs::path& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(path, error);
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return SystemError(error.value(), path, "list");
  return names;
}

absl::Status Rename(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return SystemError(errno, to, absl::StrCat("rename ", from.string(), " to it"));
  }
  PF_RETURN_IF_ERROR(SyncDirectory(ParentOf(to)));
  return ParentOf(from) == ParentOf(to) ? absl::OkStatus() : SyncDirectory(ParentOf(from));
}

absl::Status PublishDirectory(const fs::path& from, const fs::path& to) {
  PF_RETURN_IF_ERROR(SyncDirectory(from));
  // rename() would silently replace an empty directory.
  struct stat ignored;
  if (lstat(to.c_str(), &ignored) == 0)
    return SystemError(EEXIST, to, absl::StrCat("rename ", from.string(), " to it"));
  return Rename(from, to);
}

absl::Status RemoveAll(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? SystemError(error.value(), path, "remove") : absl::OkStatus();
}

absl::StatusOr<fs::path> MoveToQuarantine(const fs::path& directory, const fs::path& path) {
  const fs::path quarantine = directory / kQuarantine;
  PF_RETURN_IF_ERROR(CreateDirectories(quarantine));
  const std::string name =
      absl::StrCat(absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()), "-", path.filename().string());
  fs::path to = quarantine / name;
  std::error_code error;
  for (int n = 2; fs::exists(fs::symlink_status(to, error)); ++n) to = quarantine / absl::StrCat(name, "-", n);
  fs::rename(path, to, error);
  if (error) return SystemError(error.value(), path, absl::StrCat("move to ", to.string()));
  PF_RETURN_IF_ERROR(SyncDirectory(quarantine));
  PF_RETURN_IF_ERROR(SyncDirectory(path.parent_path()));
  return to;
}

absl::StatusOr<FileWriter> FileWriter::Create(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!file.valid()) return SystemError(errno, path, "create");
  return FileWriter(path, file.Release());
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileWriter::Append(const void* data, std::size_t bytes) {
  // Writes in pieces of the size of a huge page. If the file system caches each piece in one huge page, it also maps
  // the file by huge pages, which speeds up random reads (bench/MEASUREMENTS.md).
  constexpr std::size_t kPieceBytes = 1 << 21;
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t piece = kPieceBytes - size_ % kPieceBytes;
    if (piece == kPieceBytes && bytes >= kPieceBytes) {
      const std::size_t pieces = bytes / kPieceBytes * kPieceBytes;
      PF_RETURN_IF_ERROR(WriteAll(fd_, path_, {at, pieces}));
      at += pieces;
      bytes -= pieces;
      size_ += pieces;
      continue;
    }
    const std::size_t taken = std::min(bytes, piece);
    buffer_.append(at, taken);
    at += taken;
    bytes -= taken;
    size_ += taken;
    if (taken == piece) PF_RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Skip(std::uint64_t bytes) {
  PF_RETURN_IF_ERROR(Flush());
  size_ += bytes;
  // ftruncate and lseek are both needed: the bytes must exist even if nothing is written after them.
  if (ftruncate(fd_, static_cast<off_t>(size_)) != 0) return SystemError(errno, path_, "truncate");
  return lseek(fd_, static_cast<off_t>(size_), SEEK_SET) < 0 ? SystemError(errno, path_, "seek") : absl::OkStatus();
}

absl::Status FileWriter::PutAt(std::uint64_t offset, const void* data, std::size_t bytes) {
  PF_RETURN_IF_ERROR(Flush());
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd_, at, bytes, static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, path_, "write");
    }
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Flush() {
  PF_RETURN_IF_ERROR(WriteAll(fd_, path_, buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status FileWriter::Close() {
  PF_RETURN_IF_ERROR(Flush());
  if (close(std::exchange(fd_, -1)) != 0) return SystemError(errno, path_, "close");
  return absl::OkStatus();
}

absl::Status FileWriter::SyncAndClose() {
  PF_RETURN_IF_ERROR(Flush());
  PF_RETURN_IF_ERROR(Sync(fd_, path_));
  return Close();
}

absl::StatusOr<FileLock> FileLock::Acquire(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_RDWR | O_CREAT, 0644);
  if (!file.valid()) return SystemError(errno, path, "open");
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemError(errno, path, "lock");
    char holder[32];
    const ssize_t n = pread(file.get(), holder, sizeof holder, 0);
    int64_t process = 0;
    const bool known = n > 0 && absl::SimpleAtoi(absl::string_view(holder, static_cast<std::size_t>(n)), &process);
    return absl::FailedPreconditionError(
        absl::StrCat(path.string(), ": locked by ", known ? absl::StrCat("process ", process) : "another process"));
  }
  if (ftruncate(file.get(), 0) != 0) return SystemError(errno, path, "truncate");
  PF_RETURN_IF_ERROR(WriteAll(file.get(), path, absl::StrCat(getpid(), "\n")));
  return FileLock(file.Release());
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  // The file is not unlinked. Otherwise a process could lock a new file of this name while another process still
  // holds the lock of the unlinked one.
  if (fd_ >= 0) close(fd_);
}

}  // namespace permafrost
