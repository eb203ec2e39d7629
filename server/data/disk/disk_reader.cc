#include "data/disk/disk_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef PERMAFROST_URING
#include <liburing.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

// Parts that every kind of DiskReader has: the opened file, and a slot for each read that may be in flight. Threads:
// a DiskFile is safe anywhere once it is open; a PartialRead belongs to one thread at a time.

struct DiskFile {
  std::filesystem::path path;
  Descriptor descriptor;
  uint64_t bytes = 0;
  bool direct = false;
  std::string fallback;  // why reads are not direct if direct reads were asked for; empty otherwise

  // Opens the file. One trial read tells whether direct reads work.
  static absl::StatusOr<std::shared_ptr<const DiskFile>> Open(const std::filesystem::path& path, bool direct);
  // Returns the InvalidArgument of DiskReader::Start, or Ok.
  absl::Status Check(const DiskRead& read, uint32_t max_read_bytes) const;
  // Drops the pages of a read from the page cache.
  void DropFromCache(const DiskRead& read) const;
};

// Memory in whole pages, aligned to a page. The pointer is null if the memory could not be allocated.
struct FreePages {
  void operator()(std::byte* pages) const;
};
using DiskPages = std::unique_ptr<std::byte, FreePages>;
DiskPages AllocateDiskPages(size_t bytes);

// A read in progress. The system may answer it in parts. Each part begins at a page boundary.
class PartialRead {
 public:
  PartialRead() = default;
  PartialRead(const DiskRead& read, uint64_t file_bytes);

  const DiskRead& read() const { return read_; }
  // Returns the number of bytes that are handed over at the end.
  uint32_t wanted() const { return wanted_; }
  // The next part to ask for: bytes() bytes at offset(), written to position have() of the buffer.
  uint64_t offset() const { return read_.offset + have_; }
  uint32_t have() const { return have_; }
  uint32_t bytes() const { return read_.bytes - have_; }

  enum class Next { kDone, kAgain };
  // Takes the system's answer to a part: a number of bytes, or -errno. Returns kAgain after EINTR, EAGAIN and short
  // answers.
  absl::StatusOr<Next> Take(const DiskFile& file, int64_t result);

 private:
  absl::StatusOr<Next> WithoutProgress(const DiskFile& file, int error);

  DiskRead read_;
  uint32_t wanted_ = 0;
  uint32_t have_ = 0;
  int idle_ = 0;  // consecutive answers without progress
};

// The base of every kind of reader. It has a slot, with a buffer, for each read that may be in flight. Threads: same
// as DiskReader. A slot in flight belongs to the thread that reads it.
class SlotReader : public DiskReader {
 public:
  bool direct() const final { return file_->direct; }
  const std::string& fallback() const final { return fallback_; }
  int depth() const final { return options_.depth; }
  int in_flight() const final { return options_.depth - static_cast<int>(free_.size()); }
  uint64_t file_bytes() const final { return file_->bytes; }
  absl::Status Start(const DiskRead& read) final;

 protected:
  SlotReader(std::shared_ptr<const DiskFile> file, Options options, std::string fallback, DiskPages buffer);

  const DiskFile& file() const { return *file_; }
  const Options& options() const { return options_; }
  std::byte* pages() const { return buffer_.get(); }
  size_t pages_bytes() const { return static_cast<size_t>(options_.depth) * options_.max_read_bytes; }
  // Leaks the buffers on purpose: they are never returned to the system.
  void LosePages() { [[maybe_unused]] const std::byte* const lost = buffer_.release(); }

  // Returns the next part of the slot's read. Its bytes go to Target(slot).
  const PartialRead& part(int slot) const { return slots_[static_cast<size_t>(slot)].read; }
  std::byte* Target(int slot) const {
    return pages() + static_cast<size_t>(slot) * options_.max_read_bytes + part(slot).have();
  }
  // Takes the system's answer to part(slot). Returns true if the slot is done. Otherwise part(slot) is the next part
  // to read.
  bool Answered(int slot, int64_t result);
  // Hands the slot's read over to the caller. Then the slot is free.
  void HandOver(int slot, Done done);

 private:
  struct Slot {
    PartialRead read;
    absl::Status status;
  };

  // Starts the new read that was put into the slot.
  virtual absl::Status StartSlot(int slot) = 0;

  const std::shared_ptr<const DiskFile> file_;
  const Options options_;
  const std::string fallback_;
  DiskPages buffer_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
};

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
  // Any other error is a fault of the disk, which later reads will report.
  return n < 0 && errno == EINVAL ? EINVAL : 0;
}

