#include "data/disk/disk_reader_impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

constexpr std::align_val_t kPageAlignment{kDiskPageBytes};

std::string NotDirect(int error) {
  return absl::StrCat("the file system refuses direct reads (", std::generic_category().message(error),
                      "): they go through the page cache");
}

#ifdef O_DIRECT
// 0, or the errno that direct reads of whole pages fail with.
int TryDirect(int fd) {
  const DiskPages page = AllocateDiskPages(kDiskPageBytes);
  if (page == nullptr) return ENOMEM;
  ssize_t n;
  do {
    n = pread(fd, page.get(), kDiskPageBytes, 0);
  } while (n < 0 && errno == EINTR);
  // Any other error is of the disk, and is told by the read that meets it.
  return n < 0 && errno == EINVAL ? EINVAL : 0;
}

Descriptor OpenDirect(const fs::path& path, int& error) {
  Descriptor file = OpenRetrying(path, O_RDONLY | O_DIRECT);
  error = file.valid() ? TryDirect(file.get()) : errno;
  return file;
}
#else
// macOS: no alignment is asked for, and nothing of what is read stays in the cache.
Descriptor OpenDirect(const fs::path& path, int& error) {
  Descriptor file = OpenRetrying(path, O_RDONLY);
  error = !file.valid() ? errno : fcntl(file.get(), F_NOCACHE, 1) == 0 ? 0 : EINVAL;
  return file;
}
#endif

}  // namespace

absl::StatusOr<std::shared_ptr<const DiskFile>> DiskFile::Open(const fs::path& path, bool direct) {
  int refused = 0;
  Descriptor wanted = direct ? OpenDirect(path, refused) : Descriptor(-1);
  if (refused != 0 && refused != EINVAL) return SystemError(refused, path, "open");
  const bool is_direct = direct && refused == 0;
  Descriptor opened = is_direct ? std::move(wanted) : OpenRetrying(path, O_RDONLY);
  if (!opened.valid()) return SystemError(errno, path, "open");
  struct stat status {};
  if (fstat(opened.get(), &status) != 0) return SystemError(errno, path, "stat");
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is no regular file"));
  return std::make_shared<const DiskFile>(DiskFile{.path = path,
                                                   .descriptor = std::move(opened),
                                                   .bytes = static_cast<uint64_t>(status.st_size),
                                                   .direct = is_direct,
                                                   .fallback = refused == 0 ? "" : NotDirect(refused)});
}

absl::Status DiskFile::Check(const DiskRead& read, uint32_t max_read_bytes) const {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ": a read of ", read.bytes, " bytes at ", read.offset, " ", why...));
  };
  if (read.offset % kDiskPageBytes != 0 || read.bytes % kDiskPageBytes != 0 || read.bytes == 0) {
    return refuse("is not of whole pages of ", kDiskPageBytes);
  }
  if (read.bytes > max_read_bytes) return refuse("is longer than ", max_read_bytes);
  if (read.offset >= bytes) return refuse("begins beyond the end, ", bytes);
  return absl::OkStatus();
}

void DiskFile::DropFromCache(const DiskRead& read) const {
#ifdef POSIX_FADV_DONTNEED
  // It fails where there is nothing to drop, which is as good.
  posix_fadvise(descriptor.get(), static_cast<off_t>(read.offset), static_cast<off_t>(read.bytes), POSIX_FADV_DONTNEED);
#else
  (void)read;
#endif
}

void FreePages::operator()(std::byte* pages) const { ::operator delete(pages, kPageAlignment); }

DiskPages AllocateDiskPages(size_t bytes) {
  return DiskPages(static_cast<std::byte*>(::operator new(bytes, kPageAlignment, std::nothrow)));
}

PartialRead::PartialRead(const DiskRead& read, uint64_t file_bytes)
    : read_(read), wanted_(static_cast<uint32_t>(std::min<uint64_t>(read.bytes, file_bytes - read.offset))) {}

absl::StatusOr<PartialRead::Next> PartialRead::Take(const DiskFile& file, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return WithoutProgress(file, static_cast<int>(-result));
  if (result < 0) {
    return SystemError(static_cast<int>(-result), file.path,
                       absl::StrCat("read ", read_.bytes, " bytes at ", read_.offset));
  }
  const uint64_t have = have_ + static_cast<uint64_t>(result);
  if (have >= wanted_) {
    if (!file.direct) file.DropFromCache(read_);
    return Next::kDone;
  }
  struct stat status {};
  if (fstat(file.descriptor.get(), &status) != 0) return SystemError(errno, file.path, "stat");
  if (static_cast<uint64_t>(status.st_size) < read_.offset + wanted_) {
    return absl::DataLossError(absl::StrCat(file.path.string(), ": is ", status.st_size, " bytes long, not ",
                                            file.bytes, " as when it was opened: of ", read_.bytes, " bytes at ",
                                            read_.offset, " some are missing"));
  }
  const uint32_t before = std::exchange(have_, static_cast<uint32_t>(have / kDiskPageBytes * kDiskPageBytes));
  if (have_ == before) return WithoutProgress(file, EIO);
  idle_ = 0;
  return Next::kAgain;
}

absl::StatusOr<PartialRead::Next> PartialRead::WithoutProgress(const DiskFile& file, int error) {
  constexpr int kMostTries = 1000;
  if (++idle_ > kMostTries) {
    return SystemError(error, file.path, absl::StrCat("read ", read_.bytes, " bytes at ", read_.offset));
  }
  if (error == EAGAIN) std::this_thread::yield();
  return Next::kAgain;
}

SlotReader::SlotReader(std::shared_ptr<const DiskFile> file, Options options, std::string fallback, DiskPages buffer)
    : file_(std::move(file)),
      options_(std::move(options)),
      fallback_(std::move(fallback)),
      buffer_(std::move(buffer)),
      slots_(static_cast<size_t>(options_.depth)) {
  for (int slot = options_.depth - 1; slot >= 0; --slot) free_.push_back(slot);
}

absl::Status SlotReader::Start(const DiskRead& read) {
  PF_RETURN_IF_ERROR(file_->Check(read, options_.max_read_bytes));
  if (free_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_->path.string(), ": ", options_.depth, " reads are in flight, as many as may be"));
  }
  const int slot = free_.back();
  slots_[static_cast<size_t>(slot)] = {.read = PartialRead(read, file_->bytes), .status = absl::OkStatus()};
  PF_RETURN_IF_ERROR(StartSlot(slot));
  free_.pop_back();
  return absl::OkStatus();
}

bool SlotReader::Answered(int slot, int64_t result) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (options_.alter) result = options_.alter(s.read.offset(), s.read.bytes(), result);
  const absl::StatusOr<PartialRead::Next> next = s.read.Take(*file_, result);
  s.status = next.status();
  return !next.ok() || *next == PartialRead::Next::kDone;
}

void SlotReader::HandOver(int slot, Done done) {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  const std::byte* bytes = pages() + static_cast<size_t>(slot) * options_.max_read_bytes;
  if (s.status.ok()) {
    done(s.read.read(), std::span<const std::byte>(bytes, s.read.wanted()));
  } else {
    done(s.read.read(), s.status);
  }
  free_.push_back(slot);
}

}  // namespace permafrost
