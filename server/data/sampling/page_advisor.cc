#include "data/sampling/page_advisor.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "data/sampling/edge_draw.h"

namespace permafrost::data {
namespace {

// A flush samples this many places.
constexpr int64_t kSampledPlaces = 64;
// A flush looks up at most this many adjacent pages at each place.
constexpr uint64_t kSampledPages = 4;
// Weight of the newest flush in the moving average of the resident share.
constexpr double kNewest = 0.25;
// The most ranges given to the kernel in one call.
constexpr size_t kRangesInCall = 512;
constexpr int kPageDigitBits = 11;

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Descriptor OpenSelf() {
#if defined(__linux__) && defined(SYS_pidfd_open) && defined(SYS_process_madvise)
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
#else
  return Descriptor(-1);
#endif
}

// Advises one range. Errors are ignored, since without the advice the pages are still read on access.
void AdviseOne(const iovec& range) { madvise(range.iov_base, range.iov_len, MADV_WILLNEED); }

// Advises many ranges in one call. Returns the number of bytes that the kernel accepted, counted from the first range
// on. On failure, returns a negative value and sets errno.
ssize_t AdviseMany([[maybe_unused]] const Descriptor& self, [[maybe_unused]] std::span<const iovec> ranges) {
#if defined(__linux__) && defined(SYS_pidfd_open) && defined(SYS_process_madvise)
  return syscall(SYS_process_madvise, self.get(), ranges.data(), ranges.size(), MADV_WILLNEED, 0);
#else
  return 0;
#endif
}

void* AddressOf(uint64_t page) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(page * PageBytes()));  // NOLINT(performance-no-int-to-ptr)
}

constexpr std::array kPageCounters{&PageCounters::wanted_pages,  &PageCounters::resident_pages,
                                   &PageCounters::sampled_pages, &PageCounters::advised_bytes,
                                   &PageCounters::advice_calls,  &PageCounters::major_faults};

}  // namespace

int64_t MajorFaults() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_majflt : 0;
}

PageCounters& PageCounters::operator-=(const PageCounters& other) {
  for (int64_t PageCounters::*const counter : kPageCounters) this->*counter -= other.*counter;
  return *this;
}

PageCounters& PageCounters::operator+=(const PageCounters& other) {
  for (int64_t PageCounters::*const counter : kPageCounters) this->*counter += other.*counter;
  return *this;
}

PageAdvisor::PageAdvisor(Options options)
    : options_(options), first_major_faults_(MajorFaults()), self_(OpenSelf()), takes_many_(self_.valid()) {}

bool PageAdvisor::WantsBatch() {
  if (resident_share_ >= options_.resident_enough && ++batches_left_out_ < options_.resident_batches) return false;
  batches_left_out_ = 0;
  return true;
}

void PageAdvisor::Request(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uint64_t first = begin / PageBytes(), last = (begin + bytes.size() - 1) / PageBytes();
  if (!wanted_.empty()) {
    // Extends the last run if possible, since adjacent parts of a file are often requested one after the other.
    Run& before = wanted_.back();
    if (first >= before.begin && first <= before.begin + before.pages) {
      before.pages = std::max(before.pages, last + 1 - before.begin);
      return;
    }
  }
  wanted_.push_back({first, last + 1 - first});
}

int64_t PageAdvisor::MergeWanted() {
  // Uses a radix sort by first page. A comparison sort would take longer than the sampling that requests the pages.
  uint64_t least = ~uint64_t{0}, most = 0;
  for (const Run& run : wanted_) {
    least = std::min(least, run.begin);
    most = std::max(most, run.begin);
  }
  for (int shift = 0; shift < static_cast<int>(std::bit_width(most - least)); shift += kPageDigitBits) {
    constexpr uint64_t kMask = (uint64_t{1} << kPageDigitBits) - 1;
    std::array<size_t, kMask + 1> ends{};
    for (const Run& run : wanted_) ++ends[((run.begin - least) >> shift) & kMask];
    size_t sum = 0;
    for (size_t& end : ends) sum += std::exchange(end, sum);
    sorting_.resize(wanted_.size());
    for (const Run& run : wanted_) sorting_[ends[((run.begin - least) >> shift) & kMask]++] = run;
    std::swap(wanted_, sorting_);
  }
  size_t merged = 0;
  for (size_t i = 1; i < wanted_.size(); ++i) {
    Run& last = wanted_[merged];
    if (wanted_[i].begin <= last.begin + last.pages) {
      last.pages = std::max(last.pages, wanted_[i].begin + wanted_[i].pages - last.begin);
    } else {
      wanted_[++merged] = wanted_[i];
    }
  }
  wanted_.resize(merged + 1);
  int64_t pages = 0;
  for (const Run& run : wanted_) pages += static_cast<int64_t>(run.pages);
  return pages;
}

