// The plan of a job, and the store that keeps plans on disk for a resumed job or an equal one. For a set of small
// graphs, the plan has the shapes of the job's batches. A kept plan saves walking every batch of every epoch again.
// For one large graph, the store keeps the sizes of batches, which saves sampling them ahead.
// Threads: thread-safe.
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

// Returns a key of everything that a job's plan depends on. Jobs with equal keys have equal plans. `rungs` is the
// number of rungs of the plan's ladders, or 0 if the plan has no ladders.
std::string ScheduleKey(const spec::TrainOptions& options, const data::GraphSet& set, int64_t rungs, int64_t rank = 0);

// By Mode: the sizes of the batches that a job on one large graph samples ahead, in the order of sampling.
using SampledSizes = std::array<std::vector<data::BlockSizes>, 2>;

// Returns the key of a job's sampled sizes. If the graph has no checksum to identify it, returns "", and no sizes are
// kept. `means_elsewhere` says whether the sizes count entries of neighbour lists (data::SizesOf). The batches are
// those of the replica `rank`.
std::string SampledKey(const spec::TrainOptions& options, const data::Graph& graph, bool means_elsewhere = false,
                       int64_t rank = 0);

class ScheduleStore {
 public:
  // At most this many plans are kept. Any further plan replaces the one that was written longest ago.
  static constexpr size_t kMostSchedules = 64;

  // Plans are kept in `directory`, which Keep makes if it is missing. `warn` gets a line about each file that cannot
  // be read or written.
  ScheduleStore(std::filesystem::path directory, std::function<void(std::string_view)> warn)
      : directory_(std::move(directory)), warn_(std::move(warn)) {}

  // Returns nullopt if no plan is kept. A damaged file counts as none, and the next Keep overwrites it.
  std::optional<graphcache::ShapeSchedule> Find(const std::string& key) const;
  // Stores the plan. If it cannot be written, warns; the next job then walks its schedule again.
  void Keep(const std::string& key, const graphcache::ShapeSchedule& plan);
  // Same as Find and Keep, for sampled sizes.
  std::optional<SampledSizes> FindSizes(const std::string& key) const;
  void KeepSizes(const std::string& key, const SampledSizes& sizes);
  // Returns the file that keeps the plan of this key, e.g. "plans/0123456789abcdef.plan".
  std::string NameOf(const std::string& key) const;

 private:
  // Returns the kept entry, parsed by `read`.
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
  ScheduleStore* plans = nullptr;  // null if nothing is kept
  MemoryLimits limits = kNoLimits;
  // The ranks that train the job together, of which this run is one. Null if this run is the only rank.
  collective::Group* group = nullptr;
  int64_t rank() const { return group == nullptr ? 0 : group->rank(); }
  // Set only for a run, since a cache serves one run at a time. If null, features are read through the mapping.
  data::RowCaches* rows = nullptr;
  // True for a run whose device gathers the features of sampled blocks itself if its memory allows it
  // (train/tasks/feature_table.h).
  bool features_on_device = false;
  // Backend::AllocatePinned of the run's device; null if the device cannot read the host's memory.
  std::function<std::optional<device::PinnedRows>(int64_t rows, int64_t width)> allocate_pinned = nullptr;
  // Set for a run: the disk space that a due checkpoint must leave free.
  DiskReserve reserve;
  // Set for a run: called once with a line that names the file of a kept plan, if one is used. Null if no line is
  // wanted.
  std::function<void(std::string_view line)> log;
};

// Returns the kept plan of the job, or walks its schedule. `pads` says whether batches may be padded to a ladder
// (PaddingOf in train/tasks/program_trials.h). Errors: InvalidArgument with violations under `prefix` if the largest
// batch and the executables take more memory than there is, or if the largest batch exceeds the index range;
// Cancelled if `keep_going`, called now and then, returns false.
absl::StatusOr<graphcache::ShapeSchedule> PlanJob(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                                  const data::GraphExtents& graphs, const PlanContext& context,
                                                  std::string_view prefix, const std::function<bool()>& keep_going,
                                                  bool pads = true);

// Logs the name of the file from which the plan of this key was taken. Call it once a run.
void TellKept(const PlanContext& context, const std::string& key);

// Estimates the memory that a run with this plan takes. Errors: same as CostOfStep (train/tasks/program_trials.h).
absl::StatusOr<RunMemory> MemoryOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   const data::GraphSetSummary& summary, const graphcache::ShapeSchedule& plan,
                                   const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
