// Takes the census of a job on MPS: predicts, before the job runs, which entries its steps would add to libtorch's
// cache of compiled graphs (MPSGraphCache). That cache keeps one entry for each operator with each combination of
// types, sizes and scalars that it meets, and evicts none.
// The operators come from recorded steps (train/planning/cache_planner.h). For each release of libtorch, rules say
// which operators add an entry. From a few recordings, this file finds the operators' sizes as functions of the
// batch's sizes. So it can count the keys of thousands of shapes without a step at each shape.
// Threads: values and pure functions.
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
  std::string type;  // dtype as text; empty if the argument is absent
  std::vector<int64_t> sizes;
  bool contiguous = true;
  bool operator==(const CallTensor&) const = default;
};

// A call of an operator that has a kernel on MPS.
struct OpCall {
  std::string op;  // "aten::mm"
  std::vector<CallTensor> tensors;
  std::vector<int64_t> integers;  // integer arguments, including those in lists
  std::string rest;               // all other arguments, as text
};

// Returns the number of entries that a call adds if its key is new; nullopt if there is no rule for the operator.
// Leaves out the matrix kernels that linear keeps for each shape, because they are in another cache (MPSKernelCache)
// and take only a few bytes each.
// Source: the kernels of PyTorch's aten/src/ATen/native/mps, where each call of LookUpOrCreateCachedGraph makes an
// entry; pytorch#187455 lists the kernels that still call it.
std::optional<int64_t> EntriesOf(const OpCall& call, TorchRelease release);

// The next declarations describe the integers of a step as functions of its batch's sizes.

// The integer `plus` + the sum of factor * size over at most two of the batch's sizes.
struct SizeSum {
  struct Term {
    size_t size = 0;  // index into the sizes
    int64_t factor = 1;
    bool operator==(const Term&) const = default;
  };
  std::vector<Term> terms;
  int64_t plus = 0;
  int64_t At(std::span<const int64_t> sizes) const;
  bool operator==(const SizeSum&) const = default;
};

// Finds the sum that has the value values[i] at the batch sizes sizes[i], for every i. Returns nullopt if there is
// none.
// If several sums fit, returns one of the plainest kind. From plain to complex, the kinds are: one size, two sizes
// added or subtracted, and a multiple of one size, each plus a constant. So that no sum fits by chance, use at least
// three shapes, and let each size vary in a different way over the shapes.
std::optional<SizeSum> FindSum(std::span<const int64_t> values, std::span<const std::vector<int64_t>> sizes);

// A call of a step, with its integers as functions of the batch's sizes.
struct SymbolicCall {
  std::string op;
  std::string form;               // types, ranks and other arguments of the OpCall
  std::vector<SizeSum> integers;  // integers of the OpCall, as functions of the batch's sizes
  int64_t entries = 0;            // entries that each new key adds
  bool operator==(const SymbolicCall&) const = default;
};

// The distinct calls of a step that add entries, and facts about all calls of the step.
struct SymbolicStep {
  std::vector<SymbolicCall> calls;
  int64_t operators = 0;             // number of calls of the step, repeated ones included
  std::vector<std::string> unknown;  // operators without a rule; they count as adding no entry
};

// Finds the calls of a step as functions of the batch's sizes. streams[i] holds the calls of the step on a batch with
// the sizes sizes[i]. A job with one shape has one stream. Any other job has at least four streams: the functions are
// found from all streams but the last, and checked on the last.
// Errors: FailedPrecondition, naming the operator, if calls differ from shape to shape in anything that does not
// follow from the batch's sizes.
absl::StatusOr<SymbolicStep> FindCalls(std::span<const std::vector<OpCall>> streams,
                                       std::span<const std::vector<int64_t>> sizes, TorchRelease release);

// Counts the entries of a cache that evicts no entry.
class EntryCounter {
 public:
  // Counts a step on a batch of `sizes`. Returns how many entries it added.
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

// A shape at which steps run. `sizes` holds the sizes that a SymbolicStep takes. `batches` is the number of the run's
// batches that have this shape.
struct SizedShape {
  std::vector<int64_t> sizes;
  int64_t batches = 0;
};
struct SizedSchedule {
  std::vector<SizedShape> shapes;  // in the order in which they first come
  int64_t first_epoch = 0;         // number of leading elements of `shapes` that the first epoch has
};

// The number of entries that an operator adds if no policy limits the shapes.
struct OpCensus {
  std::string op;
  int64_t shape = 0;  // entries of the largest shape alone
  int64_t epoch = 0;  // entries of the first epoch
  int64_t run = 0;
  bool operator==(const OpCensus&) const = default;
};
struct ModeCensus {
  int64_t operators = 0;  // calls in one step that reach the device
  std::vector<OpCensus> ops;
  OpCensus all;  // totals of all operators; `op` is empty
};
ModeCensus CountMode(const SymbolicStep& step, const SizedSchedule& schedule, const SizedShape& largest);

// The predicted outcome of a policy. Entries and graphs are counted for training and evaluation together.
struct CensusRow {
  spec::PolicyOptions options;
  spec::Shapes shapes = spec::Shapes::kExact;
  int64_t train_shapes = 0, eval_shapes = 0;  // distinct shapes that reach the device
  int64_t shape = 0;                          // the most entries of one step
  int64_t epoch = 0, run = 0;                 // entries held after the first epoch, and at the run's end
  int64_t compiled = 0;                       // graphs that the device compiles in the run
  bool operator==(const CensusRow&) const = default;
};
// Counts the entries that a policy leads to. `schedules` holds, by Mode, the shapes that reach the device. If
// `empties`, the device's cache is emptied after each step. The caller sets `options` and `shapes` of the result.
CensusRow CountPolicy(const std::array<SymbolicStep, 2>& steps, const std::array<SizedSchedule, 2>& schedules,
                      bool empties);

// The census of a job with one lowering.
struct LoweringCensus {
  std::string lowering;             // name of the lowering, as in a model's options
  std::array<ModeCensus, 2> modes;  // indexed by Mode
  std::vector<CensusRow> rows;      // the first row is the job's own policy
  std::vector<std::string> unknown;
};
struct Census {
  TorchRelease release = TorchRelease::k2_13;
  std::vector<LoweringCensus> lowerings;  // the first one is the job's own
  PlannedSchedule schedule;
  int64_t freeze_at = 0;
  // The number of entries that the last job had left in the device's cache before the census; nullopt if unknown.
  std::optional<int64_t> measured_entries;
};

}  // namespace permafrost::graphcache
