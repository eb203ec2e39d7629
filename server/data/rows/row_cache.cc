#include "data/rows/row_cache.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

// The first and the last of the table's pages that a row lies on.
struct PageSpan {
  uint64_t first = 0, last = 0;
};
PageSpan PagesOf(const StoredRows& table, uint64_t row) {
  const uint64_t begin = table.groups.OffsetOf(row, table.row_bytes);
  return {.first = begin / kPageBytes, .last = (begin + table.row_bytes - 1) / kPageBytes};
}

}  // namespace

std::vector<PlannedRead> PlanReads(const StoredRows& table, std::span<const NodeId> rows, uint64_t gap_bytes,
                                   uint64_t most_bytes) {
  const uint64_t gap_pages = gap_bytes / kPageBytes, most_pages = most_bytes / kPageBytes;
  std::vector<PlannedRead> reads;
  PageSpan pages;  // the pages of the last read
  for (size_t i = 0; i < rows.size(); ++i) {
    const PageSpan row = PagesOf(table, rows[i]);
    // The check adds instead of subtracting, since the gap is negative if two rows share a page.
    const bool near = !reads.empty() && row.first <= pages.last + 1 + gap_pages;
    if (near && row.last - pages.first < most_pages) {
      pages.last = row.last;
      ++reads.back().count;
    } else {
      pages = row;
      reads.push_back({.first = static_cast<uint32_t>(i), .count = 1});
    }
    reads.back().offset = table.offset + pages.first * kPageBytes;
    reads.back().bytes = static_cast<uint32_t>((pages.last + 1 - pages.first) * kPageBytes);
  }
  return reads;
}

namespace {

// A read that brings several rows has at most twice `gap_bytes`, clamped to these bounds.
constexpr uint64_t kLeastLongestRead = 16 << 10, kMostLongestRead = 32 << 10;
// The reading thread shares its core with other threads, and the disk must have work until the thread runs again. So
// more reads are in flight than the disk works on at once: kQueueShare times as many, and at most kMostAtOnce.
constexpr int kQueueShare = 4, kMostAtOnce = 256;
// The buffers of all reads take at most this many bytes, although two buffers are always allowed. With wide rows,
// fewer reads are therefore in flight.
constexpr uint64_t kMostBufferBytes = 8 << 20;
// The levels of rows by draws per epoch: kLevelsPerDoubling levels for each doubling, from 2^kLeastExponent draws on.
constexpr double kLevelsPerDoubling = 8, kLeastExponent = -16;

uint8_t LevelOf(double draws) {
  if (!(draws > 0)) return 0;
  const double level = 1 + kLevelsPerDoubling * (std::log2(draws) - kLeastExponent);
  return static_cast<uint8_t>(std::clamp(level, 0.0, FrameTable::kLevels - 1.0));
}

uint64_t WholePages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

// Lease

RowCache::Lease& RowCache::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  cache_ = std::exchange(other.cache_, nullptr);
  rows_ = std::move(other.rows_);
  reading_ = other.reading_;
  ticket_ = other.ticket_;
  failures_ = other.failures_;
  return *this;
}

bool RowCache::Lease::ready() const {
  if (cache_ == nullptr) return true;
  const absl::MutexLock lock(&cache_->mu_);
  return cache_->first_ticket_ > ticket_;
}

absl::Status RowCache::Lease::Await() {
  if (cache_ == nullptr) return absl::OkStatus();
  absl::MutexLock lock(&cache_->mu_);
  const auto done = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return cache_->first_ticket_ > ticket_; };
  if (!done()) {
    const Stopwatch waiting;
    cache_->mu_.Await(absl::Condition(&done));
    cache_->counters_.stall_seconds += absl::ToDoubleSeconds(waiting.Elapsed());
  }
  return cache_->failures_ == failures_ ? absl::OkStatus() : cache_->failure_;
}

void RowCache::Lease::Release() {
  if (cache_ == nullptr) return;
  // Waits for the lease's reads, since they still write to its frames.
  (void)Await();
  RowCache& cache = *std::exchange(cache_, nullptr);
  absl::MutexLock lock(&cache.mu_);
  for (const NodeId row : rows_) cache.frames_->Unpin(row);
  cache.reading_rows_ -= reading_;
  cache.reading_leases_ -= reading_ > 0 ? 1 : 0;
  // With `must`, a batch may have taken frames beyond the budget. The last lease to end restores the limit.
  if (--cache.leases_ == 0) cache.frames_->SetFrames(cache.FramesFor(cache.counters_.budget_bytes));
}

