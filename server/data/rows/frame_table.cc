#include "data/rows/frame_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/sampling/edge_draw.h"

namespace permafrost::data {
namespace {

constexpr NodeId kAskEvery = 1 << 16;

// Returns the expected number of batches that get at least one draw, if `draws` draws are spread over `batches`
// batches.
float BatchesWith(double draws, double batches) { return static_cast<float>(-batches * std::expm1(-draws / batches)); }

}  // namespace

absl::Status AddExpectedDraws(const GraphView& view, std::span<const NodeId> seeds, int64_t batch_size,
                              std::span<const int64_t> fan_outs, const std::function<bool()>& keep_going,
                              std::span<float> sums) {
  if (seeds.empty()) return absl::OkStatus();
  const double batches = std::ceil(static_cast<double>(seeds.size()) / static_cast<double>(batch_size));
  // For each node, `found` is the expected number of batches that drew it in the last hop. `next` is the expected
  // number of draws in the current hop, and `all` is their sum over all hops.
  std::vector<float> found(view.nodes), next, all(view.nodes);
  for (const NodeId seed : seeds) found[seed] = all[seed] = 1;
  for (const int64_t fan_out : fan_outs) {
    next.assign(view.nodes, 0);
    ReadFaults faults;
    {
      AdjacencyReads reads(view.in, faults);
      for (NodeId node = 0; node < view.nodes; ++node) {
        if (node % kAskEvery == 0 && !keep_going()) return absl::CancelledError("stopped while draws were estimated");
        if (found[node] == 0) continue;
        const Adjacency::Extent extent = reads.Of(node);
        if (extent.size() == 0 || !reads.Touch(extent.begin, extent.end)) continue;
        const double chance =
            fan_out < 0 ? 1 : std::min(1.0, static_cast<double>(fan_out) / static_cast<double>(extent.size()));
        const auto each = static_cast<float>(found[node] * chance);
        for (uint64_t place = extent.begin; place < extent.end; ++place) next[reads.Row(place, node)] += each;
      }
    }
    if (absl::Status status = StatusOf(faults, view.in); !status.ok()) return status;
    for (size_t node = 0; node < view.nodes; ++node) {
      all[node] += next[node];
      next[node] = BatchesWith(next[node], batches);
    }
    std::swap(found, next);
  }
  for (size_t node = 0; node < view.nodes; ++node) sums[node] += BatchesWith(all[node], batches);
  return absl::OkStatus();
}

UseSchedule::Batch* UseSchedule::Find(UseSlot slot) {
  const size_t ahead = BatchesBefore(slot);
  return ahead < batches_.size() && !batches_[ahead].used ? &batches_[ahead] : nullptr;
}

uint64_t UseSchedule::Announce(std::span<const NodeId> rows, std::span<const NodeId> more, const Visit& known) {
  if (batches_.size() == kUseSlots || rows.size() + more.size() >= size_t{1} << kPlaceBits) return 0;
  const uint64_t number = first_ + batches_.size();
  const UseSlot slot = SlotOf(number);
  // Allocates all memory first, so that a failure leaves nothing announced.
  Batch made;
  made.rows.reserve(rows.size() + more.size());
  made.after.reserve(rows.size() + more.size());
  Batch& batch = batches_.emplace_back(std::move(made));
  for (const std::span<const NodeId> part : {rows, more}) {
    for (const NodeId row : part) {
      const auto last_slot = static_cast<UseSlot>(last_[row] >> kPlaceBits);
      if (next_[row] == kNoUse) {
        next_[row] = slot;
        known(row);
      } else if (last_slot == slot) {
        continue;  // the row occurs twice in this batch
      } else if (Batch* const before = Find(last_slot)) {
        before->after[last_[row] & ((uint32_t{1} << kPlaceBits) - 1)] = slot;
      }
      last_[row] = uint32_t{slot} << kPlaceBits | static_cast<uint32_t>(batch.rows.size());
      batch.rows.push_back(row);
      batch.after.push_back(kNoUse);
    }
  }
  return number;
}

void UseSchedule::Use(uint64_t number, const Visit& changed) {
  if (number < first_ || number >= first_ + batches_.size()) return;
  Batch& batch = batches_[number - first_];
  if (batch.used) return;
  batch.used = true;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const NodeId row = batch.rows[i];
    if (next_[row] != SlotOf(number)) continue;  // a batch that was announced earlier will use the row first
    next_[row] = Find(batch.after[i]) != nullptr ? batch.after[i] : kNoUse;
    changed(row);
  }
  std::vector<NodeId>().swap(batch.rows);
  std::vector<UseSlot>().swap(batch.after);
  while (!batches_.empty() && batches_.front().used) {
    batches_.pop_front();
    ++first_;
  }
}

