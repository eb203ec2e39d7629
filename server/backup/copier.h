// Copies files into a backup: each is hashed and synced as it is written.
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/resources.h"

namespace permafrost::backup {

struct CopiedFile {
  uint64_t bytes = 0;
  std::string xxh3;
};
// Keyed by path below the backup, with '/'.
using CopiedFiles = std::map<std::string, CopiedFile>;

// Hears of bytes done and in all; false ends the backup.
using OnProgress = std::function<bool(int64_t done, int64_t total)>;

class Copier {
 public:
  // `from` and `to`: the state directory and the backup in the making. `total`: bytes that are expected, for show.
  // `reserve`: looked at before each piece.
  Copier(std::filesystem::path from, std::filesystem::path to, int64_t total, DiskReserve reserve,
         OnProgress on_progress);

  // The file of this relative path as far as it goes now. Errors: NotFound where there is none; FailedPrecondition
  // where it is no regular file; ResourceExhausted, reason DISK_NEARLY_FULL; Cancelled; those of SystemError.
  absl::Status CopyFile(const std::string& path) { return CopyFile(path, path); }
  // Every regular file of a folder and of those in it, names that begin with '.' apart. NotFound where a file or the
  // folder has gone meanwhile.
  absl::Status CopyFolder(const std::string& path) { return CopyFolder(path, path); }
  // Does the same under another path in the backup.
  absl::Status CopyFolder(const std::string& from, const std::string& to);
  // A file that lies in the backup already: hashes and syncs it.
  absl::Status Take(const std::string& path);
  // Removes what was copied to this path, or below it.
  absl::Status Drop(const std::string& path);
  // Syncs every folder of the backup.
  absl::Status SyncFolders() const;

  const CopiedFiles& files() const { return files_; }
  int64_t bytes() const;

 private:
  absl::Status CopyFile(const std::string& from, const std::string& to);
  absl::Status Tell(int64_t bytes);

  const std::filesystem::path from_, to_;
  const DiskReserve reserve_;
  const OnProgress on_progress_;
  int64_t done_ = 0, total_;
  CopiedFiles files_;
};

// Bytes of the regular files at or below a path, as far as they can be read.
int64_t BytesBelow(const std::filesystem::path& path);

}  // namespace permafrost::backup