Descriptor OpenDirect(const fs::path& path, int& error) {
  Descriptor file = OpenRetrying(path, O_RDONLY | O_DIRECT);
  error = file.valid() ? TryDirect(file.get()) : errno;
  return file;
}
#else
// macOS: F_NOCACHE requires no alignment, and the cache keeps nothing of what is read.
Descriptor OpenDirect(const fs::path& path, int& error) {
  Descriptor file = OpenRetrying(path, O_RDONLY);
  error = !file.valid() ? errno : fcntl(file.get(), F_NOCACHE, 1) == 0 ? 0 : EINVAL;
  return file;
}
#endif

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
  // An error here means that there was nothing to drop, which is fine.
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

constexpr int kMaxReadThreads = 32;

// Reads by threads that call pread, for systems without io_uring. Threads: same as DiskReader. The reader starts its
// own threads on demand, at most kMaxReadThreads, and joins them in its destructor.
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
    // The reader works with a single thread too, with fewer reads at once.
    if (!more && threads_.empty()) return SystemError(EAGAIN, file().path, "start a thread to read it");
    wanted_.push_back(slot);
    work_.Signal();
    return absl::OkStatus();
  }

  // Starts one more thread. Returns false if the limit is reached or the system refuses.
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

  std::vector<std::thread> threads_;  // used by the caller's thread only

  absl::Mutex mu_;
  absl::CondVar work_;  // signalled for a wanted slot, and when all threads shall stop
  absl::CondVar done_;  // signalled when a slot is ready
  std::deque<int> wanted_ ABSL_GUARDED_BY(mu_);
  std::vector<int> ready_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;  // threads waiting for work
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

absl::StatusOr<std::unique_ptr<DiskReader>> OpenPreadReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback) {
  DiskPages buffer = AllocateDiskPages(static_cast<size_t>(options.depth) * options.max_read_bytes);
  if (buffer == nullptr) return SystemError(ENOMEM, file->path, "make buffers to read it");
  return std::make_unique<PreadReader>(std::move(file), options, std::move(fallback), std::move(buffer));
}

#ifdef PERMAFROST_URING
absl::Status CannotBeUsed(int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("io_uring cannot be used (", std::generic_category().message(error), ")"));
}

// The kernel's answer to one part of a read.
struct Answer {
  int slot = 0;
  int result = 0;
};

// Reads by one io_uring (Linux). One system call passes all started reads to the kernel and waits for the first that
// finishes. The file is registered with the ring. The buffers are registered too, if the limit of locked memory
// allows it. Threads: same as DiskReader.
class UringReader final : public SlotReader {
 public:
  UringReader(std::shared_ptr<const DiskFile> opened, const Options& how, std::string why, DiskPages buffer)
      : SlotReader(std::move(opened), how, std::move(why), std::move(buffer)) {}

  ~UringReader() override {
    if (!made_) return;
    // If Drain fails, the kernel may still write into the buffers. Leaking them is safer than reusing the memory.
    if (!Drain()) LosePages();
    io_uring_queue_exit(&ring_);
  }

  // Call it once, before anything else.
  absl::Status Make() {
    const int made = io_uring_queue_init(static_cast<unsigned>(depth()), &ring_, 0);
    if (made < 0) return CannotBeUsed(-made);
    made_ = true;
    const int descriptor = file().descriptor.get();
    file_registered_ = io_uring_register_files(&ring_, &descriptor, 1) == 0;
    const iovec all{.iov_base = pages(), .iov_len = pages_bytes()};
    pages_registered_ = io_uring_register_buffers(&ring_, &all, 1) == 0;
    return Try();
  }

  DiskReaderKind kind() const override { return DiskReaderKind::kUring; }

  absl::Status Flush() override { return Enter(0); }

  absl::StatusOr<int> Await() override {
    while (done_.empty() && in_flight() > 0) {
      // If a read has finished, there is no need to wait. Started reads must still be passed to the kernel first.
      PF_RETURN_IF_ERROR(Enter(io_uring_cq_ready(&ring_) == 0 ? 1 : 0));
      TakeAnswers();
      for (const Answer& answer : answers_) {
        if (Answered(answer.slot, answer.result)) {
          done_.push_back(answer.slot);
        } else {
          PF_RETURN_IF_ERROR(StartSlot(answer.slot));
        }
      }
    }
    return static_cast<int>(done_.size());
  }

  absl::Status Wait(Done done) override {
    PF_RETURN_IF_ERROR(Await().status());
    for (const int slot : std::exchange(done_, {})) HandOver(slot, done);
    return absl::OkStatus();
  }

