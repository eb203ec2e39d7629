// Chooses which rows of a table stay in memory. Rows that sampled batches will use come first, then rows that later
// batches are expected to use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Estimates how often neighbour sampling will draw each node. A feature cache chooses its rows by this estimate alone
// until it has counted the draws of an epoch. Threads: safe anywhere.

// Adds to sums[v], for each node v, the expected number of batches in an epoch that contain v. The epoch runs over
// `seeds` (distinct rows), with these fan-outs (NeighborSamplingOptions). A node with k neighbours draws each of them
// with probability min(1, fan-out / k). A node that is drawn several times in one batch counts once. Draws are taken
// to be independent. Reads all edges once for each hop, and calls `keep_going` now and then. Errors: Cancelled if
// `keep_going` returns false; DataLoss.
absl::Status AddExpectedDraws(const GraphView& view, std::span<const NodeId> seeds, int64_t batch_size,
                              std::span<const int64_t> fan_outs, const std::function<bool()>& keep_going,
                              std::span<float> sums);

// Knows which batch uses each row next, among the batches that were sampled and have not leased their rows yet.
// Belady's choice of the row to drop needs this. A batch announces its rows, and batches use their rows in the order
// of their announcements. If a batch breaks this order, the next use of some rows may count as unknown, and nothing
// worse happens. Threads: one at a time.

// Identifies an announced batch. After kUseSlots further announcements, another batch gets the same slot.
using UseSlot = uint16_t;
inline constexpr UseSlot kNoUse = 0, kFirstUse = 1;
inline constexpr size_t kUseSlots = 256;

class UseSchedule {
 public:
  using Visit = std::function<void(NodeId row)>;

  explicit UseSchedule(uint64_t rows) : next_(rows), last_(rows) {}
  static constexpr uint64_t kBytesPerRow = sizeof(UseSlot) + sizeof(uint32_t);

  // Announces a batch that will use the rows in `rows` and in `more`. Each row is below the constructor's `rows`, and
  // may occur several times. Calls `known` for each row that had no known next use before this call. Returns the
  // number of the batch, counted from 1. If too many batches wait, or if the batch has too many rows, records nothing
  // and returns 0.
  uint64_t Announce(std::span<const NodeId> rows, std::span<const NodeId> more, const Visit& known);
  // Ends the announcement of batch `number`, because the batch uses its rows now or will never use them. The next use
  // of these rows is then in a later batch or unknown. Calls `changed` for each row whose next use changes. Does
  // nothing if `number` is 0, or if that announcement has ended already.
  void Use(uint64_t number, const Visit& changed);

  // Returns true while the announcement of any batch has not ended.
  bool any() const { return !batches_.empty(); }
  UseSlot NextUse(NodeId row) const { return next_[row]; }
  // Returns the number of announced batches that come before the batch of a slot.
  size_t BatchesBefore(UseSlot slot) const { return (slot + kUseSlots - SlotOf(first_)) % kUseSlots; }
  // Returns the slot of an announced batch.
  static UseSlot SlotOf(uint64_t number) { return static_cast<UseSlot>(number % kUseSlots + kFirstUse); }

 private:
  struct Batch {
    std::vector<NodeId> rows;    // distinct rows
    std::vector<UseSlot> after;  // for each row: the slot of the next batch that uses it
    bool used = false;
  };
  // An entry of last_ names the last announced batch that uses a row. Its upper bits hold the batch's slot, and its
  // lower bits hold the row's index in Batch::rows.
  static constexpr int kPlaceBits = 23;

  // Returns the batch in `slot`, or null if its announcement has ended.
  Batch* Find(UseSlot slot);

  std::deque<Batch> batches_;  // the batches with the numbers first_, first_ + 1, ...
  uint64_t first_ = 1;
  std::vector<UseSlot> next_;
  std::vector<uint32_t> last_;  // meaningful for rows with a next use
};

// Keeps rows of a table in memory. A frame is the memory for one row. A row that is asked for gets an empty frame or,
// if there is none, the frame of a row that is dropped.
// A pin keeps a row in its frame. Rows without pins are dropped in this order. First come the rows that no announced
// batch uses (UseSchedule), by rising level. Within a level, the row that entered it first is dropped first. Then
// come the rows that announced batches use, the row with the latest next use first. This order is Belady's choice, as
// far as batches are known. Threads: one at a time, except for Find, which is safe anywhere for rows that the caller
// has pinned.
class FrameTable {
 public:
  // Reserves addresses for all rows. Memory is taken only when a frame is used. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<FrameTable>> Create(uint64_t rows, uint64_t row_bytes);
  ~FrameTable();
  FrameTable(const FrameTable&) = delete;
  FrameTable& operator=(const FrameTable&) = delete;

  // Returns the bytes of memory that one more frame takes.
  static uint64_t FrameBytes(uint64_t row_bytes);
  // The bytes that the FrameTable takes for each row of the file, whether the row is in memory or not.
  static constexpr uint64_t kBytesPerRow = sizeof(uint32_t) + sizeof(uint8_t);

