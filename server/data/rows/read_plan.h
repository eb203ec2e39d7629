// Foresees what an epoch over a large graph will read from its disk, before anyone trains: `permafrost dataset plan`.
// Batches are sampled as training samples them, and each row that a feature cache would not hold is counted with the
// read that brings it. Nothing is promised here of what a running cache gains beside that (rows that batches sampled
// ahead share, what the epochs before counted). Evaluation and the reading of edges are not counted.
// Threads: safe anywhere.
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
  uint64_t memory_bytes = 0;  // of the feature cache, >= 1
  int64_t batch_size = 1024;  // seed nodes, 1..65,536; the default of node-level jobs
  NeighborSamplingOptions sampling;
};

// A case of the plan: as asked, with one thing changed, or with both.
enum class ReadPlanCase { kAsAsked, kTwiceTheMemory, kBfloat16, kBfloat16TwiceTheMemory };
inline constexpr EnumNames<ReadPlanCase, 4> kReadPlanCaseNames{
    {{{ReadPlanCase::kAsAsked, "as-asked"},
      {ReadPlanCase::kTwiceTheMemory, "twice-the-memory"},
      {ReadPlanCase::kBfloat16, "bfloat16"},
      {ReadPlanCase::kBfloat16TwiceTheMemory, "bfloat16-twice-the-memory"}}}};

// The reading of one epoch from the second on, when the cache is full.
struct PlannedReading {
  ReadPlanCase what = ReadPlanCase::kAsAsked;
  uint64_t memory_bytes = 0;
  uint64_t row_bytes = 0;       // as stored
  double pages_per_row = 0;     // that a read of one row touches, on the mean
  uint64_t held_rows = 0;       // that the memory holds: those wanted most
  uint64_t most_memory = 0;     // that holds all rows
  double hit_rate = 0;          // of all rows that batches ask for, 0..1
  double reads = 0, bytes = 0;  // from the disk
  double missed_bytes = 0;      // of the rows that are read: `bytes` are whole pages, and gaps
  double seconds = 0;           // of the disk, at its rates
  double packed_seconds = 0;    // if the rows that are read lay together: no order of the nodes does better
  double fill_seconds = 0;      // once, in the first epoch: reading the rows that are held, at most
};

struct ReadPlan {
  uint64_t nodes = 0, training_nodes = 0;
  int64_t batches = 0;          // an epoch
  int64_t sampled_batches = 0;  // fewer where an epoch draws more than kMaxPlannedEdges edges; the rest is scaled up
  double mean_rows = 0;         // a batch, each once
  int64_t largest_rows = 0;     // of the batches sampled
  double rows_an_epoch = 0;     // that batches ask for, each once a batch
  int64_t distinct_rows = 0;    // among the batches sampled
  uint64_t edge_bytes = 0;      // of edges and offsets, which need memory beside the cache
  uint64_t edge_feature_bytes = 0;  // of edges' features, which need memory too where a model reads them
  double seconds = 0;               // that planning took
  DiskRates disk;
  std::vector<PlannedReading> readings;  // kAsAsked first; bfloat16 where it is smaller than what is stored
};

// Sampling stops with the first batch that comes to so many drawn edges.
inline constexpr int64_t kMaxPlannedEdges = 50'000'000;

// Checks what can be checked without the graph: InvalidArgument with violations "memory_bytes", "batch_size",
// "fan_outs" (none).
absl::Status CheckReadPlanQuery(const ReadPlanQuery& query);

// Measures the disk for a moment, and plans with what it does. Errors: those of CheckReadPlanQuery and NeighborSampler;
// FailedPrecondition with a reason (PlannableRows); Cancelled when keep_going says no; DataLoss; those of MeasureDisk.
absl::StatusOr<ReadPlan> PlanDataset(const Graph& graph, const ReadPlanQuery& query,
                                     const std::function<bool()>& keep_going);

// Does the same with a disk of these rates, over rows that lie as `stored` says.
absl::StatusOr<ReadPlan> PlanDatasetOn(const Graph& graph, const StoredRows& stored, const ReadPlanQuery& query,
                                       const DiskRates& disk, const std::function<bool()>& keep_going,
                                       int64_t max_edges = kMaxPlannedEdges);

// Returns where the rows lie. FailedPrecondition with the reason DATASET_WITHOUT_DENSE_FEATURES, DATASET_STORE_TOO_OLD
// or DATASET_WITHOUT_TRAINING_NODES.
absl::StatusOr<StoredRows> PlannableRows(const Graph& graph);

// The place of each row among all when those wanted most come first; equals in the order of rows.
std::vector<uint32_t> RanksOf(std::span<const float> wanted);

}  // namespace permafrost::data
