// Plans the sizes to which the batches of a sampling job are rounded up, and makes the batches for planning and
// capture.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_task.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using data::BlockSizes;

// The maximum numbers of full batches and of partial batches of a split that are sampled to plan the rungs.
constexpr int64_t kProbeBatches = 32, kPartialProbes = 4;

}  // namespace

absl::StatusOr<NodeTask::Probe> NodeTask::ProbeOf(std::span<const uint32_t> ids, int64_t epoch, bool full) const {
  Probe probe{.seeds = {ids.begin(), ids.end()},
              .times = {},
              .most_seeds = std::ssize(ids),
              .full = full,
              .pairs = {},
              .sizes = {}};
  if (links_ == nullptr) {
    PF_RETURN_IF_ERROR(times_.Of(probe.seeds, probe.times));
    return probe;
  }
  PF_RETURN_IF_ERROR(links_->MakeBatch(ids, epoch, probe.pairs));
  probe.seeds = probe.pairs.seeds;
  probe.times = probe.pairs.times;
  probe.most_seeds = MostSeeds(options_, std::ssize(ids), graph_->summary().nodes);
  return probe;
}

absl::Status NodeTask::PlanRungs(Mode mode, const std::function<bool()>& keep_going) {
  ModeParts& parts = part(mode);
  const data::NeighborSamplingOptions sampling = SamplingOf(options_, mode, graph_->summary());
  // Full batches, and last batches of epochs, which may be partial.
  std::vector<Probe> full, partial;
  for (const data::Split split : SplitsOf(mode)) {
    const bool trains = mode == Mode::kTrain;
    const data::EpochOrder validation(splits_[static_cast<size_t>(split)],
                                      {.batch_size = options_.batch_size, .shuffle = false});
    const data::EpochOrder& order = trains ? epochs_ : validation;
    const int64_t batches = order.batches_per_epoch();
    for (int64_t epoch = 0; epoch < kPartialProbes; ++epoch) {
      const data::EpochBatches ids = order.Of(epoch);
      for (int64_t b = 0; b < batches && std::ssize(full) < kProbeBatches; ++b) {
        if (order.RandomSize(b) < options_.batch_size) break;
        PF_ASSIGN_OR_RETURN(full.emplace_back(), ProbeOf(order.Batch(ids, b), epoch, /*full=*/true));
      }
      if (batches > 0 && order.RandomSize(batches - 1) < options_.batch_size) {
        auto last = order.Batch(ids, batches - 1);
        // Some shape must be planned. So if this rank has no share of the only batch, it plans with one id of the
        // epoch.
        if (last.empty() && batches == 1) last = std::span(ids.graphs).first(1);
        if (!last.empty()) {
          PF_ASSIGN_OR_RETURN(partial.emplace_back(), ProbeOf(last, epoch, /*full=*/false));
        }
      }
      if (!trains) break;
    }
  }
  if (!full.empty()) {
    PF_ASSIGN_OR_RETURN(parts.rungs, PlanChain(parts, sampling, full, keep_going));
  }
  // The batches with the most seeds come first, since AddPartial puts each chain below the earlier chains.
  std::ranges::sort(partial, std::greater(), &Probe::most_seeds);
  for (size_t begin = 0, end; begin < partial.size(); begin = end) {
    end = begin;
    while (end < partial.size() && partial[end].most_seeds == partial[begin].most_seeds) ++end;
    PF_ASSIGN_OR_RETURN(const BlockRungs chain,
                        PlanChain(parts, sampling, std::span(partial).subspan(begin, end - begin), keep_going));
    parts.rungs.AddPartial(chain);
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockRungs> NodeTask::PlanChain(ModeParts& parts, const data::NeighborSamplingOptions& sampling,
                                               std::span<Probe> batches, const std::function<bool()>& keep_going) {
  std::vector<BlockSizes> sizes;
  data::SampledSubgraph subgraph;
  const bool means_elsewhere = sampling.last_hop_apart && parts.prober->has_nonzeros();
  const BlockSizes bound = BlockBound(sampling, batches.front().most_seeds, graph_->summary(), means_elsewhere);
  for (Probe& probe : batches) {
    if (!keep_going()) return absl::CancelledError("stopped while batches were sampled to plan their sizes");
    const size_t index = parts.probes.size();
    probe.stream = kProbeStreams + index;
    if (index < parts.kept.size()) {
      probe.sizes = parts.kept[index];
    } else {
      PF_RETURN_IF_ERROR(parts.prober->Sample(probe.seeds, probe.stream, nullptr, subgraph, probe.times));
      PF_ASSIGN_OR_RETURN(probe.sizes, parts.prober->SizesOf(subgraph));
    }
    sizes.push_back(probe.sizes);
    parts.probes.push_back(std::move(probe));
  }
  std::ranges::move(BlockRungs::Alike(sizes, bound), std::back_inserter(parts.alike));
  return BlockRungs::Plan(sizes, bound);
}

void NodeTask::Prepare(Mode mode, bool dynamic, const std::vector<BatchShape>& ladder) {
  ModeParts& parts = part(mode);
  const absl::MutexLock lock(&parts.mu);
  parts.dynamic = dynamic;
  if (parts.ladder != ladder) parts.ladder = ladder;
}

BlockSizes NodeTask::ReadyAt(Mode mode, const BlockSizes& real) const {
  const ModeParts& parts = part(mode);
  const BlockSizes& own = parts.rungs.Fit(real);
  if (!form_.pads) return LeastPadded(real);
  const absl::MutexLock lock(&parts.mu);
  if (parts.dynamic) return AtLeastDynamic(LeastPadded(real), parts.prober->has_nonzeros());
  const BatchShape* const rung = graphcache::FindCheapest(parts.ladder, own.shape());
  return rung == nullptr ? own : *parts.rungs.Find(*rung);
}

std::vector<graphcache::PlannedShape> NodeTask::ExpectedBatches(Mode mode) const {
  const ModeParts& parts = part(mode);
  const auto full = static_cast<double>(std::ranges::count_if(parts.probes, &Probe::full));
  const auto partial = static_cast<double>(parts.probes.size()) - full;
  double all_full = 0, all_partial = 0;
  for (const data::Split split : SplitsOf(mode)) {
    // In a pass over a split, all batches but the last are full.
    const auto passes = static_cast<double>(split == data::Split::kTest ? 2 : options_.epochs);
    const int64_t full_batches = size(split) / options_.batch_size;
    all_full += passes * static_cast<double>(full_batches);
    if (size(split) % options_.batch_size > 0) all_partial += passes;
  }
  struct Sums {
    double batches = 0, rows = 0, dynamic_rows = 0;
  };
  std::map<BatchShape, Sums> rungs;
  for (size_t i = 0; i < parts.alike.size(); ++i) {
    const double of_probe = parts.probes[i / BlockRungs::kAlike].full ? all_full / full : all_partial / partial;
    const double share = of_probe / BlockRungs::kAlike;
    const BlockSizes& sizes = parts.alike[i];
    // Batches that are not padded to rungs keep their own shapes.
    Sums& sums = rungs[(form_.pads ? parts.rungs.Fit(sizes) : LeastPadded(sizes)).shape()];
    sums.batches += share;
    sums.rows += share * static_cast<double>(graphcache::Rows(sizes.shape()));
    sums.dynamic_rows +=
        share *
        static_cast<double>(graphcache::Rows(AtLeastDynamic(LeastPadded(sizes), parts.prober->has_nonzeros()).shape()));
  }
  // Numbers of batches are rounded without a change of their total: the remainder of a rung is carried over to the
  // next rung.
  std::vector<graphcache::PlannedShape> expected;
  double left = 0;
  for (const auto& [shape, sums] : rungs) {
    left += sums.batches;
    const auto batches = std::llround(left);
    if (batches < 1) continue;
    left -= static_cast<double>(batches);
    // Each batch is counted with its rung's mean number of rows.
    const double part = static_cast<double>(batches) / sums.batches;
    expected.push_back({.shape = shape,
                        .batches = batches,
                        .real_rows = std::llround(part * sums.rows),
                        .dynamic_rows = std::llround(part * sums.dynamic_rows)});
  }
  return expected;
}

std::vector<graphcache::ShapeCount> NodeTask::RungCounts(Mode mode) const {
  std::vector<BatchShape> rungs;
  if (form_.pads) rungs = part(mode).rungs.PlannedShapes();
  return graphcache::CountsOf({.train = ExpectedBatches(mode), .rungs = std::move(rungs)});
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> NodeTask::Schedules(
    const std::function<bool()>& /*keep_going*/) {
  const std::vector<Probe>& probes = part(Mode::kTrain).probes;
  std::set<BatchShape> sampled;
  for (const Probe& probe : probes) sampled.insert(probe.sizes.shape());
  graphcache::PlannedSchedule schedule{
      .batching = "sampled",
      .max_nodes = options_.batching.max_nodes,
      .max_edges = options_.batching.max_edges,
      .train = ExpectedBatches(Mode::kTrain),
      .epochs = options_.epochs,
      .estimated = true,
      .sampled_batches = std::ssize(probes),
      .sampled_shapes = std::ssize(sampled),
      .rungs = plan_.train_rungs,
      .ceiling = plan_.train_ceiling,
      .eval_rungs = plan_.eval_rungs,
      .eval_schedule = plan_.eval_schedule,
      .eval_shapes = form_.pads ? std::ssize(plan_.eval_rungs) : std::ssize(plan_.eval_schedule)};
  schedule.first_epoch_shapes = std::ssize(schedule.train);
  if (!form_.pads) schedule.first_epoch_shapes = std::min(schedule.first_epoch_shapes, batches_per_epoch());
  return std::vector{std::move(schedule)};
}

absl::Status NodeTask::PlanLinkEvaluation(int threads, const std::function<bool()>& keep_going) {
  ModeParts& parts = part(Mode::kEval);
  const data::NeighborSamplingOptions sampling = SamplingOf(options_, Mode::kEval, graph_->summary());
  PF_ASSIGN_OR_RETURN(parts.prober,
                      data::BlockBatcher::Create(graph_, {.sampling = sampling,
                                                          .edge_weights = ReadsWeights(),
                                                          .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                                          .positions = made_.reads_positions,
                                                          .threads = threads,
                                                          .rows = features_.cache}));
  if (!options_.nodes.is_temporal()) return absl::OkStatus();
  std::vector<Probe> probes;
  for (const data::Split split : SplitsOf(Mode::kEval)) {
    for (int64_t begin = 0; begin < size(split) && std::ssize(probes) < kProbeBatches; begin += links_->eval_links()) {
      Probe& probe = probes.emplace_back();
      PF_RETURN_IF_ERROR(links_->MakeEvalBatch(split, begin, probe.pairs));
      probe.seeds = probe.pairs.seeds;
      probe.times = probe.pairs.times;
      probe.most_seeds = links_->eval_links() * (2 + options_.links.eval_negatives);
    }
  }
  if (probes.empty()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(parts.rungs, PlanChain(parts, sampling, probes, keep_going));
  return absl::OkStatus();
}

absl::StatusOr<std::array<HostBatch*, 2>> NodeTask::Probes(Mode mode, const BatchShape& shape) {
  if (!form_.pads) {
    PF_ASSIGN_OR_RETURN(HostBatch * first, ExactProbe(mode, 0, shape));
    PF_ASSIGN_OR_RETURN(HostBatch * second, ExactProbe(mode, 1, shape));
    return std::array<HostBatch*, 2>{first, second};
  }
  ModeParts& parts = part(mode);
  const BlockSizes* rung = parts.rungs.Find(shape);
  if (rung == nullptr)
    return absl::InternalError(absl::StrCat(ToString(shape, kCountedSeeds), " is none of the job's sizes"));
  // Each planned rung holds at least one probe.
  std::vector<const Probe*> fitting;
  for (const Probe& probe : parts.probes) {
    if (rung->Holds(LeastPadded(probe.sizes))) fitting.push_back(&probe);
  }
  if (fitting.empty())
    return absl::InternalError(absl::StrCat("no sampled block fits ", ToString(shape, kCountedSeeds)));
  data::SampledSubgraph subgraph;
  for (size_t i = 0; i < probes_.size(); ++i) {
    const Probe& probe = *(i == 0 ? fitting.front() : fitting.back());
    PF_RETURN_IF_ERROR(parts.prober->Sample(probe.seeds, probe.stream, nullptr, subgraph, probe.times));
    PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, *rung, probes_[i]));
    probe_pairs_[i] = probe.pairs;
  }
  // If both probes are the same block, the second one gets other edges, so that a capture does not treat edges as
  // constants.
  if (fitting.size() == 1) {
    std::ranges::fill(probes_[1].sources, 0);
    std::ranges::fill(probes_[1].neighbors, 0);
    std::ranges::fill(probes_[1].edge_ints, 0);
    std::ranges::fill(probes_[1].edge_floats, 0);
    std::ranges::fill(probe_pairs_[1].sources, 0);
  }
  return std::array<HostBatch*, 2>{probe_views_.data(), probe_views_.data() + 1};
}

absl::StatusOr<HostBatch*> NodeTask::ExactProbe(Mode mode, size_t probe, const BatchShape& shape) {
  ModeParts& parts = part(mode);
  // Blocks that have edges are preferred, since ComposeBlock repeats their edges.
  std::vector<const Probe*> with_edges;
  for (const Probe& one : parts.probes) {
    if (one.sizes.edges > 0) with_edges.push_back(&one);
  }
  const Probe& from =
      with_edges.empty() ? parts.probes[probe % parts.probes.size()] : *with_edges[probe % with_edges.size()];
  data::SampledSubgraph subgraph;
  data::BlockBatch sampled;
  PF_RETURN_IF_ERROR(parts.prober->Sample(from.seeds, from.stream, nullptr, subgraph, from.times));
  PF_ASSIGN_OR_RETURN(const BlockSizes sizes, parts.prober->SizesOf(subgraph));
  PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, LeastPadded(sizes), sampled));
  probes_[probe % probes_.size()] = data::ComposeBlock(sampled, shape, probe, ReadsWeights());
  data::LinkBatch& pairs = probe_pairs_[probe % probe_pairs_.size()] = from.pairs;
  for (auto* ends : {&pairs.sources, &pairs.targets}) {
    for (int64_t& seed : *ends) seed %= shape.graphs;
  }
  return &probe_views_[probe % probes_.size()];
}

