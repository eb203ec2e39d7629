// Plans what a RowCache reads for a lease: the rows that are missing, and those that lie beside them and are used soon.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "data/rows/row_cache.h"

namespace permafrost::data {
namespace {

// The rows that leases read take at most this part of the frames: the rest is for rows that come again.
constexpr uint64_t kReadingShare = 8;
// So many leases may read whatever part they take: the disk works for one while the rows of the other are gathered.
constexpr int64_t kNeededLeases = 2;
// So many may take up to this larger part: the third keeps the disk busy until the fourth is made.
constexpr int64_t kLeastReadingLeases = 3;
constexpr uint64_t kLargeReadingShare = 3;
// Rows that are looked at for one plan, whether they come along with its reads.
constexpr uint64_t kMostAlongLooks = 1 << 16;
// For a row that comes along a read gets longer by so much of what costs as much as a read: it saves one of a later
// batch, if it is still there by then.
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

}  // namespace permafrost::data
