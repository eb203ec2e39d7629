#include "backup/copier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20;

// O_NONBLOCK: a pipe that somebody left there must not hang the backup.
absl::StatusOr<Descriptor> OpenRegular(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.valid()) return SystemError(errno, path, "open");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return SystemError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path.string(), ": is no regular file: move it away"));
  }
  return file;
}

// Bytes read; 0 at the end.
absl::StatusOr<size_t> ReadPiece(const Descriptor& file, const fs::path& path, std::vector<char>& piece) {
  ssize_t got = -1;
  do {
    got = read(file.get(), piece.data(), piece.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return SystemError(errno, path, "read");
  return static_cast<size_t>(got);
}

}  // namespace

Copier::Copier(fs::path from, fs::path to, int64_t total, DiskReserve reserve, OnProgress on_progress)
    : from_(std::move(from)),
      to_(std::move(to)),
      reserve_(std::move(reserve)),
      on_progress_(std::move(on_progress)),
      total_(total) {}

absl::Status Copier::Tell(int64_t bytes) {
  done_ += bytes;
  total_ = std::max(total_, done_);
  return on_progress_(done_, total_) ? absl::OkStatus() : absl::CancelledError("the backup was given up");
}

absl::Status Copier::CopyFile(const std::string& from, const std::string& to) {
  const fs::path source = from_ / from, target = to_ / to;
  PF_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(source));
  PF_RETURN_IF_ERROR(CreateDirectories(target.parent_path()));
  PF_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(target));
  StreamHash hash;
  std::vector<char> piece(kPieceBytes);
  while (true) {
    PF_ASSIGN_OR_RETURN(const size_t got, ReadPiece(file, source, piece));
    if (got == 0) break;
    // It is not known what else is written to this disk meanwhile.
    PF_RETURN_IF_ERROR(reserve_.Check(got));
    hash.Update(piece.data(), got);
    PF_RETURN_IF_ERROR(writer.Append(piece.data(), got));
    PF_RETURN_IF_ERROR(Tell(static_cast<int64_t>(got)));
  }
  const uint64_t bytes = writer.size();
  PF_RETURN_IF_ERROR(writer.SyncAndClose());
  files_[to] = {.bytes = bytes, .xxh3 = HashHex(hash.Digest())};
  return absl::OkStatus();
}

absl::Status Copier::CopyFolder(const std::string& from, const std::string& to) {
  PF_ASSIGN_OR_RETURN(auto names, ListDirectory(from_ / from));
  if (!names) return absl::NotFoundError(absl::StrCat((from_ / from).string(), ": is not there"));
  std::ranges::sort(*names);
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    const std::string source = absl::StrCat(from, "/", name), target = absl::StrCat(to, "/", name);
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from_ / source, error);
    if (fs::is_directory(status)) {
      PF_RETURN_IF_ERROR(CopyFolder(source, target));
    } else if (fs::is_regular_file(status) || !fs::exists(status)) {
      PF_RETURN_IF_ERROR(CopyFile(source, target));
    }
  }
  return absl::OkStatus();
}

absl::Status Copier::Take(const std::string& path) {
  const fs::path target = to_ / path;
  PF_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(target));
  StreamHash hash;
  std::vector<char> piece(kPieceBytes);
  uint64_t bytes = 0;
  while (true) {
    PF_ASSIGN_OR_RETURN(const size_t got, ReadPiece(file, target, piece));
    if (got == 0) break;
    hash.Update(piece.data(), got);
    bytes += got;
  }
  if (fsync(file.get()) != 0) return SystemError(errno, target, "sync");
  files_[path] = {.bytes = bytes, .xxh3 = HashHex(hash.Digest())};
  return Tell(static_cast<int64_t>(bytes));
}

absl::Status Copier::Drop(const std::string& path) {
  PF_RETURN_IF_ERROR(RemoveAll(to_ / path));
  const std::string below = absl::StrCat(path, "/");
  std::erase_if(files_, [&](const auto& file) { return file.first == path || file.first.starts_with(below); });
  return absl::OkStatus();
}

absl::Status Copier::SyncFolders() const {
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(to_, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (it->is_directory(error)) PF_RETURN_IF_ERROR(SyncDirectory(it->path()));
  }
  if (error) return SystemError(error.value(), to_, "list");
  return absl::OkStatus();
}

int64_t Copier::bytes() const {
  uint64_t sum = 0;
  for (const auto& [path, file] : files_) sum += file.bytes;
  return static_cast<int64_t>(sum);
}

int64_t BytesBelow(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(path, error))) {
    const uintmax_t bytes = fs::file_size(path, error);
    return error ? 0 : static_cast<int64_t>(bytes);
  }
  int64_t sum = 0;
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_symlink(ignored) && it->is_regular_file(ignored)) {
      const uintmax_t bytes = it->file_size(ignored);
      if (!ignored) sum += static_cast<int64_t>(bytes);
    }
  }
  return sum;
}

}  // namespace permafrost::backup
