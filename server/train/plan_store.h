// The shape plans of jobs on sets of small graphs, kept on disk, so that a resume and an equal job take theirs from
// there instead of walking every batch of every epoch again.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "data/store/graph_set.h"
#include "graphcache/shape_plan.h"
#include "train/options.h"

namespace permafrost::train {

// All that the plan of a job depends on: jobs of one key have one plan. `rungs`: of the ladders that are made with it;
// 0: none.
std::string PlanKey(const TrainOptions& options, const data::GraphSet& set, int64_t rungs);

class PlanStore {
 public:
  // So many plans are kept; of more, those written longest ago go.
  static constexpr size_t kMostPlans = 64;

  // `directory` is made by the first Keep. `warn` hears what cannot be read or written, a line each.
  PlanStore(std::filesystem::path directory, std::function<void(std::string_view)> warn)
      : directory_(std::move(directory)), warn_(std::move(warn)) {}

  // nullopt: none is kept. A file that does not add up is one too; it is written over by the next Keep.
  std::optional<graphcache::ShapePlan> Find(const std::string& key) const;
  // What cannot be written costs the next job the walk.
  void Keep(const std::string& key, const graphcache::ShapePlan& plan);

 private:
  std::filesystem::path FileOf(const std::string& key) const;
  void RemoveOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Warn(std::string_view what, const absl::Status& status) const;

  const std::filesystem::path directory_;
  const std::function<void(std::string_view)> warn_;
  absl::Mutex mu_;  // one writer at a time
};

}  // namespace permafrost::train
