// Keeps rows of one table in memory, within a budget. Rows are read from the disk ahead of their use, so that nobody
// waits for a page fault. Each time that a row comes from the disk, it is verified against the checksums of its
// pages.
// Rows that leases hold stay in memory. Of all other rows, the cache first keeps the rows that announced batches will
// use, the soonest first. It then keeps the rows that are drawn most, by expected draws and, after a whole epoch,
// also by counted draws. Threads: all methods are safe anywhere, except Start and Stop, which one thread must call.
// Owns its thread and the memory.
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

// A planned read. Reads bring the missing rows of a batch in the order of the file, and one read brings rows that lie
// close together. Threads: pure.
struct PlannedRead {
  uint64_t offset = 0;  // offset in the file, a multiple of kPageBytes
  uint32_t bytes = 0;
  uint32_t first = 0, count = 0;  // the rows that it brings: `count` of the planned rows, from index `first` on
};

// Plans the reads for `rows`, which rise and are distinct. A read continues to the next row if the unneeded pages
// before that row take at most `gap_bytes`. No read is longer than `most_bytes`, unless a single row is.
std::vector<PlannedRead> PlanReads(const StoredRows& table, std::span<const NodeId> rows, uint64_t gap_bytes,
                                   uint64_t most_bytes);

// Counters of a feature cache, for metrics and for people.
struct RowCounters {
  // Rows that batches asked for. A row counts once for each batch. It is a hit if it was in memory or being read
  // already, else a miss.
  int64_t hits = 0, misses = 0;
  int64_t evictions = 0;
  int64_t reads = 0, read_bytes = 0;  // reads that were done, and their bytes
  int64_t read_errors = 0;
  // read_seconds[i] counts the reads that took at most kReadSeconds[i] and longer than kReadSeconds[i - 1]. The last
  // entry counts the reads that took longer than every kReadSeconds. The time runs from the start of a read.
  static constexpr std::array<double, 11> kReadSeconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                       0.01,   0.025,   0.05,   0.1,   1};
  std::array<int64_t, kReadSeconds.size() + 1> read_seconds{};
  double read_seconds_sum = 0;
  double stall_seconds = 0;  // time that batches waited for reads
  int64_t over_budget = 0;   // batches that took memory beyond the budget
  int64_t resizes = 0;       // changes of the budget while it was in use

  // Current values, not counters.
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

// Returns what was counted between `before` and `now`. Current values are taken from `now`.
RowCounters Since(const RowCounters& before, RowCounters now);

struct RowReaderState {
  std::string kind;      // "io_uring" or "pread"; empty if the table is mapped
  std::string fallback;  // why `kind` is not the first choice; empty if it is
  bool direct = false;
  int64_t depth = 0;  // reads that are in flight at once
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
  // While a lease lives, its rows stay in their frames. Movable.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    // Waits for the reads of its rows that are still in flight.
    ~Lease() { Release(); }

    bool valid() const { return cache_ != nullptr; }
    // Waits until all its rows are in memory. Errors: DataLoss if the bytes are damaged or the file was cut short; an
    // environment's error (base/status.h) if a read failed. After an error, none of the rows may be used.
    absl::Status Await();
    // Returns whether Await would return without waiting.
    bool ready() const;

