// Tells the kernel which pages of a mapping will be read soon, and estimates how many of these pages are in memory
// already. Threads: one at a time, except that counters() is safe anywhere.
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
  int64_t wanted_pages = 0;    // pages that were requested; a page counts once for each Flush
  int64_t resident_pages = 0;  // sampled pages that were in memory already
  int64_t sampled_pages = 0;   // wanted pages that Flush looked up with mincore
  int64_t advised_bytes = 0;   // bytes passed to madvise(MADV_WILLNEED)
  int64_t advice_calls = 0;
  // Major page faults of this process since the advisor was made.
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

// Returns the number of page faults of this process so far that had to read the disk.
int64_t MajorFaults();

class PageAdvisor {
 public:
  struct Options {
    bool enabled = true;  // false: counts wanted and resident pages, but gives no advice
    // Ranges at most this far apart are advised as one.
    uint64_t merge_gap_bytes = uint64_t{64} << 10;
    // If at least this share of the pages sampled by the last flushes was resident, a flush only samples pages and
    // gives no advice. A warm page cache thus costs little.
    double resident_enough = 0.98;
    // While flushes give no advice, WantsBatch returns true for one batch in this many, >= 1.
    int64_t resident_batches = 8;
  };
  explicit PageAdvisor(Options options);

  // Returns whether to request the pages of the next batch; call it once per batch. It returns true until nearly all
  // sampled pages are resident, and then for one batch in Options::resident_batches. The reason is that requesting
  // pages takes longer than sampling a batch whose pages are resident.
  bool WantsBatch();
  // Limits the total bytes that later flushes advise. Pages beyond the limit are left to page faults. If this is
  // never called, there is no limit.
  void BeginBudget(uint64_t bytes) { budget_left_ = bytes; }
  // Notes the bytes of a mapping that will be read. Nothing else happens before Flush.
  void Request(std::span<const std::byte> bytes);
  // Merges the requested bytes into ranges of pages, looks up a sample of them, and advises the kernel.
  void Flush();
  PageCounters counters() const;

 private:
  // A run of `pages` pages from page `begin` on. Pages are numbered from address 0.
  struct Run {
    uint64_t begin = 0, pages = 0;
  };
  // Sorts the wanted runs and joins overlapping ones. Returns the number of pages in all of them.
  int64_t MergeWanted();
  // Looks up a sample of the wanted pages, and returns the share of them that is in memory. Returns a negative value
  // if the kernel answers for none of them.
  double LookAtSample(int64_t pages);
  void Advise();

  const Options options_;
  std::vector<Run> wanted_, sorting_;
  std::atomic<int64_t> wanted_pages_{0}, resident_pages_{0}, sampled_pages_{0}, advised_bytes_{0}, advice_calls_{0};
  double resident_share_ = 0;  // a moving average over flushes
  int64_t first_major_faults_ = 0;
  uint64_t flushes_ = 0;
  int64_t batches_left_out_ = 0;  // batches since WantsBatch last returned true
  uint64_t budget_left_ = ~uint64_t{0};
  // self_ is a descriptor of this process for process_madvise, which takes many ranges at once. takes_many_ is false
  // if process_madvise does not work here.
  const Descriptor self_;
  bool takes_many_;
};

}  // namespace permafrost::data
