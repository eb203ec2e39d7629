// Which rows of a table are in memory: frames, each the memory of one row, given to rows that are asked for and taken
// from those that are wanted least.
// A pin keeps a row in its frame. Of the rows without pins that of the lowest level goes first, and of one level the
// one whose last pin went first. The rows that batches sampled ahead will use are pinned, so that nothing goes that
// they use (Belady's choice, as far as they are known); beyond them the levels say what comes again. Threads: one at a
// time, but for Find, which is safe anywhere for rows that the caller has pinned.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace permafrost::data {

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

  // How many frames there may be, >= 1. Rows beyond go at once, those that are pinned when their last pin goes; their
  // memory goes back to the system.
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

  // Pins a row that has a frame, once for each mark; marks rise, from 1. kAgain: the mark before was the same, and no
  // pin was added.
  enum class Pinned { kMissing, kPinned, kAgain };
  Pinned Pin(uint32_t row, uint64_t mark);
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
    uint32_t before = kNone, after = kNone;  // in the list of its level, or of the free ones
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
  void Append(uint32_t frame);  // to the list of its level
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
  std::array<List, kLevels> lists_;  // of frames without pins
  std::array<uint64_t, kLevels / 64> occupied_{};
};

}  // namespace permafrost::data
