// UploadWriter (upload_store.h).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/catalog/upload_store.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

absl::Status WriteAll(const Descriptor& file, const fs::path& path, std::string_view data, int64_t offset) {
  while (!data.empty()) {
    const ssize_t wrote = pwrite(file.get(), data.data(), data.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return SystemError(errno, path, "write");
    data.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HashOf(const Descriptor& file, const fs::path& path) {
  constexpr size_t kAtOnce = size_t{1} << 20;
  std::vector<char> piece(kAtOnce);
  StreamHash hash;
  for (int64_t offset = 0;;) {
    const ssize_t read = pread(file.get(), piece.data(), piece.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError(errno, path, "read");
    if (read == 0) return hash.Digest();
    hash.Update(piece.data(), static_cast<size_t>(read));
    offset += read;
  }
}

}  // namespace

UploadWriter::UploadWriter(UploadStore& store, UploadId id, std::vector<UploadFile> files)
    : store_(store), id_(std::move(id)), files_(std::move(files)), received_(files_.size()) {}

UploadWriter::~UploadWriter() {
  const absl::MutexLock lock(&store_.mu_);
  store_.account_.SetSending(id_, false);
}

void UploadWriter::CountReceived() {
  store_.account_.SetReceived(id_,
                              static_cast<uint64_t>(std::accumulate(received_.begin(), received_.end(), int64_t{0})));
}

fs::path UploadWriter::PathOf(size_t file) const { return store_.FolderOf(id_) / kUploadFiles / files_[file].path; }

absl::Status UploadWriter::Load() {
  bool all = true;
  for (size_t i = 0; i < files_.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const int64_t bytes, BytesAt(PathOf(i)));
    // More than was declared nobody sent.
    received_[i] = bytes > files_[i].bytes ? 0 : bytes;
    all = all && received_[i] == files_[i].bytes;
  }
  CountReceived();
  const fs::path marker = store_.FolderOf(id_) / kUploadComplete;
  complete_ = all && IsRegular(marker);
  // It stands for bytes that are lost: those that come in their place are not checked yet.
  return all ? absl::OkStatus() : RemoveAll(marker);
}

absl::Status UploadWriter::OpenFile(size_t file) {
  if (descriptor_ && open_ == file) return absl::OkStatus();
  const fs::path path = PathOf(file);
  PF_RETURN_IF_ERROR(CreateDirectories(path.parent_path()));
  descriptor_ = std::make_unique<Descriptor>(OpenRetrying(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644));
  open_ = file;
  if (!descriptor_->valid()) {
    descriptor_.reset();
    return SystemError(errno, path, "open");
  }
  if (ftruncate(descriptor_->get(), received_[file]) != 0) return SystemError(errno, path, "cut");
  return absl::OkStatus();
}

absl::Status UploadWriter::Append(int64_t file, int64_t offset, std::string_view data, uint64_t xxh3) {
  if (file < 0 || file >= std::ssize(files_)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk.file: ", file, " is outside 0..", files_.size() - 1));
  }
  const auto i = static_cast<size_t>(file);
  if (offset != received_[i]) {
    return absl::FailedPreconditionError(absl::StrCat(files_[i].path, ": chunk.offset: ", offset, " is not ",
                                                      received_[i], ", what was received of it"));
  }
  const auto bytes = static_cast<int64_t>(data.size());
  if (bytes > files_[i].bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat(files_[i].path, ": chunk.data: ends at byte ", offset + bytes,
                                                   " of ", files_[i].bytes, " that were declared"));
  }
  if (Hash64(data) != xxh3) {
    return absl::DataLossError(
        absl::StrCat(files_[i].path, ": chunk.data: from byte ", offset, " on is not what its checksum says"));
  }
  PF_RETURN_IF_ERROR(store_.options_.reserve.Check(data.size()));
  PF_RETURN_IF_ERROR(OpenFile(i));
  PF_RETURN_IF_ERROR(WriteAll(*descriptor_, PathOf(i), data, offset));
  received_[i] += bytes;
  CountReceived();
  return absl::OkStatus();
}

absl::Status UploadWriter::CheckFile(size_t file) {
  PF_RETURN_IF_ERROR(OpenFile(file));
  const fs::path path = PathOf(file);
  PF_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(*descriptor_, path));
  if (HashHex(hash) != files_[file].xxh3) {
    received_[file] = 0;
    CountReceived();
    if (ftruncate(descriptor_->get(), 0) != 0) return SystemError(errno, path, "cut");
    return absl::DataLossError(absl::StrCat(files_[file].path, ": has XXH3 ", HashHex(hash), ", and ",
                                            files_[file].xxh3, " was declared; send it again"));
  }
  return fsync(descriptor_->get()) == 0 ? absl::OkStatus() : SystemError(errno, path, "sync");
}

absl::Status UploadWriter::SyncFolders() const {
  const fs::path folder = store_.FolderOf(id_);
  std::set<fs::path> folders = {folder};
  for (size_t i = 0; i < files_.size(); ++i) {
    for (fs::path at = PathOf(i).parent_path(); folders.insert(at).second;) at = at.parent_path();
  }
  for (const fs::path& path : folders) PF_RETURN_IF_ERROR(SyncDirectory(path));
  return absl::OkStatus();
}

absl::Status UploadWriter::Finish() {
  if (complete_) return absl::OkStatus();
  for (size_t i = 0; i < files_.size(); ++i) {
    if (received_[i] != files_[i].bytes) return absl::OkStatus();
  }
  for (size_t i = 0; i < files_.size(); ++i) PF_RETURN_IF_ERROR(CheckFile(i));
  PF_RETURN_IF_ERROR(SyncFolders());
  PF_RETURN_IF_ERROR(WriteFileAtomic(store_.FolderOf(id_) / kUploadComplete, ""));
  complete_ = true;
  return absl::OkStatus();
}

}  // namespace permafrost::data
