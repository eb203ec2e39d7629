// Rows of one table, read from the disk ahead of their use and kept within a budget of memory, so that nobody waits for
// a page fault. A row is verified against the checksums of its pages each time that it comes from the disk.
// The cache keeps the rows that leases hold, then those that announced batches use, the soonest first, and of the
// others those that are wanted most: by their expected draws at first, and as they are counted once a whole epoch was
// drawn. Threads: all methods are safe anywhere but Start and Stop, which come from one thread. Owns its thread and the
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/monotonic.h"
#include "data/disk/disk_reader.h"
#include "data/rows/frame_table.h"
#include "data/store/graph.h"
#include "spec/field.h"

namespace permafrost::data {

// Plans the reads that bring a batch's missing rows: in the file's order, rows that lie close together by one read.
// Threads: pure.
struct PlannedRead {
  uint64_t offset = 0;  // in the file; whole pages
  uint32_t bytes = 0;
  uint32_t first = 0, count = 0;  // of the rows that it brings
};

// rows: rising, each once. A read goes on to the next row while the gap of pages that no row needs is at most
// `gap_bytes`, and is never longer than `most_bytes`, unless one row is.
std::vector<PlannedRead> PlanReads(const StoredRows& table, std::span<const NodeId> rows, uint64_t gap_bytes,
                                   uint64_t most_bytes);

// Counts what a feature cache did, for metrics and for people.
struct RowCounters {
  // Rows that batches asked for, each counted once a batch. hits: found in memory or on their way there; misses: read
  // from the disk.
  int64_t hits = 0, misses = 0;
  int64_t evictions = 0;
  int64_t reads = 0, read_bytes = 0;  // that were done
  int64_t read_errors = 0;
  // read_seconds[i] counts single reads, timed from their start, that took at most kReadSeconds[i] and fit no smaller
  // bound; the last entry counts longer ones.
  static constexpr std::array<double, 11> kReadSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                       0.01,   0.025,   0.05,   0.1,   1};
  std::array<int64_t, kReadSeconds.size() + 1> read_seconds{};
  double read_seconds_sum = 0;
  double stall_seconds = 0;  // that gathering waited for reads
  int64_t over_budget = 0;   // batches that took memory beyond the budget
  int64_t resizes = 0;       // changes of the budget while it was in use

  // Present values, not counts.
  uint64_t budget_bytes = 0, used_bytes = 0, rows = 0;
};

template <class F>
void VisitFields(spec::Options<RowCounters>, F&& f) {
  using R = RowCounters;
  f({.name = "hits"}, &R::hits);
  f({.name = "misses"}, &R::misses);
  f({.name = "evictions"}, &R::evictions);
  f({.name = "reads"}, &R::reads);
  f({.name = "read_bytes"}, &R::read_bytes);
  f({.name = "read_errors"}, &R::read_errors);
  f({.name = "read_seconds", .stored = "read_seconds_sum"}, &R::read_seconds_sum);
  f({.name = "stall_seconds"}, &R::stall_seconds);
  f({.name = "over_budget"}, &R::over_budget);
  f({.name = "resizes"}, &R::resizes);
  f({.name = "budget_bytes"}, &R::budget_bytes);
  f({.name = "used_bytes"}, &R::used_bytes);
  f({.name = "rows"}, &R::rows);
}

// Returns what was counted after `before`; fields that describe a state are taken from `now`.
RowCounters Since(const RowCounters& before, RowCounters now);

struct RowReaderState {
  std::string kind;      // "io_uring", "pread"; empty: the table is mapped
  std::string fallback;  // why it is not the first choice; empty: it is
  bool direct = false;
  int64_t depth = 0;  // reads at once
};

template <class F>
void VisitFields(spec::Options<RowReaderState>, F&& f) {
  using R = RowReaderState;
  f({.name = "reader", .stored = "kind"}, &R::kind);
  f({.name = "fallback"}, &R::fallback);
  f({.name = "direct"}, &R::direct);
  f({.name = "depth"}, &R::depth);
}

