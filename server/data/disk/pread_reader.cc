#include "data/disk/disk_reader_impl.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace permafrost {
namespace {

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
    // By one thread all is read, only not so many at once.
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

}  // namespace

absl::StatusOr<std::unique_ptr<DiskReader>> OpenPreadReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback) {
  DiskPages buffer = AllocateDiskPages(static_cast<size_t>(options.depth) * options.max_read_bytes);
  if (buffer == nullptr) return SystemError(ENOMEM, file->path, "make buffers to read it");
  return std::make_unique<PreadReader>(std::move(file), options, std::move(fallback), std::move(buffer));
}

}  // namespace permafrost
