#include "data/rows/read_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "data/rows/frame_table.h"
#include "data/rows/row_cache.h"
#include "data/sampling/epoch_order.h"
#include "data/store/edge_rows.h"
#include "data/store/format.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kMaxMemory = uint64_t{1} << 50;
// Planning is little work, and a job may need the cores.
constexpr int kThreads = 1;

absl::Status Refused(const char* why, const char* reason) {
  return WithReason(absl::FailedPreconditionError(why), reason);
}

// Counts the reads that batches cause for one way to store rows and one amount of memory for rows.
class Reading {
 public:
  Reading(ReadPlanCase what, StoredRows table, uint64_t memory_bytes) : table_(std::move(table)) {
    planned_.what = what;
    planned_.memory_bytes = memory_bytes;
    planned_.row_bytes = table_.row_bytes;
    planned_.pages_per_row = PagesOfRow(table_.groups, table_.row_bytes);
    const uint64_t fixed = table_.rows * RowCache::kBytesPerRow, frame = FrameTable::FrameBytes(table_.row_bytes);
    planned_.most_memory = fixed + table_.rows * frame;
    planned_.held_rows = memory_bytes > fixed ? std::min(table_.rows, (memory_bytes - fixed) / frame) : 0;
  }

  // Adds the reads of one batch. `rows` holds its distinct rows, rising.
  void Add(std::span<const NodeId> rows, std::span<const uint32_t> ranks, uint64_t gap_bytes) {
    missing_.clear();
    for (const NodeId row : rows) {
      if (ranks[row] >= planned_.held_rows) missing_.push_back(row);
    }
    asked_ += static_cast<double>(rows.size());
    missed_ += static_cast<double>(missing_.size());
    for (const PlannedRead& read : PlanReads(table_, missing_, gap_bytes, longest_)) {
      planned_.reads += 1;
      planned_.bytes += read.bytes;
    }
  }

  // Returns the reading of a whole epoch. The batches that were added are 1/`scale` of the epoch.
  PlannedReading Finish(double scale, const DiskRates& disk) {
    planned_.hit_rate = asked_ > 0 ? 1 - missed_ / asked_ : 0;
    planned_.reads *= scale;
    planned_.bytes *= scale;
    planned_.missed_bytes = missed_ * scale * static_cast<double>(table_.row_bytes);
    planned_.seconds = disk.SecondsFor(planned_.reads, planned_.bytes);
    planned_.packed_seconds = disk.SecondsFor(planned_.missed_bytes / longest_, planned_.missed_bytes);
    const auto held = static_cast<double>(planned_.held_rows);
    planned_.fill_seconds = disk.SecondsFor(held, held * planned_.pages_per_row * static_cast<double>(kPageBytes));
    return planned_;
  }

 private:
  const StoredRows table_;
  const uint32_t longest_ = DiskReader::Options().max_read_bytes;
  PlannedReading planned_;
  double asked_ = 0, missed_ = 0;
  std::vector<NodeId> missing_;
};

std::vector<Reading> ReadingsOf(const StoredRows& stored, const DenseFeatures& features, uint64_t memory_bytes) {
  std::vector<Reading> readings;
  readings.emplace_back(ReadPlanCase::kAsAsked, stored, memory_bytes);
  readings.emplace_back(ReadPlanCase::kTwiceTheMemory, stored, 2 * memory_bytes);
  if (ElementBytes(features.type) > ElementBytes(DataType::kBfloat16)) {
    StoredRows half = stored;
    half.row_bytes = static_cast<uint64_t>(features.width) * ElementBytes(DataType::kBfloat16);
    half.groups = GroupsFor(half.row_bytes);
    half.bytes = half.groups.TotalBytes(half.rows, half.row_bytes);
    readings.emplace_back(ReadPlanCase::kBfloat16, half, memory_bytes);
    readings.emplace_back(ReadPlanCase::kBfloat16TwiceTheMemory, half, 2 * memory_bytes);
  }
  return readings;
}

}  // namespace

absl::StatusOr<StoredRows> PlannableRows(const Graph& graph) {
  const auto* dense = std::get_if<DenseFeatures>(&graph.view().node_features);
  if (dense == nullptr || dense->type == DataType::kNone || dense->width == 0) {
    return Refused("has no dense node features, whose rows a plan is of; sparse ones stay mapped",
                   "DATASET_WITHOUT_DENSE_FEATURES");
  }
  std::optional<StoredRows> rows = graph.stored_features();
  if (!rows) {
    return Refused("is a store of an older version, which is mapped and not read by rows; import it again to plan it",
                   "DATASET_STORE_TOO_OLD");
  }
  if (graph.view().splits[0].empty()) {
    return Refused("has no training nodes to draw around", "DATASET_WITHOUT_TRAINING_NODES");
  }
  return *std::move(rows);
}

std::vector<uint32_t> RanksOf(std::span<const float> wanted) {
  std::vector<uint32_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return wanted[a] > wanted[b] || (wanted[a] == wanted[b] && a < b); });
  std::vector<uint32_t> ranks(wanted.size());
  for (uint32_t place = 0; place < order.size(); ++place) ranks[order[place]] = place;
  return ranks;
}

