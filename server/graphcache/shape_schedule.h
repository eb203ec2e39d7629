// Holds what is known of a job's batch shapes before its first step. The sampler is seeded, so that every batch of
// every planned epoch is known; train/ reports the shapes, this file sums them up. All shapes are least padded shapes:
// one node and one graph more than the batch has. Threads: values and pure functions; ShapeCounter from one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/step.h"

namespace permafrost::graphcache {

struct ShapeCount {
  BatchShape shape;
  int64_t count = 0;  // batches
  bool operator==(const ShapeCount&) const = default;
};

class ShapeCounter {
 public:
  void Add(const BatchShape& shape, int64_t count = 1);
  // Ordered by shape.
  std::vector<ShapeCount> Counts() const;
  int64_t distinct() const { return static_cast<int64_t>(counts_.size()); }
  int64_t batches() const { return batches_; }

 private:
  std::map<BatchShape, int64_t> counts_;
  int64_t batches_ = 0;
};

// The least shape that holds all; zeros for none.
BatchShape Ceiling(const std::vector<ShapeCount>& shapes);

// Rows (nodes + edges) of a step at `shape`: what padding is measured by, and what "cheapest" means.
int64_t Rows(const BatchShape& shape);

// The one of `shapes` with the fewest rows that holds `shape`, the first of several; nullptr: none does.
const BatchShape* FindCheapest(std::span<const BatchShape> shapes, const BatchShape& shape);

// At most `max_rungs` shapes that hold every one of `shapes`, each of them by some rung, so that the rows added by
// padding are as few as dynamic programming over the shapes in order of their rows finds, where the last rung holds
// all. Not more than `max_rungs` distinct shapes: exactly those, none of which need hold all. Ordered by rows. More
// than kMaxLadderShapes distinct shapes are first merged with their neighbours. `max_rungs` below 1 counts as 1.
inline constexpr int64_t kMaxLadderShapes = 2048;
// At most kMaxLadderShapes, ordered by rows, each the ceiling of neighbours in that order: what Ladder works on.
std::vector<ShapeCount> MergeNeighbours(const std::vector<ShapeCount>& shapes);
std::vector<BatchShape> Ladder(const std::vector<ShapeCount>& shapes, int64_t max_rungs);

// A job's plan.
struct ShapeSchedule {
  // Holds every training batch.
  BatchShape train_ceiling;
  // Distinct shapes of the training schedule; 0 where it was too long to be walked to its end and the ceiling is the
  // proven bound: the largest graphs of the split together.
  int64_t train_shapes = 0;
  // Distinct shapes of the schedule's beginning, as far as it was walked: train_shapes, or fewer than there will be.
  int64_t known_train_shapes = 0;
  // Where training batches are rounded up to a few shapes before they reach the cache: those, rising, the ceiling last.
  // A ladder is some of them. Under Shapes::kExact freezing captures them all, and without an explicit freeze point the
  // cache freezes after its first step. Empty: batches come at their own shapes.
  std::vector<BatchShape> train_rungs;
  // The shapes that evaluation batches are padded to under kFreeze and Shapes::kExact; some rung holds each of them. At
  // most kMaxEvalRungs.
  std::vector<BatchShape> eval_rungs;
  // The schedule of a mode by MergeNeighbours, so that a ladder of any number of rungs can be made while the job runs.
  // A training schedule that was not walked to its end has what was walked, and the ceiling, 0 times. Sampled blocks
  // have each planned rung, as often as sampled batches let expect. Empty: nothing is known.
  std::vector<ShapeCount> train_schedule, eval_schedule;
  // The result of LadderOf for so many rungs, where it was made already.
  struct Ladders {
    int64_t max_rungs = 0;
    std::vector<BatchShape> train, eval;
    bool operator==(const Ladders&) const = default;
  };
  std::optional<Ladders> ladders = std::nullopt;
  bool operator==(const ShapeSchedule&) const = default;
};
inline constexpr int64_t kMaxEvalRungs = 32;

// The shapes, rising, that the mode's batches are rounded up to under Shapes::kLadder, each of them by some; at most
// `max_rungs`, in evaluation also at most kMaxEvalRungs. Where the plan rounds batches up already, some of its rungs,
// or all where it does not say how many batches each has. Empty: nothing is planned.
std::vector<BatchShape> LadderOf(const ShapeSchedule& plan, Mode mode, int64_t max_rungs);
// Makes plan.ladders.
void MakeLadders(int64_t max_rungs, ShapeSchedule& plan);

// A job's shape plan as JSON, for those who keep it.
// Threads: pure functions.
std::string ToJson(const ShapeSchedule& plan);
// Errors: DataLoss that names what is wrong.
absl::StatusOr<ShapeSchedule> ShapeScheduleFromJson(const std::string& text);

}  // namespace permafrost::graphcache