 private:
  // Makes one trial read. Some kernels let a ring be created but forbid its use, or are too old for the read
  // operation.
  absl::Status Try() {
    if (file_bytes() == 0) return absl::OkStatus();
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return CannotBeUsed(EIO);
    Prepare(*entry, pages(), kDiskPageBytes, 0, 0);
    if (!Enter(1).ok()) return CannotBeUsed(EPERM);
    TakeAnswers();
    const int result = answers_.empty() ? -EIO : answers_.front().result;
    // Any other error is a fault of the disk, which later reads will report.
    const bool refused = result == -EINVAL || result == -EOPNOTSUPP || result == -EPERM || result == -EACCES;
    return refused ? CannotBeUsed(-result) : absl::OkStatus();
  }

  absl::Status StartSlot(int slot) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      // There are as many entries as slots, but the kernel may not have taken the earlier entries yet. Enter passes
      // them on.
      PF_RETURN_IF_ERROR(Enter(0));
      entry = io_uring_get_sqe(&ring_);
    }
    if (entry == nullptr) return absl::InternalError(absl::StrCat(file().path.string(), ": io_uring takes no reads"));
    Prepare(*entry, Target(slot), part(slot).bytes(), part(slot).offset(), slot);
    return absl::OkStatus();
  }

  void Prepare(io_uring_sqe& entry, std::byte* to, uint32_t bytes, uint64_t offset, int slot) const {
    const int descriptor = file_registered_ ? 0 : file().descriptor.get();
    if (pages_registered_) {
      io_uring_prep_read_fixed(&entry, descriptor, to, bytes, offset, 0);
    } else {
      io_uring_prep_read(&entry, descriptor, to, bytes, offset);
    }
    if (file_registered_) entry.flags |= IOSQE_FIXED_FILE;
    entry.user_data = static_cast<uint64_t>(slot);
  }

  // Submits all prepared entries to the kernel and waits for `answers` answers.
  absl::Status Enter(unsigned answers) {
    constexpr int kMostTries = 1000;
    for (int tries = 0;;) {
      const int submitted = io_uring_submit_and_wait(&ring_, answers);
      if (submitted >= 0) in_kernel_ += submitted;
      // A kernel that is short of memory takes only some of the entries, and then returns without waiting.
      if (submitted >= 0 && (answers == 0 || io_uring_cq_ready(&ring_) > 0)) return absl::OkStatus();
      if (submitted >= 0 || submitted == -EINTR) continue;
      const bool later = submitted == -EAGAIN || submitted == -EBUSY;
      if (later && io_uring_cq_ready(&ring_) > 0) return absl::OkStatus();
      if (!later || ++tries > kMostTries) return SystemError(-submitted, file().path, "read by io_uring");
      std::this_thread::yield();
    }
  }

  void TakeAnswers() {
    answers_.clear();
    io_uring_cqe* answer = nullptr;
    unsigned head = 0;
    io_uring_for_each_cqe(&ring_, head, answer) {
      answers_.push_back({.slot = static_cast<int>(answer->user_data), .result = answer->res});
    }
    io_uring_cq_advance(&ring_, static_cast<unsigned>(answers_.size()));
    in_kernel_ -= static_cast<int>(answers_.size());
  }

  // Returns true once the kernel has answered all parts that it took.
  bool Drain() {
    while (in_kernel_ > 0) {
      io_uring_cqe* answer = nullptr;
      const int waited = io_uring_wait_cqe(&ring_, &answer);
      if (waited == -EINTR) continue;
      if (waited < 0) return false;
      TakeAnswers();
    }
    return true;
  }

  io_uring ring_{};
  bool made_ = false;
  bool file_registered_ = false;
  bool pages_registered_ = false;
  int in_kernel_ = 0;  // parts that the kernel took and has not answered yet
  std::vector<Answer> answers_;
  std::vector<int> done_;  // finished slots that are not handed over yet
};

// Opens a UringReader; a trial read shows whether io_uring works. Errors: FailedPrecondition "io_uring cannot be used
// (REASON)" if the kernel lacks io_uring, a container forbids it, or this program was built without it.
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback) {
  DiskPages buffer = AllocateDiskPages(static_cast<size_t>(options.depth) * options.max_read_bytes);
  if (buffer == nullptr) return SystemError(ENOMEM, file->path, "make buffers to read it");
  auto reader = std::make_unique<UringReader>(std::move(file), options, std::move(fallback), std::move(buffer));
  PF_RETURN_IF_ERROR(reader->Make());
  return reader;
}
#else
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> /*file*/,
                                                            const DiskReader::Options& /*options*/,
                                                            std::string /*fallback*/) {
  return absl::FailedPreconditionError("io_uring cannot be used (this build is without it)");
}
#endif

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