// Announcement

RowCache::Announcement& RowCache::Announcement::operator=(Announcement&& other) noexcept {
  if (this == &other) return *this;
  End();
  cache_ = std::exchange(other.cache_, nullptr);
  number_ = other.number_;
  return *this;
}

void RowCache::Announcement::End() {
  if (cache_ == nullptr) return;
  RowCache& cache = *std::exchange(cache_, nullptr);
  const absl::MutexLock lock(&cache.mu_);
  cache.EndAnnouncement(number_);
}

// RowCache

absl::StatusOr<std::unique_ptr<RowCache>> RowCache::Create(const StoredRows& table, uint64_t budget_bytes) {
  PF_ASSIGN_OR_RETURN(auto frames, FrameTable::Create(table.rows, table.row_bytes));
  std::unique_ptr<RowCache> cache(new RowCache(table, std::move(frames)));
  cache->SetBudget(budget_bytes);
  absl::MutexLock lock(&cache->mu_);
  cache->table_.page_checksums = {};
  cache->counted_.resize(table.rows);
  cache->counters_.resizes = 0;
  return cache;
}

RowCache::~RowCache() { Stop(); }

absl::Status RowCache::Start(std::shared_ptr<const Graph> graph, DiskReader::Options reader, uint64_t gap_bytes) {
  Stop();
  const std::optional<StoredRows> table = graph->stored_features();
  if (!table || table->rows != table_.rows || table->row_bytes != table_.row_bytes) {
    return absl::InternalError("the feature cache was made for another table");
  }
  table_ = *table;
  // Adds a page, since a row may begin and end within pages.
  const uint64_t row_pages = WholePages(table_.row_bytes) + kPageBytes;
  const uint64_t longest = WholePages(std::clamp(2 * gap_bytes, kLeastLongestRead, kMostLongestRead));
  reader.max_read_bytes = static_cast<uint32_t>(std::max(longest, row_pages));
  const int buffers = static_cast<int>(std::max<uint64_t>(2, kMostBufferBytes / reader.max_read_bytes));
  // The disk works on up to `depth` reads at once. Up to `done` further reads may be done but not copied yet.
  const int done = std::min(reader.depth, buffers / 2);
  const int at_once = std::min({kQueueShare * reader.depth, kMostAtOnce, buffers - done});
  reader.depth = at_once + done;
  PF_ASSIGN_OR_RETURN(disk_, DiskReader::Open(table_.path, reader));
  at_once_ = at_once;
  {
    absl::MutexLock lock(&mu_);
    gap_bytes_ = gap_bytes;
    most_bytes_ = reader.max_read_bytes;
    stopping_ = broken_ = false;
    reader_ = {.kind = std::string(kDiskReaderKindNames.Name(disk_->kind())),
               .fallback = disk_->fallback(),
               .direct = disk_->direct(),
               .depth = at_once};
  }
  graph_ = std::move(graph);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void RowCache::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
  disk_ = nullptr;
  table_.page_checksums = {};
  graph_ = nullptr;
}

RowReaderState RowCache::reader() const {
  absl::MutexLock lock(&mu_);
  return reader_;
}

absl::Status RowCache::PinPresent(std::span<const NodeId> rows, uint64_t mark, Lease& lease,
                                  std::vector<NodeId>& missing) {
  for (const NodeId row : rows) {
    if (row >= table_.rows) {
      return absl::InvalidArgumentError(absl::StrCat("row ", row, " is none of the table's ", table_.rows));
    }
    switch (frames_->Pin(row, mark)) {
      case FrameTable::Pinned::kMissing:
        missing.push_back(row);
        break;
      case FrameTable::Pinned::kPinned:
        lease.rows_.push_back(row);
        // The reading of this row failed, and the lease that asked for it has not released it yet.
        if (frames_->spoilt(row)) {
          return failure_.ok() ? absl::ResourceExhaustedError("the feature cache: memory failed before a row was read")
                               : failure_;
        }
        break;
      case FrameTable::Pinned::kAgain:
        break;
    }
  }
  return absl::OkStatus();
}

