// Chooses which rows of a table stay in memory: those that batches will use, as far as that is known or to be expected.
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

// Expects how often neighbour sampling will draw each node: by this a feature cache chooses its rows before anything
// was counted. Threads: safe anywhere.

// The batches of an epoch over `seeds` (distinct rows) that a sample with these fan-outs (NeighborSamplingOptions) puts
// each node into, summed over `sums` [nodes]. A node draws each of its k neighbours with the chance min(1, fan-out /
// k); a node that is drawn several times in one batch counts once, draws being taken for independent. Reads all edges
// once a hop. keep_going is asked now and then. Errors: Cancelled when it says no; DataLoss.
absl::Status AddExpectedDraws(const GraphView& view, std::span<const NodeId> seeds, int64_t batch_size,
                              std::span<const int64_t> fan_outs, const std::function<bool()>& keep_going,
                              std::span<float> sums);

// Knows which batch uses a row next, of the batches that were sampled and have not leased their rows yet: Belady's
// choice of the row to drop needs this. A batch is announced with its rows, and used in the order of announcement; out
// of that order a row's next use may be taken for unknown, and nothing else happens. Threads: one at a time.

// An announced batch; numbers come again once kUseSlots others were announced.
using UseSlot = uint16_t;
inline constexpr UseSlot kNoUse = 0, kFirstUse = 1;
inline constexpr size_t kUseSlots = 256;

class UseSchedule {
 public:
  using Visit = std::function<void(NodeId row)>;

  explicit UseSchedule(uint64_t rows) : next_(rows), last_(rows) {}
  static constexpr uint64_t kBytesPerRow = sizeof(UseSlot) + sizeof(uint32_t);

  // A batch that uses `rows` and `more`, each below the number of rows; they may stand several times. known: called for
  // each row that no batch was known to use before. Batches are numbered from 1 on; 0: so many are announced that it
  // cannot be recorded.
  uint64_t Announce(std::span<const NodeId> rows, std::span<const NodeId> more, const Visit& known);
  // The batch uses its rows, or never will: their next use is of a batch after it. changed: called for each row whose
  // next use is another now. Nothing happens for 0, or a second time.
  void Use(uint64_t number, const Visit& changed);

  // Returns whether a batch waits.
  bool any() const { return !batches_.empty(); }
  UseSlot NextUse(NodeId row) const { return next_[row]; }
  // The number of announced batches that come before that of a slot.
  size_t BatchesBefore(UseSlot slot) const { return (slot + kUseSlots - SlotOf(first_)) % kUseSlots; }
  // The slot of a batch that is announced.
  static UseSlot SlotOf(uint64_t number) { return static_cast<UseSlot>(number % kUseSlots + kFirstUse); }

 private:
  struct Batch {
    std::vector<NodeId> rows;    // each once
    std::vector<UseSlot> after;  // of each row: the batch that uses it after this one
    bool used = false;
  };
  // A row's last batch is kept in one number: its slot above, the place among its rows below.
  static constexpr int kPlaceBits = 23;

  // nullptr: no batch of that slot waits.
  Batch* Find(UseSlot slot);

  std::deque<Batch> batches_;  // numbers first_, first_ + 1, ...
  uint64_t first_ = 1;
  std::vector<UseSlot> next_;
  std::vector<uint32_t> last_;  // of rows with a next use
};

// Keeps rows of a table in memory: frames, each the memory of one row, are given to rows that are asked for and taken
// from those that are wanted least.
// A pin keeps a row in its frame. Rows without pins go in this order: first those that no announced batch uses
// (UseSchedule), by level, the lowest first, and within a level the one that came into it first; after them the one
// that is used last (Belady's choice, as far as batches are known). Threads: one at a time, but for Find, which is safe
// anywhere for rows that the caller has pinned.
class FrameTable {
 public:
  // Reserves addresses for all the rows; memory is taken as frames are used. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<FrameTable>> Create(uint64_t rows, uint64_t row_bytes);
  ~FrameTable();
  FrameTable(const FrameTable&) = delete;
  FrameTable& operator=(const FrameTable&) = delete;