   private:
    friend class RowCache;
    void Release();
    RowCache* cache_ = nullptr;
    std::vector<NodeId> rows_;
    uint64_t reading_ = 0;   // number of rows that were missing
    uint64_t ticket_ = 0;    // the lease is ready once all plans up to this ticket are done
    uint64_t failures_ = 0;  // RowCache::failures_ when the lease was made
  };

  // Announces that a batch will ask for its rows. The cache prefers to keep these rows until the batch pins them or
  // this object is destroyed. Movable.
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

  // Makes an empty cache. Memory for rows is taken as they come. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<RowCache>> Create(const StoredRows& table, uint64_t budget_bytes);
  ~RowCache();

  // Begins to read the features of `graph` and keeps the graph open. The table given to Create must belong to the
  // graph's store. For `gap_bytes`, see PlanReads. Errors: those of DiskReader::Open.
  absl::Status Start(std::shared_ptr<const Graph> graph, DiskReader::Options reader, uint64_t gap_bytes);
  // Ends the reading. The rows stay in memory. Call Stop only after the last lease was released.
  void Stop();
  // Returns the state of the current reader, or of the last one.
  RowReaderState reader() const;

  // Announces a batch that will pin the rows in `rows` and in `more`. Announce batches in the order in which they
  // will pin their rows. If a row does not exist, announces nothing; Pin will refuse the batch.
  Announcement Announce(std::span<const NodeId> rows, std::span<const NodeId> more);
  // Pins `rows` and `more`, and begins to read the missing ones. A row may occur several times. The rows of leases
  // are read in the order in which the leases were made. `announced` is the announcement of these rows, or null if
  // there is none. If Pin succeeds, it ends the announcement. If the reads of all leases would leave too little memory
  // for the most wanted rows, Pin pins nothing and returns ResourceExhausted. With `must`, Pin reads the rows
  // nevertheless. RowCounters::over_budget counts the batches that then take memory beyond the budget. Other errors:
  // InvalidArgument if a row does not exist; the error of the reader, if it failed; the error of a failed read of one
  // of the rows, while a lease holds the row.
  absl::StatusOr<Lease> Pin(std::span<const NodeId> rows, std::span<const NodeId> more, bool must = false,
                            Announcement* announced = nullptr);
  // Returns the bytes of a row that is in a lease whose Await returned Ok.
  const std::byte* Find(NodeId row) const { return frames_->Find(row); }

  // Sets draws[row], the number of times that an epoch is expected to draw a row. Forgets the draws counted so far.
  void SetExpectedDraws(std::vector<float> draws);
  // Sets the bytes of memory that the cache may take in total, and drops the rows that no longer fit.
  void SetBudget(uint64_t bytes);
  // Returns the bytes that the rows of two batches take, if both are as large as the largest batch so far. With a
  // smaller budget, each batch would wait until the batch before it is released.
  uint64_t LeastBytes() const;
  // Bytes that each row of the file takes, whether it is in memory or not. A row in memory also takes
  // FrameTable::FrameBytes.
  static constexpr uint64_t kBytesPerRow =
      FrameTable::kBytesPerRow + UseSchedule::kBytesPerRow + sizeof(float) + sizeof(uint16_t);
  // Returns the bytes that the cache takes if all rows are in memory. A larger budget gains nothing.
  uint64_t MostBytes() const;
  RowCounters counters() const;

 private:
  struct Fill {
    NodeId row;
    std::byte* to;
  };
  struct Plan {
    std::vector<Fill> fills;
    std::vector<NodeId> along;  // rows of `fills` that no lease waits for; they are pinned until the plan is done
    std::vector<PlannedRead> reads;
    std::vector<Stopwatch> begun;  // when each read began
    size_t started = 0, done = 0;
  };

  RowCache(const StoredRows& table, std::unique_ptr<FrameTable> frames)
      : table_(table), frames_(std::move(frames)), uses_(table.rows) {}
  uint64_t FramesFor(uint64_t bytes) const;
  // Pins the rows that are in memory, and adds the others to `missing`.
  absl::Status PinPresent(std::span<const NodeId> rows, uint64_t mark, Lease& lease, std::vector<NodeId>& missing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeFrames(std::span<const NodeId> missing, uint64_t mark, bool must, Lease& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Fill TakeFrame(NodeId row, uint64_t mark) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds to plan.fills some rows that lie near the rows already in it. An added row is used by a batch soon, and
  // sooner than the row that it displaces. Making a read a page or two longer costs less than another read later.
  void TakeAlong(uint64_t mark, Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndPlan(const Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether another lease may read this many rows in addition to the rows that current leases read.
  bool MayRead(uint64_t rows) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAnnouncement(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(std::span<const NodeId> rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double ExpectedOf(size_t row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return expected_.empty() ? 0 : static_cast<double>(expected_[row]);
  }
  void SetLevels() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Run();
  // Returns the next read to start, or nullopt if there is none.
  std::optional<DiskRead> NextRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes);
  // Verifies the pages of a read and copies its rows into their frames.
  absl::Status Copy(const Plan& plan, const PlannedRead& read, std::span<const std::byte> bytes) const;
  void Finish(uint64_t ticket, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes every remaining read fail, after an error of the reader itself.
  void FailAll(const absl::Status& status);

  StoredRows table_;                          // changed only by Start and Stop
  const std::unique_ptr<FrameTable> frames_;  // guarded by mu_, except for Find

  // These members belong to the thread while it runs, and otherwise to Start and Stop.
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<DiskReader> disk_;
  int at_once_ = 1;  // the number of reads to keep in flight
  std::thread thread_;

  mutable absl::Mutex mu_;
  uint64_t gap_bytes_ ABSL_GUARDED_BY(mu_) = 0, most_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  RowReaderState reader_ ABSL_GUARDED_BY(mu_);
  std::deque<Plan> plans_ ABSL_GUARDED_BY(mu_);     // their tickets are first_ticket_, first_ticket_ + 1, ...
  uint64_t first_ticket_ ABSL_GUARDED_BY(mu_) = 1;  // all plans before it are done
  uint64_t starting_ ABSL_GUARDED_BY(mu_) = 1;      // ticket of the plan whose reads are started next
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t failures_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t marks_ ABSL_GUARDED_BY(mu_) = 0;
  UseSchedule uses_ ABSL_GUARDED_BY(mu_);
  int64_t leases_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t reading_leases_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reading_rows_ ABSL_GUARDED_BY(mu_) = 0;  // the sum of Lease::reading_
  uint64_t along_rows_ ABSL_GUARDED_BY(mu_) = 0;    // the sum of the sizes of Plan::along
  std::vector<float> expected_ ABSL_GUARDED_BY(mu_);
  std::vector<uint16_t> counted_ ABSL_GUARDED_BY(mu_);
  double expected_in_all_ ABSL_GUARDED_BY(mu_) = 0, drawn_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t epochs_counted_ ABSL_GUARDED_BY(mu_) = 0;
  RowCounters counters_ ABSL_GUARDED_BY(mu_);
  uint64_t largest_lease_ ABSL_GUARDED_BY(mu_) = 0;  // in rows
};

}  // namespace permafrost::data