RowCache::Announcement RowCache::Announce(std::span<const NodeId> rows, std::span<const NodeId> more) {
  const auto is_row = [this](NodeId row) { return row < table_.rows; };
  Announcement announced;
  if (!std::ranges::all_of(rows, is_row) || !std::ranges::all_of(more, is_row)) return announced;
  const absl::MutexLock lock(&mu_);
  announced.cache_ = this;
  const auto known = [this](NodeId row)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { frames_->SetNextUse(row, uses_.NextUse(row)); };
  announced.number_ = uses_.Announce(rows, more, known);
  if (announced.number_ > 0) frames_->SetNewest(UseSchedule::SlotOf(announced.number_));
  return announced;
}

void RowCache::EndAnnouncement(uint64_t number) {
  uses_.Use(number,
            [this](NodeId row) ABSL_NO_THREAD_SAFETY_ANALYSIS { frames_->SetNextUse(row, uses_.NextUse(row)); });
}

absl::StatusOr<RowCache::Lease> RowCache::Pin(std::span<const NodeId> rows, std::span<const NodeId> more, bool must,
                                              Announcement* announced) {
  Lease lease;
  std::vector<NodeId> missing;
  // Reserves the memory first, so that every pin is recorded in the lease even if memory runs out.
  lease.rows_.reserve(rows.size() + more.size());
  uint64_t mark = 0;
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (broken_) return failure_;
    lease.cache_ = this;
    ++leases_;
    mark = ++marks_;
    lease.failures_ = failures_;
    status = PinPresent(rows, mark, lease, missing);
    if (status.ok()) status = PinPresent(more, mark, lease, missing);
  }
  PF_RETURN_IF_ERROR(status);
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  absl::MutexLock lock(&mu_);
  if (broken_) {
    status = failure_;
  } else if (!missing.empty()) {
    // Rows that another lease has asked for in the meantime need no read.
    std::vector<NodeId> still;
    status = PinPresent(missing, mark, lease, still);
    const auto present = std::ssize(lease.rows_);
    if (status.ok()) status = TakeFrames(still, mark, must, lease);
    if (status.ok()) {
      counters_.hits += present;
      counters_.misses += std::ssize(still);
    }
  } else {
    counters_.hits += std::ssize(lease.rows_);
  }
  if (!status.ok()) return status;  // the lease's destructor unpins the rows pinned so far
  if (announced != nullptr && announced->cache_ != nullptr) {
    EndAnnouncement(announced->number_);
    announced->cache_ = nullptr;
  }
  lease.ticket_ = first_ticket_ + plans_.size() - 1;
  largest_lease_ = std::max<uint64_t>(largest_lease_, lease.rows_.size());
  Count(lease.rows_);
  return lease;
}

void RowCache::Count(std::span<const NodeId> rows) {
  for (const NodeId row : rows) counted_[row] += counted_[row] < UINT16_MAX;
  drawn_ += static_cast<double>(rows.size());
  if (expected_in_all_ <= 0 || drawn_ < expected_in_all_) return;
  drawn_ = 0;
  ++epochs_counted_;
  SetLevels();
}

void RowCache::SetLevels() {
  std::vector<uint8_t> levels(table_.rows);
  const double epochs = static_cast<double>(epochs_counted_) + (expected_.empty() ? 0 : 1);
  for (size_t row = 0; row < levels.size(); ++row) {
    levels[row] = LevelOf((ExpectedOf(row) + static_cast<double>(counted_[row])) / epochs);
  }
  frames_->SetLevels(std::move(levels));
}

void RowCache::SetExpectedDraws(std::vector<float> draws) {
  absl::MutexLock lock(&mu_);
  expected_ = std::move(draws);
  expected_.resize(table_.rows);
  expected_in_all_ = 0;
  for (const float each : expected_) expected_in_all_ += each;
  std::ranges::fill(counted_, uint16_t{0});
  drawn_ = 0;
  epochs_counted_ = 0;
  SetLevels();
}

uint64_t RowCache::FramesFor(uint64_t bytes) const {
  const uint64_t fixed = table_.rows * kBytesPerRow;
  return bytes <= fixed ? 1 : std::max<uint64_t>(1, (bytes - fixed) / FrameTable::FrameBytes(table_.row_bytes));
}

void RowCache::SetBudget(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  if (counters_.budget_bytes == bytes) return;
  counters_.budget_bytes = bytes;
  ++counters_.resizes;
  frames_->SetFrames(FramesFor(bytes));
}