  // Bytes of memory that one more frame takes, and that the table takes for each row of the file whatever is in memory.
  static uint64_t FrameBytes(uint64_t row_bytes);
  static constexpr uint64_t kBytesPerRow = sizeof(uint32_t) + sizeof(uint8_t);

  // Sets how many frames there may be, >= 1. Rows beyond go at once, pinned ones when their last pin goes; their memory
  // goes back to the system.
  void SetFrames(uint64_t frames);
  uint64_t frames() const { return limit_; }
  uint64_t used() const { return used_; }
  uint64_t evictions() const { return evictions_; }
  // Rows without pins, or without a row: what Take can give.
  uint64_t available() const { return limit_ > pinned_ ? limit_ - pinned_ : 0; }
  // Frames for so many more rows, whatever SetFrames said.
  void MakeRoom(uint64_t rows) {
    if (available() < rows) SetFrames(pinned_ + rows);
  }

  // 0 (goes first) to kLevels - 1, one for each row of the file.
  static constexpr int kLevels = 256;
  void SetLevels(std::vector<uint8_t> levels);

  // Sets which batch uses a row next; nothing happens where the row has no frame. newest: the slot of the batch that
  // was announced last, after which none comes.
  void SetNextUse(uint32_t row, UseSlot next);
  void SetNewest(UseSlot newest) { newest_ = newest; }

  // Pins a row that has a frame, once for each mark; marks rise, from 1. kAgain: the mark before was the same, and no
  // pin was added.
  enum class Pinned { kMissing, kPinned, kAgain };
  Pinned Pin(uint32_t row, uint64_t mark);
  bool has(uint32_t row) const { return frame_of_row_[row].load(std::memory_order_relaxed) != 0; }
  // Returns whether Take would drop no row that is used as soon as a batch of this slot, or sooner.
  bool CanHold(UseSlot next) const;
  // Gives a frame to a row that has none, with a pin. nullptr: every frame is pinned.
  std::byte* Take(uint32_t row, uint64_t mark);
  void Unpin(uint32_t row);
  // A pinned row whose reading failed: its frame is free once its last pin goes.
  void Spoil(uint32_t row);
  bool spoilt(uint32_t row) const { return frame_of(row).spoilt; }

  // The bytes of a pinned row.
  const std::byte* Find(uint32_t row) const { return At(frame_of_row_[row].load(std::memory_order_relaxed) - 1); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Frame {
    uint32_t row = kNone;
    uint32_t pins = 0;
    uint64_t mark = 0;
    uint32_t before = kNone, after = kNone;  // in its list
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
  // The list of a frame without pins: one for each level of those that nobody is known to use, one for each batch that
  // uses the others next.
  static size_t ListOf(const Frame& frame) {
    return frame.next == kNoUse ? frame.level : kLevels + size_t{frame.next} - kFirstUse;
  }
  // The number of batches that were announced after the one of this slot.
  size_t AnnouncedAfter(UseSlot slot) const { return (newest_ + 2 * kUseSlots - slot) % kUseSlots; }
  void Append(uint32_t frame);
  void Unlink(uint32_t frame);
  // The frame whose row goes first; kNone: all are pinned.
  uint32_t Least() const;
  // Takes the frame from its row, which has no pins.
  void Empty(uint32_t frame);
  void Release(uint32_t frame);  // an empty one
  void GiveBack(uint64_t first, uint64_t last);

  const uint64_t rows_, frame_bytes_;
  std::byte* const memory_;
  uint64_t limit_ = 0, used_ = 0, pinned_ = 0, evictions_ = 0;
  const std::unique_ptr<std::atomic<uint32_t>[]> frame_of_row_;  // 0: none, else its frame + 1
  std::vector<uint8_t> levels_;                                  // empty: all 0
  std::vector<Frame> frames_;                                    // those used so far
  std::vector<uint32_t> free_;
  static constexpr size_t kLists = kLevels + kUseSlots;
  std::array<List, kLists> lists_;
  std::array<uint64_t, kLists / 64> occupied_{};
  UseSlot newest_ = kNoUse;
};

}  // namespace permafrost::data
