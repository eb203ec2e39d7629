// The thread of a RowCache, which reads what leases wait for.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "data/rows/row_cache.h"

namespace permafrost::data {
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