uint64_t RowCache::LeastBytes() const {
  absl::MutexLock lock(&mu_);
  return table_.rows * kBytesPerRow + 2 * largest_lease_ * FrameTable::FrameBytes(table_.row_bytes);
}

uint64_t RowCache::MostBytes() const { return table_.rows * (kBytesPerRow + FrameTable::FrameBytes(table_.row_bytes)); }

RowCounters RowCache::counters() const {
  absl::MutexLock lock(&mu_);
  RowCounters counters = counters_;
  counters.evictions = static_cast<int64_t>(frames_->evictions());
  counters.rows = frames_->used();
  counters.used_bytes = table_.rows * kBytesPerRow + counters.rows * FrameTable::FrameBytes(table_.row_bytes);
  return counters;
}

RowCounters Since(const RowCounters& before, RowCounters now) {
  for (int64_t RowCounters::*counter :
       {&RowCounters::hits, &RowCounters::misses, &RowCounters::evictions, &RowCounters::reads,
        &RowCounters::read_bytes, &RowCounters::read_errors, &RowCounters::over_budget, &RowCounters::resizes}) {
    now.*counter -= before.*counter;
  }
  for (size_t i = 0; i < now.read_seconds.size(); ++i) now.read_seconds[i] -= before.read_seconds[i];
  now.read_seconds_sum -= before.read_seconds_sum;
  now.stall_seconds -= before.stall_seconds;
  return now;
}

// The rest of this file reads rows. The first part chooses the rows to read for a lease: the missing rows, and nearby
// rows that are used soon. The second part is the thread that reads these rows.

namespace {

// The rows that leases are reading take at most 1/kReadingShare of the frames. The other frames are for rows that
// will be used again.
constexpr uint64_t kReadingShare = 8;
// With at most kNeededLeases leases, this limit does not apply: the disk reads for one lease while the rows of the
// other are gathered.
constexpr int64_t kNeededLeases = 2;
// With at most kLeastReadingLeases leases, the limit is larger: 1/kLargeReadingShare of the frames. The third lease
// keeps the disk busy until the fourth is made.
constexpr int64_t kLeastReadingLeases = 3;
constexpr uint64_t kLargeReadingShare = 3;
// A row "comes along" if a read for other rows is made longer to bring this row too. For one plan, at most this many
// rows are considered.
constexpr uint64_t kMostAlongLooks = 1 << 16;
// Making a read longer may cost at most this part of the cost of another read. The part is below 1, because the row
// may be dropped before its use and then saves no read.
constexpr double kAlongShare = 2.0 / 3;

}  // namespace

bool RowCache::MayRead(uint64_t rows) const {
  const uint64_t all = reading_rows_ + rows, frames = frames_->frames();
  if (all <= frames / kReadingShare || reading_leases_ < kNeededLeases) return true;
  // Taking an empty frame drops no row.
  const uint64_t unused = frames > frames_->used() ? frames - frames_->used() : 0;
  return (reading_leases_ < kLeastReadingLeases || rows <= unused) && all <= frames / kLargeReadingShare;
}

absl::Status RowCache::TakeFrames(std::span<const NodeId> missing, uint64_t mark, bool must, Lease& lease) {
  if (missing.empty()) return absl::OkStatus();  // because a plan without reads would never end
  const bool has_room = missing.size() <= frames_->available();
  if (!must && (!has_room || !MayRead(missing.size()))) {
    return absl::ResourceExhaustedError("the feature cache: other batches hold what there is room for");
  }
  Plan plan;
  // If memory runs out in this function, nobody will read the rows that have frames already. They must not appear to
  // be present.
  auto undo = absl::MakeCleanup([this, &plan]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const Fill& fill : plan.fills) frames_->Spoil(fill.row);
    for (const NodeId row : plan.along) frames_->Spoil(row);
    EndPlan(plan);
  });
  plan.fills.reserve(missing.size());
  if (!has_room) {
    frames_->MakeRoom(missing.size());
    ++counters_.over_budget;
  }
  for (const NodeId row : missing) {
    plan.fills.push_back(TakeFrame(row, mark));
    lease.rows_.push_back(row);
  }
  TakeAlong(mark, plan);
  std::vector<NodeId> rows(plan.fills.size());
  std::ranges::transform(plan.fills, rows.begin(), &Fill::row);
  plan.reads = PlanReads(table_, rows, gap_bytes_, most_bytes_);
  plan.begun.resize(plan.reads.size());
  plans_.push_back(std::move(plan));
  std::move(undo).Cancel();
  lease.reading_ = missing.size();
  reading_rows_ += missing.size();
  ++reading_leases_;
  return absl::OkStatus();
}

