// The census of a job on MPS, before it runs: which entries its steps would add to libtorch's cache of compiled graphs
// (MPSGraphCache), which keeps one for each operator with each combination of types, sizes and scalars that it meets,
// and evicts none. The operators are those of recorded steps (train/planning/cache_planner.h); which of them add an
// entry is told by rules for each release of libtorch; how their sizes follow from a batch's is found here, so that the
// keys of thousands of shapes are counted without running each. Threads: values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "base/step.h"
#include "graphcache/cache_plan.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// A release of libtorch.
enum class TorchRelease { k2_13, k2_15 };
inline constexpr EnumNames<TorchRelease, 2> kTorchReleaseNames{
    {{{TorchRelease::k2_13, "2.13"}, {TorchRelease::k2_15, "2.15"}}}};

// A tensor among a call's arguments.
struct CallTensor {
  std::string type;  // empty: the argument is none
  std::vector<int64_t> sizes;
  bool contiguous = true;
  bool operator==(const CallTensor&) const = default;
};

// A call of an operator that has a kernel on MPS.
struct OpCall {
  std::string op;  // "aten::mm"
  std::vector<CallTensor> tensors;
  std::vector<int64_t> integers;  // arguments, those of lists too
  std::string rest;               // all other arguments, as text
};

// Entries that a call adds whose key is new. nullopt: there is no rule for the operator. Source: the kernels of
// PyTorch's aten/src/ATen/native/mps, where an entry is a call of LookUpOrCreateCachedGraph; pytorch#187455 lists those
// that are left. Matrix kernels that linear keeps by shape are in another cache (MPSKernelCache), of a few bytes each,
// and not counted.
std::optional<int64_t> EntriesOf(const OpCall& call, TorchRelease release);

// An integer of a step that follows from the sizes of its batch.
// Threads: values and pure functions.

// plus + the sum of factor * size over at most two sizes.
struct SizeSum {
  struct Term {
    size_t size = 0;  // among the sizes
    int64_t factor = 1;
    bool operator==(const Term&) const = default;
  };
  std::vector<Term> terms;
  int64_t plus = 0;
  int64_t At(std::span<const int64_t> sizes) const;
  bool operator==(const SizeSum&) const = default;
};

// The sum that gives `values` at the shapes whose sizes are `sizes`, [shapes][sizes]; of several the plainest: a size
// itself, a size and a constant, two sizes, a multiple of one. nullopt: there is none. The more the shapes differ,
// each size in its own way, the less does a sum come about by chance: three shapes at least.
std::optional<SizeSum> FindSum(std::span<const int64_t> values, std::span<const std::vector<int64_t>> sizes);

// A call of a step whose integers are known at every shape.
struct SymbolicCall {
  std::string op;
  std::string form;               // of OpCall
  std::vector<SizeSum> integers;  // of OpCall, of a batch's sizes
  int64_t entries = 0;            // that a new key adds
  bool operator==(const SymbolicCall&) const = default;
};

// The calls of a step that add entries, each different one once, and what else is known of its calls.
struct SymbolicStep {
  std::vector<SymbolicCall> calls;
  int64_t operators = 0;             // calls of a step, all of them
  std::vector<std::string> unknown;  // operators that there is no rule for; counted as adding none
};

// `streams`: the calls of one step at batches whose sizes are `sizes`, [shapes][sizes]. One stream: of a job with one
// shape. Otherwise at least four, all but the last to learn from and that one to check. Errors: FailedPrecondition,
// naming the operator, where calls differ from shape to shape in more than sizes that follow from the batch's.
absl::StatusOr<SymbolicStep> FindCalls(std::span<const std::vector<OpCall>> streams,
                                       std::span<const std::vector<int64_t>> sizes, TorchRelease release);

// The entries that a cache holds which nothing evicts from.
class EntryCounter {
 public:
  // A step on a batch of `sizes`. Returns how many entries it added.
  int64_t Add(const SymbolicStep& step, std::span<const int64_t> sizes);
  int64_t total() const { return total_; }
  const std::map<std::string, int64_t>& by_op() const { return by_op_; }
  int64_t of(const std::string& op) const {
    const auto it = by_op_.find(op);
    return it == by_op_.end() ? 0 : it->second;
  }

 private:
  using Key = std::pair<std::string, std::vector<int64_t>>;
  std::set<Key> keys_;
  std::map<std::string, int64_t> by_op_;
  int64_t total_ = 0;
};

// A shape that steps are run at, as the sizes that SymbolicStep is of, and how many batches of the run are.
struct SizedShape {
  std::vector<int64_t> sizes;
  int64_t batches = 0;
};
struct SizedSchedule {
  std::vector<SizedShape> shapes;  // in the order in which they come
  int64_t first_epoch = 0;         // of them, those of the first epoch
};

// Entries that an operator adds, at shapes that nothing bounds.
struct OpCensus {
  std::string op;
  int64_t shape = 0;  // of the largest shape alone
  int64_t epoch = 0;  // of the first epoch
  int64_t run = 0;
  bool operator==(const OpCensus&) const = default;
};
struct ModeCensus {
  int64_t operators = 0;  // calls of a step that reach the device
  std::vector<OpCensus> ops;
  OpCensus all;  // together; without a name
};
ModeCensus CountMode(const SymbolicStep& step, const SizedSchedule& schedule, const SizedShape& largest);

// The outcome of a policy, training and evaluation together.
struct CensusRow {
  spec::PolicyOptions options;
  spec::Shapes shapes = spec::Shapes::kExact;
  int64_t train_shapes = 0, eval_shapes = 0;  // that reach the device
  int64_t shape = 0;                          // most entries of one step
  int64_t epoch = 0, run = 0;                 // entries held after the first epoch, and at the end
  int64_t compiled = 0;                       // graphs compiled in the run
  bool operator==(const CensusRow&) const = default;
};
// `schedules`: what reaches the device. `empties`: the cache is emptied after each step. Leaves options and shapes.
CensusRow CountPolicy(const std::array<SymbolicStep, 2>& steps, const std::array<SizedSchedule, 2>& schedules,
                      bool empties);

// The census of a job with one lowering.
struct LoweringCensus {
  std::string lowering;             // its name among the options of a model
  std::array<ModeCensus, 2> modes;  // by Mode
  std::vector<CensusRow> rows;      // the job's own policy first
  std::vector<std::string> unknown;
};
struct Census {
  TorchRelease release = TorchRelease::k2_13;
  std::vector<LoweringCensus> lowerings;  // the job's own first
  PlannedSchedule schedule;
  int64_t freeze_at = 0;
  // Entries that the device's cache held before the census, of the job that ran last; nullopt: not known.
  std::optional<int64_t> measured_entries;
};

}  // namespace permafrost::graphcache