absl::Status CheckReadPlanQuery(const ReadPlanQuery& query) {
  Violations violations;
  if (query.memory_bytes < 1 || query.memory_bytes > kMaxMemory) {
    violations.Add("memory_bytes",
                   absl::StrCat(static_cast<int64_t>(query.memory_bytes), " is outside 1..", kMaxMemory));
  }
  if (query.batch_size < 1 || query.batch_size > spec::kMaxBatchSize) {
    violations.Add("batch_size", absl::StrCat(query.batch_size, " is outside 1..", spec::kMaxBatchSize));
  }
  if (query.sampling.fan_outs.empty()) {
    violations.Add("fan_outs", "are missing; a plan is of sampled neighbours, as 15,10");
  }
  return violations.ToStatus();
}

absl::StatusOr<ReadPlan> PlanDataset(const Graph& graph, const ReadPlanQuery& query,
                                     const std::function<bool()>& keep_going) {
  // These checks come before the disk is put to work.
  PF_RETURN_IF_ERROR(CheckReadPlanQuery(query));
  PF_RETURN_IF_ERROR(NeighborSampler::Create(graph.view(), query.sampling, kThreads).status());
  PF_ASSIGN_OR_RETURN(const StoredRows stored, PlannableRows(graph));
  // A table of few rows is too small for a measurement. The whole file is then measured, since it has at least one
  // page.
  const bool few = stored.bytes < 2 * kPageBytes;
  PF_ASSIGN_OR_RETURN(const DiskRates disk, few ? MeasureDisk(stored.path, 0, UINT64_MAX)
                                                : MeasureDisk(stored.path, stored.offset, stored.bytes));
  return PlanDatasetOn(graph, stored, query, disk, keep_going);
}

absl::StatusOr<ReadPlan> PlanDatasetOn(const Graph& graph, const StoredRows& stored, const ReadPlanQuery& query,
                                       const DiskRates& disk, const std::function<bool()>& keep_going,
                                       int64_t max_edges) {
  const GraphView& view = graph.view();
  PF_RETURN_IF_ERROR(CheckReadPlanQuery(query));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<NeighborSampler> sampler,
                      NeighborSampler::Create(view, query.sampling, kThreads));
  const Stopwatch watch;
  const Column<NodeId>& training = view.splits[0];
  if (!training.Touch(0, training.size())) return training.status();
  const std::span<const NodeId> seeds(training.data(), training.size());
  std::vector<float> wanted(view.nodes);
  PF_RETURN_IF_ERROR(AddExpectedDraws(view, seeds, query.batch_size, query.sampling.fan_outs, keep_going, wanted));
  const std::vector<uint32_t> ranks = RanksOf(wanted);

  ReadPlan plan{.nodes = view.nodes,
                .training_nodes = training.size(),
                .edge_bytes = graph.summary().adjacency_bytes,
                .edge_feature_bytes = EdgeTableBytes(graph.summary(), EdgeInputs::kFeatures),
                .disk = disk};
  std::vector<Reading> readings = ReadingsOf(stored, std::get<DenseFeatures>(view.node_features), query.memory_bytes);
  const EpochOrder epochs(seeds, {.batch_size = query.batch_size, .seed = query.sampling.seed});
  const EpochBatches epoch = epochs.Of(0);
  plan.batches = epochs.batches_per_epoch();
  SampledSubgraph sample;
  std::vector<bool> seen(view.nodes);
  int64_t edges = 0;
  for (; plan.sampled_batches < plan.batches && (plan.sampled_batches == 0 || edges < max_edges);
       ++plan.sampled_batches) {
    if (!keep_going()) return absl::CancelledError("stopped while batches were sampled");
    const int64_t batch = plan.sampled_batches;
    PF_RETURN_IF_ERROR(
        sampler->Sample(epochs.Batch(epoch, batch), static_cast<uint64_t>(batch), false, nullptr, sample));
    edges += sample.edges();
    std::sort(sample.nodes.begin(), sample.nodes.end());
    for (Reading& reading : readings) reading.Add(sample.nodes, ranks, disk.gap_bytes());
    for (const NodeId row : sample.nodes) {
      plan.distinct_rows += seen[row] ? 0 : 1;
      seen[row] = true;
    }
    plan.mean_rows += static_cast<double>(sample.nodes.size());
    plan.largest_rows = std::max(plan.largest_rows, std::ssize(sample.nodes));
  }
  PF_RETURN_IF_ERROR(graph.CheckIntact());

  plan.mean_rows /= static_cast<double>(plan.sampled_batches);
  plan.rows_an_epoch = plan.mean_rows * static_cast<double>(plan.batches);
  const double scale = static_cast<double>(plan.batches) / static_cast<double>(plan.sampled_batches);
  for (Reading& reading : readings) plan.readings.push_back(reading.Finish(scale, disk));
  plan.seconds = absl::ToDoubleSeconds(watch.Elapsed());
  return plan;
}

}  // namespace permafrost::data