  // Sets the limit on the number of frames, >= 1. A frame beyond the limit loses its row: at once if the row has no
  // pins, else when the last pin is removed. The memory of these frames goes back to the system.
  void SetFrames(uint64_t frames);
  uint64_t frames() const { return limit_; }
  uint64_t used() const { return used_; }
  uint64_t evictions() const { return evictions_; }
  // Returns the number of frames that Take can give. These are the empty frames, and the frames whose rows have no
  // pins.
  uint64_t available() const { return limit_ > pinned_ ? limit_ - pinned_ : 0; }
  // Makes sure that Take can give `rows` frames. Raises the limit set by SetFrames if necessary.
  void MakeRoom(uint64_t rows) {
    if (available() < rows) SetFrames(pinned_ + rows);
  }

  // Sets a level for each row of the file: 0 (dropped first) to kLevels - 1.
  static constexpr int kLevels = 256;
  void SetLevels(std::vector<uint8_t> levels);

  // Sets which batch uses a row next. Does nothing if the row has no frame.
  void SetNextUse(uint32_t row, UseSlot next);
  // Sets the slot of the batch that was announced last.
  void SetNewest(UseSlot newest) { newest_ = newest; }

  // Pins a row that has a frame, at most once for each mark. Marks rise from 1. Returns kMissing if the row has no
  // frame. If this mark has pinned the row already, adds no pin and returns kAgain.
  enum class Pinned { kMissing, kPinned, kAgain };
  Pinned Pin(uint32_t row, uint64_t mark);
  bool has(uint32_t row) const { return frame_of_row_[row].load(std::memory_order_relaxed) != 0; }
  // Returns whether Take can give a frame without dropping a row that is used by the batch in slot `next` or by an
  // earlier batch.
  bool CanHold(UseSlot next) const;
  // Gives a frame and a pin to a row that has no frame. Returns the memory of the frame, or null if every frame is
  // pinned.
  std::byte* Take(uint32_t row, uint64_t mark);
  void Unpin(uint32_t row);
  // Notes that the reading of a pinned row failed. The frame becomes free when the row's last pin is removed.
  void Spoil(uint32_t row);
  bool spoilt(uint32_t row) const { return frame_of(row).spoilt; }

  // Returns the bytes of a pinned row.
  const std::byte* Find(uint32_t row) const { return At(frame_of_row_[row].load(std::memory_order_relaxed) - 1); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Frame {
    uint32_t row = kNone;
    uint32_t pins = 0;
    uint64_t mark = 0;
    uint32_t before = kNone, after = kNone;  // neighbours in the list
    UseSlot next = kNoUse;
    uint8_t level = 0;
    bool spoilt = false;
  };
  struct List {
    uint32_t first = kNone, last = kNone;
  };

  FrameTable(uint64_t rows, uint64_t frame_bytes, std::byte* memory);
  std::byte* At(uint32_t frame) const { return memory_ + uint64_t{frame} * frame_bytes_; }
  Frame& frame_of(uint32_t row) { return frames_[frame_of_row_[row].load(std::memory_order_relaxed) - 1]; }
  const Frame& frame_of(uint32_t row) const { return frames_[frame_of_row_[row].load(std::memory_order_relaxed) - 1]; }
  // Returns the index of the list that holds a frame without pins. There is a list for each level, with the rows of
  // that level whose next use is unknown. There is also a list for each announced batch, with the rows that this
  // batch uses next.
  static size_t ListOf(const Frame& frame) {
    return frame.next == kNoUse ? frame.level : kLevels + size_t{frame.next} - kFirstUse;
  }
  // Returns the number of batches that were announced after the batch of this slot.
  size_t AnnouncedAfter(UseSlot slot) const { return (newest_ + 2 * kUseSlots - slot) % kUseSlots; }
  void Append(uint32_t frame);
  void Unlink(uint32_t frame);
  // Returns the frame whose row is dropped first, or kNone if all frames are pinned.
  uint32_t Least() const;
  // Drops the row of the frame. The row must have no pins.
  void Empty(uint32_t frame);
  void Release(uint32_t frame);  // the frame must be empty
  void GiveBack(uint64_t first, uint64_t last);

  const uint64_t rows_, frame_bytes_;
  std::byte* const memory_;
  uint64_t limit_ = 0, used_ = 0, pinned_ = 0, evictions_ = 0;
  const std::unique_ptr<std::atomic<uint32_t>[]> frame_of_row_;  // 0 if the row has no frame, else its frame + 1
  std::vector<uint8_t> levels_;                                  // empty if all are 0
  std::vector<Frame> frames_;                                    // used so far; SetFrames drops empty ones at the end
  std::vector<uint32_t> free_;
  static constexpr size_t kLists = kLevels + kUseSlots;
  std::array<List, kLists> lists_;
  std::array<uint64_t, kLists / 64> occupied_{};
  UseSlot newest_ = kNoUse;
};

}  // namespace permafrost::data
