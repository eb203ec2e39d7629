// The plan of a job on a set of small graphs: the shapes of its batches, and whether there is memory for them.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/resources.h"
#include "collective/group.h"
#include "data/batching/batch.h"
#include "data/rows/row_caches.h"
#include "device/backend.h"
#include "graphcache/shape_plan.h"
#include "nn/models/model.h"
#include "spec/train_options.h"
#include "train/planning/run_size.h"
#include "train/planning/schedule_store.h"

namespace permafrost::train {

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
