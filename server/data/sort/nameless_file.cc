#include "data/sort/nameless_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::data {

absl::StatusOr<NamelessFile> NamelessFile::Create(const std::filesystem::path& directory) {
  std::string path = (directory / "sort.XXXXXX").string();
  Descriptor file(mkstemp(path.data()));
  if (!file.valid()) return SystemError(errno, path, "create");
  fcntl(file.get(), F_SETFD, FD_CLOEXEC);
  if (unlink(path.c_str()) != 0) return SystemError(errno, path, "unlink");
  return NamelessFile(directory, std::move(file));
}

absl::Status NamelessFile::Write(uint64_t offset, std::span<const std::byte> bytes, const std::stop_token& stop) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  while (!bytes.empty()) {
    PF_RETURN_IF_ERROR(CheckStop(stop));
    const ssize_t n =
        pwrite(file_->get(), bytes.data(), std::min(bytes.size(), kPieceBytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return AsTransient(absl::ResourceExhaustedError(
          absl::StrCat(directory_.string(), ": no space left for what the import keeps here while it sorts, after ",
                       size_, " bytes of one file; free some, or give it more memory (options.memory_bytes)")));
    }
    if (n < 0) return SystemError(errno, directory_, "write a temporary file in it");
    offset += static_cast<uint64_t>(n);
    size_ = std::max(size_, offset);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status NamelessFile::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(file_->get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(errno, directory_, "read a temporary file in it");
    if (n == 0) return absl::DataLossError(absl::StrCat(directory_.string(), ": a temporary file in it was cut short"));
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status WaitingColumn::AppendBytes(std::span<const std::byte> bytes) {
  constexpr size_t kBufferBytes = size_t{1} << 19;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status WaitingColumn::Flush() {
  if (file_ == nullptr) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
    file_ = std::make_unique<NamelessFile>(std::move(file));
  }
  PF_RETURN_IF_ERROR(file_->Append(buffer_, stop_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status WaitingColumn::MoveTo(GraphWriter& writer, SectionKind kind, ElementType type, uint32_t width) {
  PF_RETURN_IF_ERROR(writer.Begin(kind, type, width));
  return Drain(1, [&writer](std::span<const std::byte> bytes) { return writer.Append(bytes); });
}

absl::Status WaitingColumn::Drain(uint64_t row_bytes,
                                  const std::function<absl::Status(std::span<const std::byte>)>& take) {
  if (file_ != nullptr) {
    constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
    const uint64_t most = std::max<uint64_t>(1, kPieceBytes / row_bytes) * row_bytes;
    std::vector<std::byte> piece(most);
    for (uint64_t at = 0; at < file_->size(); at += most) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      const auto bytes = std::span(piece).first(static_cast<size_t>(std::min(most, file_->size() - at)));
      PF_RETURN_IF_ERROR(file_->Read(at, bytes));
      PF_RETURN_IF_ERROR(take(bytes));
    }
    file_.reset();
  }
  PF_RETURN_IF_ERROR(take(buffer_));
  std::vector<std::byte>().swap(buffer_);
  return absl::OkStatus();
}

}  // namespace permafrost::data