RowCache::Fill RowCache::TakeFrame(NodeId row, uint64_t mark) {
  std::byte* const to = frames_->Take(row, mark);
  frames_->SetNextUse(row, uses_.NextUse(row));
  return {.row = row, .to = to};
}

void RowCache::TakeAlong(uint64_t mark, Plan& plan) {
  const uint64_t room = frames_->frames() / kReadingShare;
  if (!uses_.any() || along_rows_ >= room) return;
  const size_t most = std::min(room - along_rows_, kMostAlongLooks);  // one look is needed for each row
  const auto more_pages = static_cast<uint64_t>(kAlongShare * static_cast<double>(gap_bytes_)) / kPageBytes;
  // Estimates how many of the next batches find their rows in frames. Batches share rows, so this is more than the
  // frames divided by the largest batch. A row that is first used by a later batch is usually dropped before its use.
  const uint64_t batches_held = 2 * frames_->frames() / std::max<uint64_t>(largest_lease_, 1);
  uint64_t looks = kMostAlongLooks;
  std::vector<Fill> fills;
  fills.reserve(plan.fills.size() + most);
  plan.along.reserve(most);
  // If the row should come along, gives it a frame and returns true. Otherwise returns false.
  const auto take = [&](NodeId row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (looks == 0 || plan.along.size() == most) return false;
    --looks;
    const UseSlot use = uses_.NextUse(row);
    if (use == kNoUse || uses_.BatchesBefore(use) > batches_held) return false;
    if (frames_->has(row) || !frames_->CanHold(use)) return false;
    fills.push_back(TakeFrame(row, mark));
    plan.along.push_back(row);
    ++along_rows_;
    return true;
  };
  NodeId seen = 0;  // all rows before this one were considered
  for (size_t i = 0; i < plan.fills.size(); ++i) {
    const NodeId missing = plan.fills[i].row;
    const NodeId end = i + 1 < plan.fills.size() ? plan.fills[i + 1].row : static_cast<NodeId>(table_.rows);
    const PageSpan pages = PagesOf(table_, missing);
    NodeId row = missing;
    while (row > seen && missing - row < looks && PagesOf(table_, row - 1).first + more_pages >= pages.first) --row;
    for (; row < missing; ++row) take(row);
    fills.push_back(plan.fills[i]);
    uint64_t last_page = pages.last;
    for (++row; row < end && looks > 0 && PagesOf(table_, row).last <= last_page + more_pages; ++row) {
      if (take(row)) last_page = PagesOf(table_, row).last;
    }
    seen = row;
  }
  plan.fills = std::move(fills);
}

void RowCache::EndPlan(const Plan& plan) {
  for (const NodeId row : plan.along) frames_->Unpin(row);
  along_rows_ -= plan.along.size();
}

namespace {

// A tag holds a ticket and, in its lower bits, the index of a read in the plan.
constexpr int kReadBits = 32;

}  // namespace

std::optional<DiskRead> RowCache::NextRead() {
  for (; starting_ < first_ticket_ + plans_.size(); ++starting_) {
    Plan& plan = plans_[starting_ - first_ticket_];
    if (plan.started == plan.reads.size()) continue;
    const size_t index = plan.started++;
    plan.begun[index].Restart();
    return DiskRead{
        .offset = plan.reads[index].offset, .bytes = plan.reads[index].bytes, .tag = (starting_ << kReadBits) | index};
  }
  return std::nullopt;
}