namespace {

// Every row begins at a cache line.
constexpr uint64_t kFrameAlignment = 64;

uint64_t AlignedRow(uint64_t row_bytes) {
  return (row_bytes + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

}  // namespace

uint64_t FrameTable::FrameBytes(uint64_t row_bytes) { return AlignedRow(row_bytes) + sizeof(Frame) + sizeof(uint32_t); }

absl::StatusOr<std::unique_ptr<FrameTable>> FrameTable::Create(uint64_t rows, uint64_t row_bytes) {
  const uint64_t frame_bytes = AlignedRow(std::max<uint64_t>(row_bytes, 1));
  const uint64_t bytes = std::max<uint64_t>(rows, 1) * frame_bytes;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the feature cache: cannot reserve ", bytes, " bytes of addresses: ", std::strerror(errno)));
  }
#ifdef MADV_NOHUGEPAGE
  // If only a part of a huge page is given back, the system still counts that part as used. A cache that gives memory
  // back would see no effect, and would give back more and more.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
#endif
  return std::unique_ptr<FrameTable>(new FrameTable(rows, frame_bytes, static_cast<std::byte*>(memory)));
}

FrameTable::FrameTable(uint64_t rows, uint64_t frame_bytes, std::byte* memory)
    : rows_(rows),
      frame_bytes_(frame_bytes),
      memory_(memory),
      frame_of_row_(std::make_unique<std::atomic<uint32_t>[]>(rows)) {}

FrameTable::~FrameTable() { munmap(memory_, std::max<uint64_t>(rows_, 1) * frame_bytes_); }

void FrameTable::Append(uint32_t frame) {
  Frame& f = frames_[frame];
  const size_t index = ListOf(f);
  List& list = lists_[index];
  f.before = list.last;
  f.after = kNone;
  (list.last == kNone ? list.first : frames_[list.last].after) = frame;
  list.last = frame;
  occupied_[index / 64] |= uint64_t{1} << (index % 64);
}

void FrameTable::Unlink(uint32_t frame) {
  const Frame& f = frames_[frame];
  const size_t index = ListOf(f);
  List& list = lists_[index];
  (f.before == kNone ? list.first : frames_[f.before].after) = f.after;
  (f.after == kNone ? list.last : frames_[f.after].before) = f.before;
  if (list.first == kNone) occupied_[index / 64] &= ~(uint64_t{1} << (index % 64));
}

uint32_t FrameTable::Least() const {
  for (size_t word = 0; word < size_t{kLevels} / 64; ++word) {
    if (occupied_[word] == 0) continue;
    return lists_[word * 64 + static_cast<size_t>(std::countr_zero(occupied_[word]))].first;
  }
  // Goes backwards from the batch that was announced last.
  for (size_t back = 0; back < kUseSlots; ++back) {
    const List& list = lists_[kLevels + (newest_ + 2 * kUseSlots - kFirstUse - back) % kUseSlots];
    if (list.first != kNone) return list.first;
  }
  return kNone;
}

void FrameTable::Empty(uint32_t frame) {
  Frame& f = frames_[frame];
  frame_of_row_[f.row].store(0, std::memory_order_relaxed);
  f.row = kNone;
  f.spoilt = false;
  --used_;
}

void FrameTable::Release(uint32_t frame) {
  if (frame < limit_) {
    free_.push_back(frame);
  } else {
    GiveBack(frame, uint64_t{frame} + 1);
  }
}

void FrameTable::GiveBack(uint64_t first, uint64_t last) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = (first * frame_bytes_ + page - 1) / page * page, end = last * frame_bytes_ / page * page;
  if (begin < end) madvise(memory_ + begin, end - begin, MADV_DONTNEED);
}