struct RowReading {
  RowReaderState reader;
  RowCounters counters;
};

template <class F>
void VisitFields(spec::Options<RowReading>, F&& f) {
  using R = RowReading;
  f({.name = "reader", .inlined = spec::Inline::kOnWire}, &R::reader);
  f({.name = "counters", .inlined = spec::Inline::kOnWire}, &R::counters);
}

class RowCache {
 public:
  // Rows that stay where they are while it lives. Movable.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    // Waits for what is still being read.
    ~Lease() { Release(); }

    bool valid() const { return cache_ != nullptr; }
    // Waits until all its rows are in memory. Errors: DataLoss for bytes that are not what was written, or a file that
    // was cut; an environment's error (base/status.h) for a read that failed. No row may be used then.
    absl::Status Await();
    // Returns whether Await would return without waiting.
    bool ready() const;

   private:
    friend class RowCache;
    void Release();
    RowCache* cache_ = nullptr;
    std::vector<NodeId> rows_;
    uint64_t reading_ = 0;   // rows that were missing
    uint64_t ticket_ = 0;    // reads up to this one must be done
    uint64_t failures_ = 0;  // of the cache when it was made
  };

  // A batch that will ask for its rows: until it does, or this goes, they are kept before others. Movable.
  class Announcement {
   public:
    Announcement() = default;
    Announcement(Announcement&& other) noexcept { *this = std::move(other); }
    Announcement& operator=(Announcement&& other) noexcept;
    ~Announcement() { End(); }

   private:
    friend class RowCache;
    void End();
    RowCache* cache_ = nullptr;
    uint64_t number_ = 0;
  };

  // Memory for rows is taken as they come. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<RowCache>> Create(const StoredRows& table, uint64_t budget_bytes);
  ~RowCache();

  // Begins to read the features of `graph`, whose store the table is of, and keeps it open; `gap_bytes` as PlanReads.
  // Errors: those of DiskReader::Open. Stop ends the reading, once no lease lives; rows stay in memory.
  absl::Status Start(std::shared_ptr<const Graph> graph, DiskReader::Options reader, uint64_t gap_bytes);
  void Stop();
  // The state of the reader that runs, or ran last.
  RowReaderState reader() const;

  // Batches announce their rows in the order in which they will pin them. Rows that do not exist are left for Pin to
  // refuse.
  Announcement Announce(std::span<const NodeId> rows, std::span<const NodeId> more);
  // Pins `rows` and then `more` (each may stand several times) and begins to read those that are missing. Leases are
  // read in the order in which they were made. announced: the announcement of the same rows, which this call ends;
  // nullptr: they were not announced. Errors: ResourceExhausted, with nothing pinned, if the leases' reads would leave
  // too little for the rows that are wanted. With `must`, memory beyond the budget is taken instead, and counted.
  // InvalidArgument for a row that does not exist. The error of a read that failed since.
  absl::StatusOr<Lease> Pin(std::span<const NodeId> rows, std::span<const NodeId> more, bool must = false,
                            Announcement* announced = nullptr);
  // The bytes of a row of a lease whose Await was Ok.
  const std::byte* Find(NodeId row) const { return frames_->Find(row); }

  // Sets how often an epoch is expected to draw each row; replaces what was counted. One number a row.
  void SetExpectedDraws(std::vector<float> draws);
  // Sets the bytes of memory that the cache may take in all, and drops the rows beyond.
  void SetBudget(uint64_t bytes);
  // Bytes for the rows of two batches as large as the largest that came yet: with less, each waits for the one before.
  uint64_t LeastBytes() const;
  // Bytes for each row of the file, whether it is in memory or not, beside FrameTable::FrameBytes for one that is.
  static constexpr uint64_t kBytesPerRow =
      FrameTable::kBytesPerRow + UseSchedule::kBytesPerRow + sizeof(float) + sizeof(uint16_t);
  // Returns the bytes that all rows take. A larger budget gains nothing.
  uint64_t MostBytes() const;
  RowCounters counters() const;

 private:
  struct Fill {
    NodeId row;
    std::byte* to;
  };
  struct Plan {
    std::vector<Fill> fills;
    std::vector<NodeId> along;  // of the fills' rows: those that no lease waits for; pinned until the plan is done
    std::vector<PlannedRead> reads;
    std::vector<Stopwatch> begun;  // a read each
    size_t started = 0, done = 0;
  };

  RowCache(const StoredRows& table, std::unique_ptr<FrameTable> frames)
      : table_(table), frames_(std::move(frames)), uses_(table.rows) {}
  uint64_t FramesFor(uint64_t bytes) const;
  // Pins those of `rows` that are in memory, and adds the others to `missing`.
  absl::Status PinPresent(std::span<const NodeId> rows, uint64_t mark, Lease& lease, std::vector<NodeId>& missing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeFrames(std::span<const NodeId> missing, uint64_t mark, bool must, Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Fill TakeFrame(NodeId row, uint64_t mark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds to a plan's fills the rows that lie beside those, which batches use soon, and sooner than what they take the
  // place of: a read that is longer by a page or two costs less than another one.
  void TakeAlong(uint64_t mark, Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndPlan(const Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether a lease may have so many rows read beside those of the others.
  bool MayRead(uint64_t rows) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAnnouncement(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(std::span<const NodeId> rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double ExpectedOf(size_t row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return expected_.empty() ? 0 : static_cast<double>(expected_[row]);
  }
  void SetLevels() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Run();
  // The next read to start; nullopt: there is none.
  std::optional<DiskRead> NextRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes);
  // Verifies what a read brought and puts its rows into their frames.
  absl::Status Copy(const Plan& plan, const PlannedRead& read, std::span<const std::byte> bytes) const;
  void Finish(uint64_t ticket, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After an error of the reader itself: every read that is left fails.
  void FailAll(const absl::Status& status);

  StoredRows table_;                          // changed by Start and Stop only
  const std::unique_ptr<FrameTable> frames_;  // guarded by mu_, but for Find

  // These belong to the thread, and to Start and Stop while it does not run.
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<DiskReader> disk_;
  int at_once_ = 1;  // reads that are on their way
  std::thread thread_;

  mutable absl::Mutex mu_;
  uint64_t gap_bytes_ ABSL_GUARDED_BY(mu_) = 0, most_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  RowReaderState reader_ ABSL_GUARDED_BY(mu_);
  std::deque<Plan> plans_ ABSL_GUARDED_BY(mu_);     // tickets first_ticket_, first_ticket_ + 1, ...
  uint64_t first_ticket_ ABSL_GUARDED_BY(mu_) = 1;  // all before it are done
  uint64_t starting_ ABSL_GUARDED_BY(mu_) = 1;      // the plan whose reads are started next
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t failures_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t marks_ ABSL_GUARDED_BY(mu_) = 0;
  UseSchedule uses_ ABSL_GUARDED_BY(mu_);
  int64_t leases_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t reading_leases_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reading_rows_ ABSL_GUARDED_BY(mu_) = 0;  // of all leases: rows that were missing
  uint64_t along_rows_ ABSL_GUARDED_BY(mu_) = 0;    // of all plans
  std::vector<float> expected_ ABSL_GUARDED_BY(mu_);
  std::vector<uint16_t> counted_ ABSL_GUARDED_BY(mu_);
  double expected_in_all_ ABSL_GUARDED_BY(mu_) = 0, drawn_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t epochs_counted_ ABSL_GUARDED_BY(mu_) = 0;
  RowCounters counters_ ABSL_GUARDED_BY(mu_);
  uint64_t largest_lease_ ABSL_GUARDED_BY(mu_) = 0;  // rows
};

}  // namespace permafrost::data
