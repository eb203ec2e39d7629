// Tells the kernel which pages of a mapping will be read soon, and keeps count of what was there already.
// Threads: one at a time; counters() is safe anywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "spec/field.h"

namespace permafrost::data {

struct PageCounters {
  int64_t wanted_pages = 0;    // pages that Flush was asked for, each once a flush
  int64_t resident_pages = 0;  // of those looked at (mincore): in memory already
  int64_t sampled_pages = 0;   // of wanted_pages: looked at
  int64_t advised_bytes = 0;   // given to madvise(MADV_WILLNEED)
  int64_t advice_calls = 0;
  // Counts the faults of this process since the advisor was made.
  int64_t major_faults = 0;

  PageCounters& operator+=(const PageCounters& other);
  PageCounters& operator-=(const PageCounters& other);
};

template <class F>
void VisitFields(spec::Options<PageCounters>, F&& f) {
  using P = PageCounters;
  f({.name = "wanted_pages"}, &P::wanted_pages);
  f({.name = "resident_pages"}, &P::resident_pages);
  f({.name = "sampled_pages"}, &P::sampled_pages);
  f({.name = "advised_bytes"}, &P::advised_bytes);
  f({.name = "advice_calls"}, &P::advice_calls);
  f({.name = "major_faults"}, &P::major_faults);
}

// Returns the faults of this process so far for which the disk was read.
int64_t MajorFaults();

class PageAdvisor {
 public:
  struct Options {
    bool enabled = true;  // false: counts what was wanted and resident, and advises nothing
    // Ranges with a gap of at most so many bytes are advised as one.
    uint64_t merge_gap_bytes = uint64_t{64} << 10;
    // Skips the advice of a range whose pages are all found resident, so that a warm cache costs little: beyond this
    // part of sampled pages resident over the last flushes, flushes advise nothing but go on sampling.
    double resident_enough = 0.98;
    // While that is so, WantsBatch asks for one batch of so many, >= 1.
    int64_t resident_batches = 8;
  };
  explicit PageAdvisor(Options options);

  // Returns whether the pages of the batch to come are to be requested; asked once a batch. True for each until all are
  // found resident, and then for one in Options::resident_batches, since asking takes longer than the sampling does
  // that it serves.
  bool WantsBatch();
  // Most bytes that the flushes from here on advise, together; the rest is left to page faults. Without it: no limit.
  void BeginBudget(uint64_t bytes) { budget_left_ = bytes; }
  // Bytes of a mapping that will be read; nothing happens before Flush.
  void Request(std::span<const std::byte> bytes);
  // Merges what was wanted into ranges of pages, looks at a sample of them, and advises the kernel.
  void Flush();
  PageCounters counters() const;

 private:
  // This many pages from one on, counted from the address 0. In this order a pair is one number to sort by.
  struct Run {
    uint64_t begin = 0, pages = 0;
  };
  // Sorts what is wanted and joins what overlaps; returns the pages in all.
  int64_t MergeWanted();
  // The part of a sample of the wanted pages that is in memory; below 0 where the kernel does not tell.
  double LookAtSample(int64_t pages);
  void Advise();

  const Options options_;
  std::vector<Run> wanted_, sorting_;
  std::atomic<int64_t> wanted_pages_{0}, resident_pages_{0}, sampled_pages_{0}, advised_bytes_{0}, advice_calls_{0};
  double resident_share_ = 0;  // a moving mean of flushes
  int64_t first_major_faults_ = 0;
  uint64_t flushes_ = 0;
  int64_t batches_left_out_ = 0;  // since the last that was wanted
  uint64_t budget_left_ = ~uint64_t{0};
  // This process, for the call that takes many ranges at once, and whether the kernel takes them.
  const Descriptor self_;
  bool takes_many_;
};

}  // namespace permafrost::data
