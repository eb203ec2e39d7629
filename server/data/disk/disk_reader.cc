#include "data/disk/disk_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "data/disk/disk_reader_impl.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

constexpr std::align_val_t kPageAlignment{kDiskPageBytes};

std::string NotDirect(int error) {
  return absl::StrCat("the file system refuses direct reads (", std::generic_category().message(error),
                      "): they go through the page cache");
}

#ifdef O_DIRECT
// Returns 0 if direct reads of whole pages work, else the errno that rules them out.
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

namespace {

constexpr int kMaxReadThreads = 32;

// Reads by threads that call pread: where there is no io_uring. Threads: as DiskReader. It starts a thread of its own
// when a read needs one, at most kMaxReadThreads, and ends them with itself.
class PreadReader final : public SlotReader {
 public:
  PreadReader(std::shared_ptr<const DiskFile> opened, const Options& how, std::string why, DiskPages buffer)
      : SlotReader(std::move(opened), how, std::move(why), std::move(buffer)) {}

  ~PreadReader() override {
    {
      const absl::MutexLock lock(&mu_);
      stopping_ = true;
      work_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  DiskReaderKind kind() const override { return DiskReaderKind::kPread; }
  absl::Status Flush() override { return absl::OkStatus(); }

  absl::StatusOr<int> Await() override {
    if (in_flight() == 0) return 0;
    const absl::MutexLock lock(&mu_);
    while (ready_.empty()) done_.Wait(&mu_);
    return static_cast<int>(ready_.size());
  }

  absl::Status Wait(Done done) override {
    PF_RETURN_IF_ERROR(Await().status());
    std::vector<int> ready;
    {
      const absl::MutexLock lock(&mu_);
      ready.swap(ready_);
    }
    for (const int slot : ready) HandOver(slot, done);
    return absl::OkStatus();
  }

 private:
  absl::Status StartSlot(int slot) override {
    const absl::MutexLock lock(&mu_);
    const bool more = idle_ <= static_cast<int>(wanted_.size()) && StartThread();
    // One thread is enough to read everything, only with fewer reads at once.
    if (!more && threads_.empty()) return SystemError(EAGAIN, file().path, "start a thread to read it");
    wanted_.push_back(slot);
    work_.Signal();
    return absl::OkStatus();
  }

  // Returns whether there is one more.
  bool StartThread() {
    if (threads_.size() >= static_cast<size_t>(std::min(depth(), kMaxReadThreads))) return false;
    try {
      threads_.emplace_back([this] { Work(); });
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void Work() {
    for (;;) {
      int slot;
      {
        const absl::MutexLock lock(&mu_);
        ++idle_;
        while (wanted_.empty() && !stopping_) work_.Wait(&mu_);
        --idle_;
        if (stopping_) return;
        slot = wanted_.front();
        wanted_.pop_front();
      }
      while (!Answered(slot, ReadPart(slot))) {
      }
      const absl::MutexLock lock(&mu_);
      ready_.push_back(slot);
      done_.Signal();
    }
  }

  int64_t ReadPart(int slot) const {
    const PartialRead& next = part(slot);
    const ssize_t n = pread(file().descriptor.get(), Target(slot), next.bytes(), static_cast<off_t>(next.offset()));
    return n < 0 ? -errno : n;
  }

  std::vector<std::thread> threads_;  // the caller's

  absl::Mutex mu_;
  absl::CondVar work_;  // a slot is wanted, or all stop
  absl::CondVar done_;  // a slot is ready
  std::deque<int> wanted_ ABSL_GUARDED_BY(mu_);
  std::vector<int> ready_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;  // threads that wait for work
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

absl::StatusOr<std::unique_ptr<DiskReader>> OpenPreadReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback) {
  DiskPages buffer = AllocateDiskPages(static_cast<size_t>(options.depth) * options.max_read_bytes);
  if (buffer == nullptr) return SystemError(ENOMEM, file->path, "make buffers to read it");
  return std::make_unique<PreadReader>(std::move(file), options, std::move(fallback), std::move(buffer));
}

absl::Status CheckOptions(const DiskReader::Options& options) {
  // The most bytes that all buffers take together.
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  Violations violations;
  if (options.depth < 1 || options.depth > DiskReader::kMaxDepth) {
    violations.Add("depth", absl::StrCat(options.depth, " is outside 1..", DiskReader::kMaxDepth));
  }
  const uint32_t longest = options.max_read_bytes;
  if (longest == 0 || longest % kDiskPageBytes != 0 || longest > DiskReader::kMaxReadBytes) {
    violations.Add("max_read_bytes", absl::StrCat(longest, " is no multiple of ", kDiskPageBytes, " in ",
                                                  kDiskPageBytes, "..", DiskReader::kMaxReadBytes));
  } else if (violations.empty() && static_cast<uint64_t>(options.depth) * longest > kMostBytes) {
    violations.Add("depth", absl::StrCat(options.depth, " reads of ", longest, " bytes need more than ", kMostBytes,
                                         " bytes of buffers"));
  }
  return violations.ToStatus();
}

std::string Both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : absl::StrCat(a, "; ", b);
}

}  // namespace

#ifndef PERMAFROST_URING
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> /*file*/,
                                                            const DiskReader::Options& /*options*/,
                                                            std::string /*fallback*/) {
  return absl::FailedPreconditionError("io_uring cannot be used (this build is without it)");
}
#endif

absl::StatusOr<std::unique_ptr<DiskReader>> DiskReader::Open(const std::filesystem::path& path,
                                                             const Options& options) {
  PF_RETURN_IF_ERROR(CheckOptions(options));
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<const DiskFile> file, DiskFile::Open(path, options.direct));
  if (options.kind == DiskReaderKind::kPread) return OpenPreadReader(file, options, file->fallback);
  absl::StatusOr<std::unique_ptr<DiskReader>> ring = OpenUringReader(file, options, file->fallback);
  if (ring.ok() || !absl::IsFailedPrecondition(ring.status())) return ring;
  if (options.kind) return Annotate(ring.status(), path.string());
  return OpenPreadReader(file, options,
                         Both(absl::StrCat(ring.status().message(), ": threads read by pread"), file->fallback));
}

}  // namespace permafrost
