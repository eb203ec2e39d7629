// Opens, reads and writes files, and moves aside what is not the daemon's own. A file is never half-written, and an
// error of the system names its path. Threads: safe anywhere, unless a class says otherwise.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost {

// Closes on every way out; Close() reports what a deferred write could not do.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  bool Close();

 private:
  int fd_;
};

// Calls open(2) with O_CLOEXEC, and again if a signal interrupted it.
Descriptor OpenRetrying(const std::filesystem::path& path, int flags, mode_t mode = 0);

// Makes "PATH: cannot ACTION: reason" from an errno: NotFound, PermissionDenied, ResourceExhausted (no space, quota,
// descriptors or memory left) or Internal. All but NotFound are transient (status.h): that a file is absent is a fact,
// while any other errno comes from the present state of the machine.
absl::Status SystemError(int error, const std::filesystem::path& path, std::string_view action);

// Returns when a file was last written to, as fstat tells it. Threads: a pure function.

// Nanoseconds since the epoch.
inline std::int64_t ModifiedNanoseconds(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Files that are never half-written: temporary name, fsync, rename, fsync of the directory.
// Threads: every function is safe anywhere; callers keep two writers from one path.
// Errors: those of SystemError, always naming the path and the system's reason.

// Reads the whole file, even if the system reports another size.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path);
// Calls `take` with each piece of the rest of an open file, of at most `most_bytes`, until it returns an error, which
// is returned then. `path`: named in an error.
absl::Status ReadPieces(const Descriptor& file, const std::filesystem::path& path, std::size_t most_bytes,
                        const std::function<absl::Status(std::string_view)>& take);
// Calls `take` with each piece from `offset` on, until it returns false. A piece has 512 KiB at most, so
// that one fits into a message to a server. Errors: Unavailable where it cannot be read.
absl::Status ReadPieces(const std::filesystem::path& path, int64_t offset,
                        const std::function<bool(std::string_view)>& take);
// Returns whether `path` lies below `root`, or is it: /data-old is not below /data. Both are free of links.
bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& root);
// Writes all of `data` to an open file, pipe or device. `path`: named in an error.
absl::Status WriteAll(int fd, const std::filesystem::path& path, std::string_view data);
// Returns the file that WriteFileAtomic should replace: `path`, or the end of its symbolic links, for a user who keeps
// a link there. The file need not exist. Errors: FailedPrecondition if something else than a file is there.
absl::StatusOr<std::filesystem::path> FileToReplace(const std::filesystem::path& path);
// Replaces the file of this name, whole or not at all; durable when Ok. A symbolic link is replaced itself, and its
// target stays as it is. So whoever may put a link into a folder cannot choose by it which other file is written.
// Errors: FailedPrecondition for a pipe, a socket, a device or a directory, which a renamed file would destroy.
absl::Status WriteFileAtomic(const std::filesystem::path& path, std::string_view data);
// Writes and fsyncs a file inside a directory that is renamed later. The file itself is not renamed.
absl::Status WriteFileSynced(const std::filesystem::path& path, std::string_view data);
absl::Status SyncDirectory(const std::filesystem::path& path);
// Makes the directory and all that are missing above it; durable when Ok.
absl::Status CreateDirectories(const std::filesystem::path& path);
// Returns the names in a directory, in no order; nullopt if there is no directory. An error never looks like an empty
// directory.
absl::StatusOr<std::optional<std::vector<std::string>>> ListDirectory(const std::filesystem::path& path);
// Renames within a file system and fsyncs both parents. Replaces a file, never a directory that holds something.
absl::Status Rename(const std::filesystem::path& from, const std::filesystem::path& to);
// Fsyncs `from` (a directory whose files are synced), renames it to `to` (which must not exist), fsyncs the parent.
absl::Status PublishDirectory(const std::filesystem::path& from, const std::filesystem::path& to);
// No error if it does not exist.
absl::Status RemoveAll(const std::filesystem::path& path);

// Files that cannot be proven to be the daemon's own are moved to this folder, in the directory where they were found,
// and never removed.
inline constexpr char kQuarantine[] = ".quarantine";

// Moves `path` to `directory`/.quarantine/TIME-NAME, under a name that nothing has. Returns where it lies; durable when
// Ok. Errors: those of SystemError. Callers keep two movers from one path.
absl::StatusOr<std::filesystem::path> MoveToQuarantine(const std::filesystem::path& directory,
                                                       const std::filesystem::path& path);

// A new file written piece by piece through a buffer, which large pieces pass by; replaces what was at the path.
// Threads: one at a time. Appended bytes are on disk only after Close or SyncAndClose.
class FileWriter {
 public:
  static absl::StatusOr<FileWriter> Create(const std::filesystem::path& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();
  absl::Status Append(const void* data, std::size_t bytes);
  // Skips this many bytes: they are zero until PutAt.
  absl::Status Skip(std::uint64_t bytes);
  // Writes over bytes that were appended or skipped.
  absl::Status PutAt(std::uint64_t offset, const void* data, std::size_t bytes);
  // Bytes appended and skipped so far.
  std::uint64_t size() const { return size_; }
  absl::Status Close();
  absl::Status SyncAndClose();

 private:
  FileWriter(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Flush();
  std::filesystem::path path_;
  int fd_;
  std::string buffer_;
  std::uint64_t size_ = 0;
};

// An advisory lock held by one process until destruction (or its death).
class FileLock {
 public:
  // FailedPrecondition naming the path and the holder's process id when another process holds it.
  static absl::StatusOr<FileLock> Acquire(const std::filesystem::path& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace permafrost
