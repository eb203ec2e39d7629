// Plans what a RowCache reads for a lease: the rows that are missing, and those that lie beside them and are used soon.
// The thread of a RowCache, which reads what leases wait for.

#include <algorithm>
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
#include "data/rows/row_cache.h"

namespace permafrost::data {
namespace {

// The rows that leases read take at most this part of the frames: the rest is for rows that come again.
constexpr uint64_t kReadingShare = 8;
// This many leases may read whatever part they take: the disk works for one while the rows of the other are gathered.
constexpr int64_t kNeededLeases = 2;
// This many may take up to this larger part: the third keeps the disk busy until the fourth is made.
constexpr int64_t kLeastReadingLeases = 3;
constexpr uint64_t kLargeReadingShare = 3;
// Rows that are looked at for one plan, whether they come along with its reads.
constexpr uint64_t kMostAlongLooks = 1 << 16;
// A read gets longer for a row that comes along, by up to this part of what another read costs. The row saves a read of
// a later batch if it is still there by then.
constexpr double kAlongShare = 2.0 / 3;

}  // namespace

bool RowCache::MayRead(uint64_t rows) const {
  const uint64_t all = reading_rows_ + rows, frames = frames_->frames();
  if (all <= frames / kReadingShare || reading_leases_ < kNeededLeases) return true;
  // Frames that hold nothing yet cost nobody a row.
  const uint64_t unused = frames > frames_->used() ? frames - frames_->used() : 0;
  return (reading_leases_ < kLeastReadingLeases || rows <= unused) && all <= frames / kLargeReadingShare;
}

absl::Status RowCache::TakeFrames(std::span<const NodeId> missing, uint64_t mark, bool must, Lease& lease) {
  if (missing.empty()) return absl::OkStatus();  // a plan ends with the last of its reads
  const bool has_room = missing.size() <= frames_->available();
  if (!must && (!has_room || !MayRead(missing.size()))) {
    return absl::ResourceExhaustedError("the feature cache: other batches hold what there is room for");
  }
  Plan plan;
  // Where memory fails on the way, no row may seem to be there that nobody reads.
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
  const size_t most = std::min(room - along_rows_, kMostAlongLooks);  // each takes a look
  const auto more_pages = static_cast<uint64_t>(kAlongShare * static_cast<double>(gap_bytes_)) / kPageBytes;
  // Batches share rows, so that frames hold those of more batches than of the largest ones; what is used later still is
  // dropped before, more often than not.
  const uint64_t batches_held = 2 * frames_->frames() / std::max<uint64_t>(largest_lease_, 1);
  uint64_t looks = kMostAlongLooks;
  std::vector<Fill> fills;
  fills.reserve(plan.fills.size() + most);
  plan.along.reserve(most);
  // Returns whether the row comes along.
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
  NodeId seen = 0;  // all rows before it
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

// A tag is a ticket and a read of its plan.
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
    // The disk gets new reads before those that are done are verified and copied.
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
    // Stays where it is: a deque that grows and shrinks at its ends moves nothing.
    plan = &plans_[ticket - first_ticket_];
  }
  const PlannedRead& planned = plan->reads[index];
  absl::Status status = bytes.ok() ? Copy(*plan, planned, *bytes) : bytes.status();
  // If the file changed meanwhile, say so, and not what reading it came upon.
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