void FrameTable::SetFrames(uint64_t frames) {
  const uint64_t before = std::exchange(limit_, std::clamp<uint64_t>(frames, 1, std::max<uint64_t>(rows_, 1)));
  if (limit_ == before) return;
  if (limit_ >= before) {
    // Frames without a row that were beyond the old limit become free.
    for (uint64_t frame = before; frame < std::min<uint64_t>(limit_, frames_.size()); ++frame) {
      if (frames_[frame].row == kNone) free_.push_back(static_cast<uint32_t>(frame));
    }
    return;
  }
  std::erase_if(free_, [this](uint32_t frame) { return frame >= limit_; });
  for (uint64_t frame = limit_; frame < frames_.size(); ++frame) {
    if (frames_[frame].row == kNone || frames_[frame].pins > 0) continue;
    Unlink(static_cast<uint32_t>(frame));
    Empty(static_cast<uint32_t>(frame));
    ++evictions_;
  }
  while (frames_.size() > limit_ && frames_.back().row == kNone) frames_.pop_back();
  // Pinned frames beyond the limit stay until their last pin is removed.
  uint64_t first = limit_;
  for (uint64_t frame = limit_; frame < frames_.size(); ++frame) {
    if (frames_[frame].row == kNone) continue;
    GiveBack(first, frame);
    first = frame + 1;
  }
  GiveBack(first, before);
}

void FrameTable::SetLevels(std::vector<uint8_t> levels) {
  levels_ = std::move(levels);
  for (uint32_t frame = 0; frame < frames_.size(); ++frame) {
    Frame& f = frames_[frame];
    if (f.row == kNone) continue;
    const uint8_t level = levels_.empty() ? 0 : levels_[f.row];
    if (f.pins == 0 && level != f.level) {
      Unlink(frame);
      f.level = level;
      Append(frame);
    }
    f.level = level;
  }
}

void FrameTable::SetNextUse(uint32_t row, UseSlot next) {
  const uint32_t found = frame_of_row_[row].load(std::memory_order_relaxed);
  if (found == 0) return;
  Frame& f = frames_[found - 1];
  if (f.next == next) return;
  if (f.pins == 0) Unlink(found - 1);
  f.next = next;
  if (f.pins == 0) Append(found - 1);
}

FrameTable::Pinned FrameTable::Pin(uint32_t row, uint64_t mark) {
  const uint32_t found = frame_of_row_[row].load(std::memory_order_relaxed);
  if (found == 0) return Pinned::kMissing;
  Frame& f = frames_[found - 1];
  if (std::exchange(f.mark, mark) == mark) return Pinned::kAgain;
  if (f.pins++ == 0) {
    Unlink(found - 1);
    ++pinned_;
  }
  return Pinned::kPinned;
}

bool FrameTable::CanHold(UseSlot next) const {
  if (!free_.empty() || frames_.size() < limit_) return true;
  const uint32_t least = Least();
  if (least == kNone) return false;
  const UseSlot goes = frames_[least].next;
  return goes == kNoUse || AnnouncedAfter(goes) < AnnouncedAfter(next);
}

std::byte* FrameTable::Take(uint32_t row, uint64_t mark) {
  uint32_t frame;
  if (!free_.empty()) {
    frame = free_.back();
    free_.pop_back();
  } else if (frames_.size() < limit_) {
    frame = static_cast<uint32_t>(frames_.size());
    frames_.emplace_back();
  } else {
    frame = Least();
    if (frame == kNone) return nullptr;
    Unlink(frame);
    Empty(frame);
    ++evictions_;
  }
  Frame& f = frames_[frame];
  f = {.row = row, .pins = 1, .mark = mark, .level = levels_.empty() ? uint8_t{0} : levels_[row]};
  frame_of_row_[row].store(frame + 1, std::memory_order_relaxed);
  ++used_;
  ++pinned_;
  return At(frame);
}

void FrameTable::Unpin(uint32_t row) {
  const uint32_t frame = frame_of_row_[row].load(std::memory_order_relaxed) - 1;
  Frame& f = frames_[frame];
  if (--f.pins > 0) return;
  --pinned_;
  if (!f.spoilt && frame < limit_) {
    Append(frame);
    return;
  }
  if (!f.spoilt) ++evictions_;
  Empty(frame);
  Release(frame);
}

void FrameTable::Spoil(uint32_t row) { frame_of(row).spoilt = true; }

}  // namespace permafrost::data
