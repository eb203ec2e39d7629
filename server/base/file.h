// Opens, reads and writes files, replaces files atomically, and moves files of unknown origin to a quarantine. Every
// system error names its path. Threads: safe anywhere, unless a class says otherwise.
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

// Owns a file descriptor, and closes it when destroyed. Close() returns false if a deferred write failed.
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

// Calls open(2) with O_CLOEXEC, and repeats the call if a signal interrupted it.
Descriptor OpenRetrying(const std::filesystem::path& path, int flags, mode_t mode = 0);

// Turns an errno into the error "PATH: cannot ACTION: reason". The code is NotFound, PermissionDenied,
// ResourceExhausted (no space, quota, descriptors or memory left) or Internal. Every error except NotFound is marked
// transient (status.h), because it may come from a passing state of the machine.
absl::Status SystemError(int error, const std::filesystem::path& path, std::string_view action);

// Returns the time of the file's last write according to fstat, in nanoseconds since the epoch. Threads: pure.
inline std::int64_t ModifiedNanoseconds(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Functions on files and directories. WriteFileAtomic never leaves a half-written file: it writes under a temporary
// name, fsyncs the file, renames it, and fsyncs the directory. Threads: every function is safe anywhere. Callers make
// sure that no two threads write to one path.
// Errors: those of SystemError, which always name the path and the system's reason.

// Reads the whole file, even if the system reports a wrong size.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path);
// Reads the rest of an open file, and calls `take` with pieces of at most `most_bytes`. Stops at the first error of
// `take` and returns it. Errors name `path`.
absl::Status ReadPieces(const Descriptor& file, const std::filesystem::path& path, std::size_t most_bytes,
                        const std::function<absl::Status(std::string_view)>& take);
// Calls `take` with each piece of the file from `offset` on, until `take` returns false. A piece has at most 512 KiB,
// so that it fits into a message to a server. Errors: Unavailable if the file cannot be read.
absl::Status ReadPieces(const std::filesystem::path& path, int64_t offset,
                        const std::function<bool(std::string_view)>& take);
// Returns whether `path` is `root` or lies below it. /data-old is not below /data. Both paths must be free of
// symbolic links.
bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& root);
// Writes all of `data` to an open file, pipe or device. Errors name `path`.
absl::Status WriteAll(int fd, const std::filesystem::path& path, std::string_view data);
// Returns the file that WriteFileAtomic should replace: `path` itself or, if `path` is a symbolic link, the final
// target, so that a user may keep a link there. The file need not exist. Errors: FailedPrecondition if something other
// than a file is there.
absl::StatusOr<std::filesystem::path> FileToReplace(const std::filesystem::path& path);
// Replaces the file at `path` wholly or not at all. After Ok, the new file is durable. A symbolic link at `path` is
// itself replaced, and its target stays unchanged. So nobody can have another file overwritten by placing a link at
// `path`.
// Errors: FailedPrecondition for a pipe, a socket, a device or a directory, which the rename would destroy.
absl::Status WriteFileAtomic(const std::filesystem::path& path, std::string_view data);
// Writes a file directly under its final name, and fsyncs it. Use it within a directory that PublishDirectory will
// rename.
absl::Status WriteFileSynced(const std::filesystem::path& path, std::string_view data);
absl::Status SyncDirectory(const std::filesystem::path& path);
// Makes the directory and all missing directories above it. After Ok, they are durable.
absl::Status CreateDirectories(const std::filesystem::path& path);
// Returns the names in a directory, in no particular order, or nullopt if the directory does not exist. An error is
// never reported as an empty directory.
absl::StatusOr<std::optional<std::vector<std::string>>> ListDirectory(const std::filesystem::path& path);
// Renames within one file system, and fsyncs both parent directories. If `from` is a file, a file at `to` is
// replaced. If `from` is a directory, an empty directory at `to` is replaced. A directory that holds something is never
// replaced.
absl::Status Rename(const std::filesystem::path& from, const std::filesystem::path& to);
// Fsyncs the directory `from`, renames it to `to`, and fsyncs the parent of `to`. The files in `from` must be synced
// already, and `to` must not exist.
absl::Status PublishDirectory(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes `path` and all that is below it. Returns Ok if `path` does not exist.
absl::Status RemoveAll(const std::filesystem::path& path);

// The name of the folder for files that the daemon possibly did not write itself. The folder is made in the directory
// in which such a file was found. The daemon never removes anything from the folder.
inline constexpr char kQuarantine[] = ".quarantine";

// Moves `path` to `directory`/.quarantine/TIME-NAME, under an unused name, and returns the new path. After Ok, the
// move is durable. Errors: those of SystemError. Callers make sure that no two threads move the same path.
absl::StatusOr<std::filesystem::path> MoveToQuarantine(const std::filesystem::path& directory,
                                                       const std::filesystem::path& path);

// Writes a new file piece by piece, and replaces any file at the path. Small pieces go through a buffer; large pieces
// are written directly. Threads: one at a time. Appended bytes are on disk only after Close or SyncAndClose.
class FileWriter {
 public:
  static absl::StatusOr<FileWriter> Create(const std::filesystem::path& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();
  absl::Status Append(const void* data, std::size_t bytes);
  // Skips this many bytes. They are zero until PutAt writes to them.
  absl::Status Skip(std::uint64_t bytes);
  // Overwrites bytes that were appended or skipped.
  absl::Status PutAt(std::uint64_t offset, const void* data, std::size_t bytes);
  // Returns the number of bytes appended or skipped so far.
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

// An advisory lock of one process, held until destruction or until the process dies.
class FileLock {
 public:
  // Errors: FailedPrecondition if another process holds the lock; the message names the path and that process's id.
  static absl::StatusOr<FileLock> Acquire(const std::filesystem::path& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace permafrost
