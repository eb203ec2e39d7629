// Knows which rows batches will use: those of sampled batches, and those that are to be expected.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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

}  // namespace permafrost::data
