#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost {

// One slot of the table that the signal handler reads, without locks. `end` is 0 while the slot is free. Of all
// members, `end` is written last and cleared first.
struct MappedWatch {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> zeroed{false};  // true: a read failed, and the mapping has contained zeros since then
};

namespace {

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::array<MappedWatch, MappedFile::kMaxMappings> watches;
struct sigaction previous_action;
std::uintptr_t page_size = 0;  // written before the handler is installed

// Maps zeros from the failed page to the end of the mapping. The kernel then repeats the read, and it succeeds.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (MappedWatch& watch : watches) {
    const std::uintptr_t end = watch.end.load(std::memory_order_acquire);
    if (address < watch.begin.load(std::memory_order_acquire) || address >= end) continue;
    // Reads `end` again. If it has changed, the slot passed to another mapping meanwhile, and `begin` may belong to
    // that one.
    if (watch.end.load(std::memory_order_acquire) != end) continue;
    const int error = errno;
    const std::uintptr_t into_page = address % page_size;
    void* const page = static_cast<char*>(info->si_addr) - into_page;
    void* const zeros =
        mmap(page, end - (address - into_page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = error;
    if (zeros == MAP_FAILED) break;
    watch.zeroed.store(true, std::memory_order_release);
    return;
  }
  // The failed address is in no mapping of this table. The handler then does what would happen without it.
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = &OnBusError;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

MappedWatch* TakeWatch() {
  for (MappedWatch& watch : watches) {
    if (!watch.taken.exchange(true, std::memory_order_acq_rel)) return &watch;
  }
  return nullptr;
}

}  // namespace

void AdviseWillNeed(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()), into_page = begin % page;
  // This is only advice: if it fails, reading takes longer.
  madvise(const_cast<std::byte*>(bytes.data()) - into_page, bytes.size() + into_page, MADV_WILLNEED);
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::filesystem::path& path, Access access) {
  InstallHandler();
  Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) return absl::InternalError(absl::StrCat(path.string(), ": not a regular file"));
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::byte* data = nullptr;
  MappedWatch* watch = nullptr;
  if (size > 0) {  // mmap refuses a length of 0
    watch = TakeWatch();
    if (watch == nullptr) {
      return AsTransient(absl::ResourceExhaustedError(
          absl::StrCat(path.string(), ": ", kMaxMappings, " files are mapped already, which is the most at once")));
    }
    void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapping == MAP_FAILED) {
      const int error = errno;
      watch->taken.store(false, std::memory_order_release);
      return SystemError(error, path, "map");
    }
    // If this advice fails, reading takes longer, as above.
    if (access == Access::kRandom) madvise(mapping, size, MADV_RANDOM);
    data = static_cast<const std::byte*>(mapping);
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping);
    watch->zeroed.store(false, std::memory_order_release);
    watch->begin.store(begin, std::memory_order_release);
    // `end` is the end of the last page and not of the file, because the handler may map zeros up to there.
    watch->end.store(begin + (size + page_size - 1) / page_size * page_size, std::memory_order_release);
  }
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, std::move(file), data, size, ModifiedNanoseconds(info), watch));
}

MappedFile::MappedFile(std::filesystem::path path, Descriptor file, const std::byte* data, std::uint64_t size,
                       std::int64_t modified, MappedWatch* watch)
    : path_(std::move(path)), file_(std::move(file)), data_(data), size_(size), modified_(modified), watch_(watch) {}

MappedFile::~MappedFile() {
  if (watch_ == nullptr) return;
  watch_->end.store(0, std::memory_order_release);
  munmap(const_cast<std::byte*>(data_), size_);
  watch_->taken.store(false, std::memory_order_release);
}

absl::Status MappedFile::CheckIntact() const {
  const auto changed = [this](std::string_view how) {
    return absl::DataLossError(
        absl::StrCat(path_.string(), ": was ", absl::string_view(how.data(), how.size()), " while it was in use"));
  };
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return SystemError(errno, path_, "stat");
  const bool zeroed = watch_ != nullptr && watch_->zeroed.load(std::memory_order_acquire);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == size_ && ModifiedNanoseconds(info) == modified_) {
    // The file is unchanged, so zeros mean that the disk failed to read a page.
    return zeroed ? SystemError(EIO, path_, "read") : absl::OkStatus();
  }
  return changed(zeroed || size < size_ ? "cut short" : "written to");
}

}  // namespace permafrost