double PageAdvisor::LookAtSample(int64_t pages) {
  SplitMix64 random(static_cast<uint64_t>(pages), flushes_);
  int64_t looked = 0, resident = 0;
  const auto look = [&](uint64_t page, uint64_t count) {
    // On macOS, mincore takes a char* instead of an unsigned char*.
    std::array<unsigned char, kSampledPages> there{};
#ifdef __APPLE__
    const int failed = mincore(AddressOf(page), count * PageBytes(), reinterpret_cast<char*>(there.data()));
#else
    const int failed = mincore(AddressOf(page), count * PageBytes(), there.data());
#endif
    if (failed != 0) return;
    looked += static_cast<int64_t>(count);
    for (uint64_t i = 0; i < count; ++i) resident += there[i] & 1;
  };
  // Chooses every page with the same probability: places lie at equal distances over all pages, and the first one is
  // random. One pass over the runs finds the places.
  const auto total = static_cast<uint64_t>(pages);
  const uint64_t stride = std::max<uint64_t>(total / static_cast<uint64_t>(kSampledPlaces), kSampledPages);
  uint64_t at = ScaleBits(random.Next(), std::min(stride, total)), before = 0;
  for (const Run& run : wanted_) {
    for (; at < before + run.pages; at += stride) {
      const uint64_t place = at - before;
      look(run.begin + place, std::min(kSampledPages, run.pages - place));
    }
    before += run.pages;
  }
  sampled_pages_ += looked;
  resident_pages_ += resident;
  return looked == 0 ? -1 : static_cast<double>(resident) / static_cast<double>(looked);
}

void PageAdvisor::Advise() {
  std::array<iovec, kRangesInCall> ranges;
  size_t count = 0;
  const auto flush = [&] {
    for (size_t done = 0; done < count;) {
      ++advice_calls_;
      ssize_t taken = takes_many_ ? AdviseMany(self_, std::span(ranges).subspan(done, count - done)) : 0;
      if (taken <= 0) {
        // The kernel lacks this call, forbids it to this process, or refuses the first range.
        if (taken < 0 && (errno == ENOSYS || errno == EPERM)) takes_many_ = false;
        AdviseOne(ranges[done++]);
        continue;
      }
      for (; done < count && taken > 0; ++done) taken -= static_cast<ssize_t>(ranges[done].iov_len);
    }
    count = 0;
  };
  const uint64_t gap = options_.merge_gap_bytes / PageBytes();
  for (size_t i = 0; i < wanted_.size() && budget_left_ >= PageBytes();) {
    const uint64_t begin = wanted_[i].begin;
    uint64_t end = begin + wanted_[i].pages;
    for (++i; i < wanted_.size() && wanted_[i].begin - end <= gap; ++i) end = wanted_[i].begin + wanted_[i].pages;
    const uint64_t bytes = std::min((end - begin) * PageBytes(), budget_left_ / PageBytes() * PageBytes());
    ranges[count++] = {AddressOf(begin), bytes};
    budget_left_ -= bytes;
    advised_bytes_ += static_cast<int64_t>(bytes);
    if (count == kRangesInCall) flush();
  }
  flush();
}

void PageAdvisor::Flush() {
  if (wanted_.empty()) return;
  ++flushes_;
  const int64_t pages = MergeWanted();
  wanted_pages_ += pages;
  const double share = LookAtSample(pages);
  if (share >= 0) resident_share_ += kNewest * (share - resident_share_);
  // The moving average decides, not the share of this flush, since the sampled pages may all be resident while many
  // other pages are not.
  if (options_.enabled && resident_share_ < options_.resident_enough) Advise();
  wanted_.clear();
}

PageCounters PageAdvisor::counters() const {
  return {.wanted_pages = wanted_pages_,
          .resident_pages = resident_pages_,
          .sampled_pages = sampled_pages_,
          .advised_bytes = advised_bytes_,
          .advice_calls = advice_calls_,
          .major_faults = MajorFaults() - first_major_faults_};
}

}  // namespace permafrost::data
