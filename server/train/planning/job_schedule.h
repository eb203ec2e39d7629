// The plan of a job: on a set of small graphs the shapes of its batches, and whether there is memory for them. Plans
// are kept on disk, so that a resume and an equal job take theirs from there: on sets instead of walking every batch of
// every epoch again, on one large graph instead of sampling batches ahead.
// Threads: safe anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"
#include "collective/group.h"
#include "data/batching/batch.h"
#include "data/batching/block_batch.h"
#include "data/rows/row_caches.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "device/backend.h"
#include "graphcache/shape_plan.h"
#include "nn/models/model.h"
#include "spec/train_options.h"
#include "train/planning/run_size.h"

namespace permafrost::train {

// Returns a key of everything that a job's plan depends on: jobs with one key have one plan. `rungs`: of the ladders
// that are made with it; 0: none.
std::string ScheduleKey(const spec::TrainOptions& options, const data::GraphSet& set, int64_t rungs, int64_t rank = 0);

// By Mode: the sizes of the batches that a job on one large graph samples ahead, in their order.
using SampledSizes = std::array<std::vector<data::BlockSizes>, 2>;

// Returns such a key for sampled sizes. means_elsewhere: sizes have the entries of lists of neighbours
// (data::SizesOf). rank: which of the job's replicas has these batches. Empty: the graph has no checksum to be known
// by, and nothing is kept.
std::string SampledKey(const spec::TrainOptions& options, const data::Graph& graph, bool means_elsewhere = false,
                       int64_t rank = 0);

class ScheduleStore {
 public:
  // This many plans are kept; beyond it, the plans written longest ago go.
  static constexpr size_t kMostSchedules = 64;

  // `directory` is made by the first Keep. `warn` hears what cannot be read or written, a line each.
  ScheduleStore(std::filesystem::path directory, std::function<void(std::string_view)> warn)
      : directory_(std::move(directory)), warn_(std::move(warn)) {}

  // Returns nullopt if none is kept. A file that does not add up counts as none, and the next Keep writes over it.
  std::optional<graphcache::ShapeSchedule> Find(const std::string& key) const;
  // If a plan cannot be written, the next job walks its schedule again.
  void Keep(const std::string& key, const graphcache::ShapeSchedule& plan);
  // The same for sampled sizes.
  std::optional<SampledSizes> FindSizes(const std::string& key) const;
  void KeepSizes(const std::string& key, const SampledSizes& sizes);
  // "plans/0123456789abcdef.plan": what a plan of this key is kept in.
  std::string NameOf(const std::string& key) const;

 private:
  // Returns the kept entry, as `read` reads it.
  template <class T, class Read>
  std::optional<T> FindAs(const std::string& key, const Read& read) const;
  void KeepText(const std::string& key, const std::string& body);
  std::filesystem::path FileOf(const std::string& key) const;
  void RemoveOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Warn(std::string_view what, const absl::Status& status) const;

  const std::filesystem::path directory_;
  const std::function<void(std::string_view)> warn_;
  absl::Mutex mu_;  // one writer at a time
};

struct PlanContext {
  ScheduleStore* plans = nullptr;  // nullptr: nothing is kept
  MemoryLimits limits = kNoLimits;
  // The ranks that train the job together, of which this run is one; nullptr: there are no others.
  collective::Group* group = nullptr;
  int64_t rank() const { return group == nullptr ? 0 : group->rank(); }
  // Set for a run only, since a cache serves one at a time. nullptr: features are read through the mapping.
  data::RowCaches* rows = nullptr;
  // Set for a run on a device that gathers the features of sampled blocks itself, if there is memory for them
  // (train/tasks/feature_table.h).
  bool features_on_device = false;
  // Backend::AllocatePinned of that device; nullptr: it reads no memory of the host.
  std::function<std::optional<device::PinnedRows>(int64_t rows, int64_t width)> allocate_pinned = nullptr;
  // Set for a run: the disk space that due checkpoints leave free.
  DiskReserve reserve;
  // Set for a run: is told once where a kept plan was taken from. nullptr: nobody is told.
  std::function<void(std::string_view line)> log;
};

// Kept or walked. pads: whether batches may be padded to a ladder (PaddingOf in train/tasks/program_trials.h). Errors:
// InvalidArgument with violations under `prefix` where the largest batch and the executables take more than there is;
// Cancelled where `keep_going`, asked now and then, says so.
absl::StatusOr<graphcache::ShapeSchedule> PlanJob(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                                  const data::GraphExtents& graphs, const PlanContext& context,
                                                  std::string_view prefix, const std::function<bool()>& keep_going,
                                                  bool pads = true);

// Logs where the plan of this key was taken from, once a run.
void TellKept(const PlanContext& context, const std::string& key);

// Estimates the memory that a run with this plan takes. Errors: as CostOfStep (train/tasks/program_trials.h).
absl::StatusOr<RunMemory> MemoryOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   const data::GraphSetSummary& summary, const graphcache::ShapeSchedule& plan,
                                   const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