void RowCache::Run() {
  const auto wake = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return stopping_ || starting_ < first_ticket_ + plans_.size();
  };
  absl::Status status;
  for (int done = 0; status.ok();) {
    // Starts new reads before verifying and copying the finished ones, so that the disk has work.
    while (status.ok() && disk_->in_flight() < std::min(at_once_ + done, disk_->depth())) {
      std::optional<DiskRead> read;
      {
        absl::MutexLock lock(&mu_);
        if (disk_->in_flight() == 0) mu_.Await(absl::Condition(&wake));
        read = NextRead();
        if (!read && disk_->in_flight() == 0 && stopping_) return;
      }
      if (!read) break;
      status = disk_->Start(*read);
    }
    if (status.ok() && done == 0) {
      const absl::StatusOr<int> awaited = disk_->Await();
      status = awaited.status();
      done = awaited.value_or(0);
    } else if (status.ok()) {
      done = 0;
      status = disk_->Flush();
      status.Update(disk_->Wait([this](const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
        Take(read, bytes);
      }));
    }
  }
  FailAll(status);
}

void RowCache::Take(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
  const uint64_t ticket = read.tag >> kReadBits;
  const size_t index = read.tag & ((uint64_t{1} << kReadBits) - 1);
  const Plan* plan;
  {
    absl::MutexLock lock(&mu_);
    // The pointer stays valid: a deque moves no element when it grows or shrinks at its ends.
    plan = &plans_[ticket - first_ticket_];
  }
  const PlannedRead& planned = plan->reads[index];
  absl::Status status = bytes.ok() ? Copy(*plan, planned, *bytes) : bytes.status();
  // If the file changed during the reading, reports the change instead of the reading's own status.
  if (const absl::Status intact = status.ok() ? status : graph_->CheckIntact(); !intact.ok()) status = intact;
  const double seconds = absl::ToDoubleSeconds(plan->begun[index].Elapsed());
  absl::MutexLock lock(&mu_);
  ++counters_.reads;
  counters_.read_bytes += bytes.ok() ? std::ssize(*bytes) : 0;
  counters_.read_seconds_sum += seconds;
  const auto bucket = std::ranges::lower_bound(RowCounters::kReadSeconds, seconds) - RowCounters::kReadSeconds.begin();
  ++counters_.read_seconds[static_cast<size_t>(bucket)];
  if (!status.ok()) {
    for (size_t i = 0; i < planned.count; ++i) frames_->Spoil(plan->fills[planned.first + i].row);
  }
  Finish(ticket, status);
}

absl::Status RowCache::Copy(const Plan& plan, const PlannedRead& read, std::span<const std::byte> bytes) const {
  const uint64_t begin = read.offset - table_.offset;  // offset in the table
  uint64_t verified = 0;                               // all pages before this one are verified
  for (size_t i = read.first; i < read.first + read.count; ++i) {
    const PageSpan pages = PagesOf(table_, plan.fills[i].row);
    for (uint64_t page = std::max(pages.first, verified); page <= pages.last; ++page) {
      const uint64_t at = page * kPageBytes, end = std::min(at + kPageBytes, table_.bytes);
      if (end - begin > bytes.size()) {
        return absl::DataLossError(absl::StrCat(table_.path.string(), ": is shorter than it was; import it again"));
      }
      const uint64_t is = Hash64(bytes.data() + (at - begin), end - at), expected = table_.page_checksums[page];
      if (is != expected) {
        return absl::DataLossError(absl::StrCat(table_.path.string(), ": section node_features: bytes ", at, "..",
                                                end - 1, ": checksum: is ", HashHex(is), ", expected ",
                                                HashHex(expected)));
      }
      verified = page + 1;
    }
    std::memcpy(plan.fills[i].to, bytes.data() + (table_.groups.OffsetOf(plan.fills[i].row, table_.row_bytes) - begin),
                table_.row_bytes);
  }
  return absl::OkStatus();
}

void RowCache::Finish(uint64_t ticket, const absl::Status& status) {
  if (!status.ok()) {
    ++counters_.read_errors;
    ++failures_;
    failure_ = status;
  }
  ++plans_[ticket - first_ticket_].done;
  while (!plans_.empty() && plans_.front().done == plans_.front().reads.size()) {
    EndPlan(plans_.front());
    plans_.pop_front();
    ++first_ticket_;
  }
  starting_ = std::max(starting_, first_ticket_);
}

void RowCache::FailAll(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  broken_ = true;
  ++counters_.read_errors;
  ++failures_;
  failure_ = status;
  for (const Plan& plan : plans_) {
    for (const Fill& fill : plan.fills) frames_->Spoil(fill.row);
    EndPlan(plan);
  }
  first_ticket_ += plans_.size();
  starting_ = first_ticket_;
  plans_.clear();
}

}  // namespace permafrost::data
