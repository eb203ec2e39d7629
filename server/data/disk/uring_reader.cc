#ifdef PERMAFROST_URING

#include "data/disk/disk_reader_impl.h"

#include <liburing.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost {
namespace {

absl::Status CannotBeUsed(int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("io_uring cannot be used (", std::generic_category().message(error), ")"));
}

// The kernel's answer to the part of a read.
struct Answer {
  int slot = 0;
  int result = 0;
};

class UringReader final : public SlotReader {
 public:
  UringReader(std::shared_ptr<const DiskFile> opened, const Options& how, std::string why, DiskPages buffer)
      : SlotReader(std::move(opened), how, std::move(why), std::move(buffer)) {}

  ~UringReader() override {
    if (!made_) return;
    // Else the kernel may still write there: better lost than given to someone else.
    if (!Drain()) LosePages();
    io_uring_queue_exit(&ring_);
  }

  // Once, before anything else.
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
      // Finished reads need no wait; started ones go to the kernel first.
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
  // One read by the ring itself: a kernel may let it be made and not used, or be too old for this operation.
  absl::Status Try() {
    if (file_bytes() == 0) return absl::OkStatus();
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return CannotBeUsed(EIO);
    Prepare(*entry, pages(), kDiskPageBytes, 0, 0);
    if (!Enter(1).ok()) return CannotBeUsed(EPERM);
    TakeAnswers();
    const int result = answers_.empty() ? -EIO : answers_.front().result;
    // Other errors are of the disk, and are told by the read that meets them.
    const bool refused = result == -EINVAL || result == -EOPNOTSUPP || result == -EPERM || result == -EACCES;
    return refused ? CannotBeUsed(-result) : absl::OkStatus();
  }

  absl::Status StartSlot(int slot) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      // The ring's entries are as many as its slots, but the kernel has not taken those before yet.
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

  // The kernel takes what is prepared, and so many answers are waited for.
  absl::Status Enter(unsigned answers) {
    constexpr int kMostTries = 1000;
    for (int tries = 0;;) {
      const int submitted = io_uring_submit_and_wait(&ring_, answers);
      if (submitted >= 0) in_kernel_ += submitted;
      // Short of memory it takes a part of them, and does not wait then.
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

  // Returns whether the kernel has answered all that it took.
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
  int in_kernel_ = 0;  // parts that it took and has not answered
  std::vector<Answer> answers_;
  std::vector<int> done_;  // slots that are not handed over yet
};

}  // namespace

absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback) {
  DiskPages buffer = AllocateDiskPages(static_cast<size_t>(options.depth) * options.max_read_bytes);
  if (buffer == nullptr) return SystemError(ENOMEM, file->path, "make buffers to read it");
  auto reader = std::make_unique<UringReader>(std::move(file), options, std::move(fallback), std::move(buffer));
  PF_RETURN_IF_ERROR(reader->Make());
  return reader;
}

}  // namespace permafrost

#endif
