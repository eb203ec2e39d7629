// Predicts what an epoch over a large graph will read from its disk, before anyone trains: `permafrost dataset plan`.
// Batches are sampled as training samples them. The plan counts the rows that a feature cache would not hold, and the
// reads that bring these rows. The plan leaves out what a running cache may gain besides: from rows that batches
// sampled ahead share, and from the draws counted in earlier epochs. It also leaves out evaluation and the reading of
// edges. Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "data/disk/disk_rates.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/store/graph.h"

namespace permafrost::data {

struct ReadPlanQuery {
  uint64_t memory_bytes = 0;  // the budget of the feature cache, >= 1
  int64_t batch_size = 1024;  // number of seed nodes, 1..65,536; the default of node-level jobs
  NeighborSamplingOptions sampling;
};

// A case of the plan: as asked for, with twice the memory, with features stored as bfloat16, or with both changes.
enum class ReadPlanCase { kAsAsked, kTwiceTheMemory, kBfloat16, kBfloat16TwiceTheMemory };
inline constexpr EnumNames<ReadPlanCase, 4> kReadPlanCaseNames{
    {{{ReadPlanCase::kAsAsked, "as-asked"},
      {ReadPlanCase::kTwiceTheMemory, "twice-the-memory"},
      {ReadPlanCase::kBfloat16, "bfloat16"},
      {ReadPlanCase::kBfloat16TwiceTheMemory, "bfloat16-twice-the-memory"}}}};

// The reads of one epoch once the cache is full, that is, from the second epoch on.
struct PlannedReading {
  ReadPlanCase what = ReadPlanCase::kAsAsked;
  uint64_t memory_bytes = 0;
  uint64_t row_bytes = 0;       // as stored
  double pages_per_row = 0;     // the mean number of pages that reading one row touches
  uint64_t held_rows = 0;       // how many rows fit into the memory; these are the most wanted rows
  uint64_t most_memory = 0;     // the memory that would hold all rows
  double hit_rate = 0;          // the share of requested rows that are found in memory, 0..1
  double reads = 0, bytes = 0;  // reads from the disk, and their bytes (whole pages, with gaps)
  double missed_bytes = 0;      // bytes of the missed rows themselves
  double seconds = 0;           // the time that the disk takes at its rates
  double packed_seconds = 0;    // `seconds` if all missed rows were adjacent: a lower bound for any node order
  double fill_seconds = 0;      // an upper bound on the time to read the held rows, once, in the first epoch
};

struct ReadPlan {
  uint64_t nodes = 0, training_nodes = 0;
  int64_t batches = 0;          // batches in an epoch
  int64_t sampled_batches = 0;  // fewer if an epoch has over kMaxPlannedEdges drawn edges; results are then scaled up
  double mean_rows = 0;         // the mean number of distinct rows in a batch
  int64_t largest_rows = 0;     // the largest number of distinct rows in a sampled batch
  double rows_an_epoch = 0;     // rows that batches of an epoch ask for; a row counts once for each batch
  int64_t distinct_rows = 0;    // distinct rows in all sampled batches
  uint64_t edge_bytes = 0;      // bytes of edges and offsets, which need memory beside the cache
  uint64_t edge_feature_bytes = 0;  // bytes of edge features; they need memory too if a model reads them
  double seconds = 0;               // the time that planning took
  DiskRates disk;
  std::vector<PlannedReading> readings;  // kAsAsked first; bfloat16 only if it is smaller than the stored type
};

// Sampling stops after the batch with which the total number of drawn edges reaches this limit.
inline constexpr int64_t kMaxPlannedEdges = 50'000'000;

// Checks what can be checked without the graph. Errors: InvalidArgument with the violations "memory_bytes",
// "batch_size" and "fan_outs" (the list is empty).
absl::Status CheckReadPlanQuery(const ReadPlanQuery& query);

// Measures the disk briefly, and makes a plan with the measured rates. Errors: those of CheckReadPlanQuery and
// NeighborSampler; FailedPrecondition with a reason (PlannableRows); Cancelled if `keep_going` returns false;
// DataLoss; those of MeasureDisk.
absl::StatusOr<ReadPlan> PlanDataset(const Graph& graph, const ReadPlanQuery& query,
                                     const std::function<bool()>& keep_going);

// Same as PlanDataset, but takes the rates of the disk from `disk`, and the place of the rows from `stored`.
absl::StatusOr<ReadPlan> PlanDatasetOn(const Graph& graph, const StoredRows& stored, const ReadPlanQuery& query,
                                       const DiskRates& disk, const std::function<bool()>& keep_going,
                                       int64_t max_edges = kMaxPlannedEdges);

// Returns where the rows of features lie. Errors: FailedPrecondition with the reason DATASET_WITHOUT_DENSE_FEATURES,
// DATASET_STORE_TOO_OLD or DATASET_WITHOUT_TRAINING_NODES.
absl::StatusOr<StoredRows> PlannableRows(const Graph& graph);

// Returns each row's rank by `wanted`, counted from 0 for the largest value. Rows with equal values keep their order.
std::vector<uint32_t> RanksOf(std::span<const float> wanted);

}  // namespace permafrost::data
