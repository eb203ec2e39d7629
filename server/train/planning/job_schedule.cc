#include "train/planning/job_schedule.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/batching/batch.h"
#include "device/backend.h"
#include "graphcache/shape_plan.h"
#include "nn/models/model.h"
#include "train/planning/batch_schedule.h"
#include "train/planning/run_size.h"
#include "train/tasks/node_features.h"
#include "train/tasks/program_trials.h"

namespace permafrost::train {
namespace {

// The schedule is walked for so long between two questions whether to stop.
constexpr std::chrono::milliseconds kStopInterval(20);
// Batches on the host at once: those made ready ahead and the one in the step.
constexpr double kHostGraphSetBatches = 4;

// Walks the schedule on a thread of its own, so that this one hears of a stop meanwhile.
absl::StatusOr<graphcache::ShapeSchedule> WalkAside(const data::GraphExtents& graphs, const spec::TrainOptions& options,
                                                    int64_t rank, const std::function<bool()>& keep_going) {
  std::stop_source stop;
  auto plan = std::async(std::launch::async, [&] {
    return PlanShapes(graphs,
                      {.epochs = options.epochs,
                       .batch_size = options.batch_size,
                       .seed = options.seed,
                       .batching = options.batching,
                       .rank = rank,
                       .world_size = options.replicas},
                      stop.get_token());
  });
  while (plan.wait_for(kStopInterval) != std::future_status::ready) {
    if (!keep_going()) stop.request_stop();
  }
  return plan.get();
}

absl::StatusOr<graphcache::ShapeSchedule> FindOrWalk(const spec::TrainOptions& options,
                                                     const data::GraphExtents& graphs, const PlanContext& context,
                                                     bool ladder, const std::function<bool()>& keep_going) {
  const int64_t rungs = ladder ? RungsOf(options.graph_cache) : 0;
  const std::string key = ScheduleKey(options, graphs.set(), rungs, context.rank());
  if (context.plans != nullptr) {
    if (std::optional<graphcache::ShapeSchedule> kept = context.plans->Find(key)) {
      TellKept(context, key);
      return *std::move(kept);
    }
  }
  PF_ASSIGN_OR_RETURN(graphcache::ShapeSchedule plan, WalkAside(graphs, options, context.rank(), keep_going));
  if (rungs > 0) MakeLadders(rungs, plan);
  if (context.plans != nullptr) context.plans->Keep(key, plan);
  return plan;
}

// The least shape that holds every batch of the job.
BatchShape LargestBatch(const graphcache::ShapeSchedule& plan) {
  std::vector<graphcache::ShapeCount> all = plan.eval_schedule;
  all.push_back({plan.train_ceiling, 1});
  return graphcache::Ceiling(all);
}

// Bytes of a prepared batch that a row of `features` takes; integers are widened to 8 bytes.
double HostBytesPerRow(const data::FeatureSummary& features) {
  const size_t bytes = features.type == data::DataType::kInt32 ? sizeof(int64_t) : sizeof(float);
  return static_cast<double>(features.width) * static_cast<double>(bytes);
}

}  // namespace

void TellKept(const PlanContext& context, const std::string& key) {
  if (context.log) context.log(absl::StrCat("plan taken from ", context.plans->NameOf(key)));
}

absl::StatusOr<RunMemory> MemoryOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   const data::GraphSetSummary& summary, const graphcache::ShapeSchedule& plan,
                                   const MemoryLimits& limits, std::string_view prefix) {
  const BatchShape largest = LargestBatch(plan);
  const auto nodes = static_cast<double>(largest.nodes), edges = static_cast<double>(largest.edges);
  const auto predicted = static_cast<double>(summary.splits[1].graphs + summary.splits[2].graphs);
  const data::FeatureSummary read = WithNodeInputs(options.model.node_inputs, summary).node_features;
  const double positions = sizeof(float) * static_cast<double>(summary.position_columns);
  const double inputs = nodes * (HostBytesPerRow(read) + positions + sizeof(int64_t)) +
                        edges * (HostBytesPerRow(summary.edge_features) + 2 * sizeof(int64_t));
  PF_ASSIGN_OR_RETURN(const StepCost cost, CostOfStep(options, model, largest, prefix));
  RunMemory memory{.cost = cost.model,
                   .batch_bytes = kHostGraphSetBatches * inputs,
                   .result_bytes = predicted * static_cast<double>(model.num_targets) * sizeof(float),
                   .input_bytes = inputs};
  // Features that are made: 4 bytes a node of the set.
  if (read.width != summary.node_features.width) {
    memory.batch_bytes += sizeof(float) * static_cast<double>(summary.all.nodes);
  }
  AddCopies(options.optimizer, memory);
  if (limits.records || limits.graphs) {
    const graphcache::GraphSizes train = SizesOf(summary);
    const graphcache::FreezePoint freeze = graphcache::FindFreezePoint(
        options.graph_cache.freeze_at, GraphsPerBatch(options, train), train, plan.known_train_shapes);
    memory.executables =
        graphcache::MostExecutables(options.graph_cache, plan, /*dynamic=*/limits.records, freeze.freeze_at);
  }
  if (limits.records) {
    memory.executable_bytes = cost.executable_bytes;
  }
  return memory;
}

absl::StatusOr<graphcache::ShapeSchedule> PlanJob(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                                  const data::GraphExtents& graphs, const PlanContext& context,
                                                  std::string_view prefix, const std::function<bool()>& keep_going,
                                                  bool pads) {
  // Where one executable is to serve every shape, no ladder is planned. If its capture fails, the cache makes the
  // ladder.
  const bool ladder = pads && WantsPadding(options.graph_cache, context.limits);
  PF_ASSIGN_OR_RETURN(graphcache::ShapeSchedule plan, FindOrWalk(options, graphs, context, ladder, keep_going));
  PF_ASSIGN_OR_RETURN(const RunMemory memory,
                      MemoryOf(options, model, graphs.set().summary(), plan, context.limits, prefix));
  const BatchShape largest = LargestBatch(plan);
  Violations violations;
  CheckFits(memory, context.limits,
            absl::StrCat("batches of up to ", largest.nodes, " nodes and ", largest.edges, " edges"), prefix,
            violations);
  CheckBatchIndex(largest, context.limits, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return plan;
}

}  // namespace permafrost::train
