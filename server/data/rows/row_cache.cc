#include "data/rows/row_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

// A lease beside others may read so much of what there is room for: the rest is for rows that come again.
constexpr uint64_t kReadingShare = 3;
// Reads go on to the next row up to this length.
constexpr uint32_t kMostReadBytes = 64 << 10;
// A tag is a ticket and a read of its plan.
constexpr int kReadBits = 32;
// Levels of wanted rows: this many for each doubling, from draws of 2^kLeastExponent an epoch on.
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
  // Its frames are written to until then.
  (void)Await();
  RowCache& cache = *std::exchange(cache_, nullptr);
  absl::MutexLock lock(&cache.mu_);
  for (const NodeId row : rows_) cache.frames_->Unpin(row);
  cache.reading_rows_ -= reading_;
  // After a batch that took more.
  if (--cache.leases_ == 0) cache.frames_->SetFrames(cache.FramesFor(cache.counters_.budget_bytes));
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
  // A row may begin and end within a page.
  const uint64_t row_pages = WholePages(table_.row_bytes) + kPageBytes;
  reader.max_read_bytes = static_cast<uint32_t>(std::max<uint64_t>(kMostReadBytes, row_pages));
  PF_ASSIGN_OR_RETURN(disk_, DiskReader::Open(table_.path, reader));
  {
    absl::MutexLock lock(&mu_);
    gap_bytes_ = gap_bytes;
    most_bytes_ = reader.max_read_bytes;
    stopping_ = broken_ = false;
    reader_ = {.kind = std::string(kDiskReaderKindNames.Name(disk_->kind())),
               .fallback = disk_->fallback(),
               .direct = disk_->direct(),
               .depth = disk_->depth()};
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
        // Who pinned it before has not let go of it yet.
        if (frames_->spoilt(row)) return failure_;
        break;
      case FrameTable::Pinned::kAgain:
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status RowCache::TakeFrames(std::span<const NodeId> missing, uint64_t mark, bool must, Lease& lease) {
  if (missing.empty()) return absl::OkStatus();  // a plan ends with the last of its reads
  const bool has_room = missing.size() <= frames_->available();
  if (!must && (!has_room || reading_rows_ + missing.size() > frames_->frames() / kReadingShare)) {
    return absl::ResourceExhaustedError("the feature cache: other batches hold what there is room for");
  }
  Plan plan;
  plan.fills.reserve(missing.size());
  if (!has_room) {
    frames_->MakeRoom(missing.size());
    ++counters_.over_budget;
  }
  for (const NodeId row : missing) {
    std::byte* const to = frames_->Take(row, mark);
    lease.rows_.push_back(row);
    plan.fills.push_back({.row = row, .to = to});
  }
  plan.reads = PlanReads(table_, missing, gap_bytes_, most_bytes_);
  plan.begun.resize(plan.reads.size());
  lease.reading_ = missing.size();
  reading_rows_ += missing.size();
  plans_.push_back(std::move(plan));
  return absl::OkStatus();
}

absl::StatusOr<RowCache::Lease> RowCache::Pin(std::span<const NodeId> rows, std::span<const NodeId> more, bool must) {
  Lease lease;
  std::vector<NodeId> missing;
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
    // What another lease brought meanwhile.
    std::vector<NodeId> still;
    status = PinPresent(missing, mark, lease, still);
    const auto present = static_cast<int64_t>(lease.rows_.size());
    if (status.ok()) status = TakeFrames(still, mark, must, lease);
    if (status.ok()) {
      counters_.hits += present;
      counters_.misses += std::ssize(still);
    }
  } else {
    counters_.hits += std::ssize(lease.rows_);
  }
  if (!status.ok()) return status;  // the lease lets go of what it has
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
  while (status.ok()) {
    while (status.ok() && disk_->in_flight() < disk_->depth()) {
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
    if (status.ok() && disk_->in_flight() > 0) {
      status = disk_->Wait(
          [this](const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) { Take(read, bytes); });
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
    // Stays where it is: a deque that grows and shrinks at its ends moves nothing.
    plan = &plans_[ticket - first_ticket_];
  }
  const PlannedRead& planned = plan->reads[index];
  absl::Status status = bytes.ok() ? Copy(*plan, planned, *bytes) : bytes.status();
  // Rather than what reading a changed file came upon.
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
  const uint64_t begin = read.offset - table_.offset;  // in the table
  uint64_t verified = 0;                               // pages up to this one
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
  }
  first_ticket_ += plans_.size();
  starting_ = first_ticket_;
  plans_.clear();
}

}  // namespace permafrost::data