absl::StatusOr<HostBatch*> NodeTask::DynamicProbe(Mode mode, size_t probe) {
  ModeParts& parts = part(mode);
  if (!form_.pads) {
    const BlockRungs& rungs = parts.rungs;
    const BatchShape ceiling = rungs.rungs()[static_cast<size_t>(rungs.num_planned() - 1)].shape();
    BatchShape shape = ProbeShapes(ceiling, /*below=*/true)[probe];
    // A block has at least its seeds and a padding row. Each probe gets a different number of further rows, since the
    // recording of a step might otherwise hold only for that least number.
    if (shape.nodes <= shape.graphs + 1) shape.nodes = shape.graphs + 1 + static_cast<int64_t>(probe);
    return ExactProbe(mode, probe, shape);
  }
  const Probe& from = parts.probes[probe % parts.probes.size()];
  // Later probes have fewer seeds, so their blocks differ in size in all dimensions.
  constexpr std::array<size_t, device::kDynamicProbes> kEighths{8, 4, 6, 5};
  const size_t seeds = std::max<size_t>(1, from.seeds.size() * kEighths[probe] / 8);
  data::SampledSubgraph subgraph;
  PF_RETURN_IF_ERROR(parts.prober->Sample(std::span(from.seeds).first(seeds), from.stream, nullptr, subgraph,
                                          std::span(from.times).first(std::min(seeds, from.times.size()))));
  PF_ASSIGN_OR_RETURN(BlockSizes sizes, parts.prober->SizesOf(subgraph));
  const bool has_nonzeros = parts.prober->has_nonzeros();
  if (probe == 0) {
    sizes = AtLeastDynamic(parts.rungs.rungs()[static_cast<size_t>(parts.rungs.num_planned() - 1)], has_nonzeros);
  } else {
    size_t dimension = 0;
    const auto vary = [&](int64_t& size) {
      size = ProbeSize(probe, dimension++, std::max(size, graphcache::kLeastDynamic), size / 16);
    };
    for (int64_t& rows : sizes.nodes) vary(rows);
    vary(sizes.edges);
    if (has_nonzeros) vary(sizes.nonzeros);
  }
  PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, sizes, probes_[0]));
  probe_pairs_[0] = from.pairs;
  for (auto* ends : {&probe_pairs_[0].sources, &probe_pairs_[0].targets}) {
    for (int64_t& seed : *ends) seed %= static_cast<int64_t>(seeds);
  }
  return probe_views_.data();
}

}  // namespace permafrost::train
