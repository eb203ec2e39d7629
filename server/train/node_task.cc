#include "train/node_task.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/rows/expected_draws.h"
#include "nn/loss.h"
#include "nn/metrics.h"
#include "nn/models/registry.h"
#include "nn/ops/lowering.h"
#include "train/layer_wise.h"
#include "train/node_model_for.h"
#include "train/probe_sizes.h"

namespace permafrost::train {
namespace {

using data::BlockSizes;
using data::NodeId;

// Batches sampled to plan the rungs.
constexpr int64_t kProbeBatches = 32, kPartialProbes = 4;
// Streams of sampling: training batches count from 0; others must not meet them.
constexpr uint64_t kEvalStreams = uint64_t{1} << 62, kProbeStreams = kEvalStreams + (uint64_t{1} << 61);
// Part of the memory that open advice may fill.
constexpr uint64_t kAdviceShare = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<NodeTask>> NodeTask::Create(const TrainOptions& options,
                                                           std::shared_ptr<const data::Graph> graph, c10::Device device,
                                                           int threads, const std::function<bool()>& keep_going,
                                                           const PlanContext& context) {
  PF_ASSIGN_OR_RETURN(const nn::NodeModelOptions model, NodeModelFor(options, graph->summary(), kNoLimits, "spec."));
  std::unique_ptr<Links> links;
  if (options.links.enabled) {
    PF_ASSIGN_OR_RETURN(links, Links::Create(options, graph, keep_going));
    graph = links->messages();
  }
  PF_ASSIGN_OR_RETURN(auto splits, ReadSplits(*graph));
  std::unique_ptr<NodeTask> task(
      new NodeTask(options, std::move(graph), std::move(links), std::move(splits), model, device));
  if (task->links_ != nullptr) task->links_->AddDecoder(*task->model_, options.seed, device);
  PF_RETURN_IF_ERROR(task->OpenFeatures(model, context, keep_going));
  PF_RETURN_IF_ERROR(task->MakeParts(threads, keep_going));
  return task;
}

NodeTask::NodeTask(const TrainOptions& options, std::shared_ptr<const data::Graph> graph, std::unique_ptr<Links> links,
                   std::array<std::vector<NodeId>, 3> splits, const nn::NodeModelOptions& model, c10::Device device)
    : options_(options),
      graph_(std::move(graph)),
      links_(std::move(links)),
      device_(device),
      num_outputs_(model.num_outputs),
      splits_(std::move(splits)),
      epochs_(links_ != nullptr ? links_->train_ids() : splits_[0],
              {.batch_size = options.batch_size, .seed = options.seed}),
      model_(nn::MakeNodeModel(model, options.seed, device)) {}

absl::Status NodeTask::OpenFeatures(const nn::NodeModelOptions& model, const PlanContext& context,
                                    const std::function<bool()>& keep_going) {
  if (context.rows == nullptr) return absl::OkStatus();
  const data::GraphSummary& summary = graph_->summary();
  // Rows of edges are read through the mapping, which wants room for them too.
  const data::EdgeInputs edges = EdgeInputsOf(options_.model, summary);
  PF_ASSIGN_OR_RETURN(features_, context.rows->Open(graph_, NodeJobBytes(options_, model, summary, context.limits) +
                                                                EdgeTableBytes(summary, edges)));
  if (features_.cache == nullptr) return absl::OkStatus();
  row_caches_ = context.rows;
  features_before_ = features_.cache->counters();
  std::vector<float> draws(graph_->view().nodes);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options_)) continue;
    const std::vector<int64_t> fan_outs = SamplingOf(options_, mode, summary).fan_outs;
    // Of the splits that an epoch draws.
    const data::Split split = mode == Mode::kTrain ? data::Split::kTrain : data::Split::kValid;
    std::vector<NodeId> seeds = splits_[static_cast<size_t>(split)];
    int64_t batch_seeds = options_.batch_size;
    if (links_ != nullptr) {
      // Any node may be the end of a link, or of none.
      seeds.resize(graph_->view().nodes);
      std::iota(seeds.begin(), seeds.end(), NodeId{0});
      batch_seeds = MostSeeds(options_, options_.batch_size, summary.nodes);
    }
    PF_RETURN_IF_ERROR(data::AddExpectedDraws(graph_->view(), seeds, batch_seeds, fan_outs, keep_going, draws));
  }
  features_.cache->SetExpectedDraws(std::move(draws));
  return absl::OkStatus();
}

absl::Status NodeTask::MakeParts(int threads, const std::function<bool()>& keep_going) {
  const bool weights = UsesEdgeWeights(options_, *graph_);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options_)) continue;
    const data::BlockBatcher::Options how{.sampling = SamplingOf(options_, mode, graph_->summary()),
                                          .edge_weights = weights,
                                          .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                          .threads = threads,
                                          .rows = features_.cache};
    PF_ASSIGN_OR_RETURN(part(mode).stream, data::BlockBatcher::Create(graph_, how));
    PF_ASSIGN_OR_RETURN(part(mode).prober, data::BlockBatcher::Create(graph_, how));
    PF_RETURN_IF_ERROR(PlanRungs(mode, keep_going));
  }
  if (links_ != nullptr && options_.nodes.is_temporal()) PF_RETURN_IF_ERROR(PlanLinkEvaluation(threads, keep_going));
  plan_.train_rungs = part(Mode::kTrain).rungs.PlannedShapes();
  if (!EvaluatesOutsideCache(options_)) plan_.eval_rungs = part(Mode::kEval).rungs.PlannedShapes();
  plan_.train_ceiling = plan_.train_rungs.back();
  plan_.train_shapes = std::ssize(plan_.train_rungs);
  for (size_t i = 0; i < probes_.size(); ++i) {
    probe_views_.emplace_back(*part(Mode::kTrain).prober, part(Mode::kTrain).rungs, device_);
    probe_views_.back().Bind(probes_[i], links_ != nullptr ? &probe_pairs_[i] : nullptr);
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeTask::Probe> NodeTask::ProbeOf(std::span<const uint32_t> ids, int64_t epoch) const {
  Probe probe{.seeds = {ids.begin(), ids.end()},
              .times = TimesOf(ids.size()),
              .most_seeds = std::ssize(ids),
              .full = std::ssize(ids) == options_.batch_size,
              .pairs = {},
              .sizes = {}};
  if (links_ == nullptr) return probe;
  PF_RETURN_IF_ERROR(links_->MakeBatch(ids, epoch, probe.pairs));
  probe.seeds = probe.pairs.seeds;
  probe.times = probe.pairs.times;
  probe.most_seeds = MostSeeds(options_, std::ssize(ids), graph_->summary().nodes);
  return probe;
}

absl::Status NodeTask::PlanRungs(Mode mode, const std::function<bool()>& keep_going) {
  ModeParts& parts = part(mode);
  const data::NeighborSamplingOptions sampling = SamplingOf(options_, mode, graph_->summary());
  // Full batches, and the last ones of epochs, which may be partial.
  std::vector<Probe> full, partial;
  for (const data::Split split : SplitsOf(mode)) {
    const data::EpochOrder order(
        links_ != nullptr ? links_->train_ids() : splits_[static_cast<size_t>(split)],
        {.batch_size = options_.batch_size, .seed = options_.seed, .shuffle = mode == Mode::kTrain});
    const int64_t batches = order.batches_per_epoch();
    for (int64_t epoch = 0; epoch < kPartialProbes; ++epoch) {
      const data::EpochBatches ids = order.Of(epoch);
      for (int64_t b = 0; b < batches && std::ssize(full) < kProbeBatches; ++b) {
        PF_ASSIGN_OR_RETURN(Probe probe, ProbeOf(order.Batch(ids, b), epoch));
        if (probe.full) full.push_back(std::move(probe));
      }
      const auto last = batches > 0 ? order.Batch(ids, batches - 1) : std::span<const uint32_t>();
      if (!last.empty() && std::ssize(last) < options_.batch_size) {
        PF_ASSIGN_OR_RETURN(partial.emplace_back(), ProbeOf(last, epoch));
      }
      if (mode == Mode::kEval) break;
    }
  }
  if (!full.empty()) {
    PF_ASSIGN_OR_RETURN(parts.rungs, PlanChain(parts, sampling, full, keep_going));
  }
  // The larger first: each goes below those before.
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
  const int64_t seeds = batches.front().most_seeds;
  for (Probe& probe : batches) {
    if (!keep_going()) return absl::CancelledError("stopped while batches were sampled to plan their sizes");
    probe.stream = kProbeStreams + parts.probes.size();
    PF_RETURN_IF_ERROR(parts.prober->Sample(probe.seeds, probe.stream, nullptr, subgraph, probe.times));
    PF_ASSIGN_OR_RETURN(probe.sizes, data::SizesOf(subgraph, graph_->view()));
    sizes.push_back(probe.sizes);
    parts.probes.push_back(std::move(probe));
  }
  return BlockRungs::Plan(sizes, BlockBound(sampling, seeds, graph_->summary()));
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> NodeTask::Schedules(
    const std::function<bool()>& /*keep_going*/) {
  const ModeParts& parts = part(Mode::kTrain);
  // Of an epoch's batches all but the last are full.
  const auto full = static_cast<double>(std::ranges::count_if(parts.probes, &Probe::full));
  const auto partial = static_cast<double>(parts.probes.size()) - full;
  const auto batches = static_cast<double>(batches_per_epoch());
  std::map<BatchShape, std::array<double, 3>> rungs;  // batches, rows, rows as a dynamic executable takes them
  for (const Probe& probe : parts.probes) {
    const double share = probe.full ? (batches - (partial > 0 ? 1 : 0)) / full : 1 / partial;
    std::array<double, 3>& sums = rungs[parts.rungs.Fit(probe.sizes).shape()];
    sums[0] += share;
    sums[1] += share * static_cast<double>(graphcache::Rows(probe.sizes.shape()));
    sums[2] +=
        share * static_cast<double>(graphcache::Rows(AtLeastDynamic(LeastPadded(probe.sizes), sparse()).shape()));
  }
  graphcache::PlannedSchedule schedule{.batching = "sampled",
                                       .first_epoch_shapes = std::ssize(rungs),
                                       .epochs = options_.epochs,
                                       .estimated = true,
                                       .ceiling = plan_.train_ceiling,
                                       .eval_rungs = plan_.eval_rungs,
                                       .eval_shapes = std::ssize(plan_.eval_rungs)};
  const auto all = [this](double of_an_epoch) {
    return std::llround(of_an_epoch * static_cast<double>(options_.epochs));
  };
  for (const auto& [shape, sums] : rungs) {
    schedule.train.push_back({.shape = shape,
                              .batches = std::max<int64_t>(1, all(sums[0])),
                              .real_rows = all(sums[1]),
                              .dynamic_rows = all(sums[2])});
  }
  return std::vector{std::move(schedule)};
}

Task::Output NodeTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::NodeBlock block = NodeBlockOf(inputs);
  const at::Tensor rows = model_->Forward(block, mode);
  return {links_ != nullptr ? links_->Predict(rows, NodePairsOf(inputs)) : rows, block.labels};
}

absl::StatusOr<std::array<HostBatch*, 2>> NodeTask::Probes(Mode mode, const BatchShape& shape) {
  ModeParts& parts = part(mode);
  const BlockSizes* rung = parts.rungs.Find(shape);
  if (rung == nullptr) return absl::InternalError(absl::StrCat(ToString(shape), " is none of the job's sizes"));
  // Each rung was planned from one of them at least.
  std::vector<const Probe*> fitting;
  for (const Probe& probe : parts.probes) {
    if (rung->Holds(LeastPadded(probe.sizes))) fitting.push_back(&probe);
  }
  if (fitting.empty()) return absl::InternalError(absl::StrCat("no sampled block fits ", ToString(shape)));
  data::SampledSubgraph subgraph;
  for (size_t i = 0; i < probes_.size(); ++i) {
    const Probe& probe = *(i == 0 ? fitting.front() : fitting.back());
    PF_RETURN_IF_ERROR(parts.prober->Sample(probe.seeds, probe.stream, nullptr, subgraph, probe.times));
    PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, *rung, probes_[i]));
    probe_pairs_[i] = probe.pairs;
  }
  // Other edges, where the block is the same: what a capture must not take for constant.
  if (fitting.size() == 1) {
    std::ranges::fill(probes_[1].sources, 0);
    std::ranges::fill(probes_[1].edge_ints, 0);
    std::ranges::fill(probes_[1].edge_floats, 0);
    std::ranges::fill(probe_pairs_[1].sources, 0);
  }
  return std::array<HostBatch*, 2>{probe_views_.data(), probe_views_.data() + 1};
}

absl::StatusOr<HostBatch*> NodeTask::DynamicProbe(Mode mode, size_t probe) {
  ModeParts& parts = part(mode);
  const Probe& from = parts.probes[probe % parts.probes.size()];
  // Fewer seeds for the later ones: a block of another size in all dimensions.
  constexpr std::array<size_t, device::kDynamicProbes> kEighths{8, 4, 6, 5};
  const size_t seeds = std::max<size_t>(1, from.seeds.size() * kEighths[probe] / 8);
  data::SampledSubgraph subgraph;
  PF_RETURN_IF_ERROR(parts.prober->Sample(std::span(from.seeds).first(seeds), from.stream, nullptr, subgraph,
                                          std::span(from.times).first(std::min(seeds, from.times.size()))));
  PF_ASSIGN_OR_RETURN(BlockSizes sizes, data::SizesOf(subgraph, graph_->view()));
  if (probe == 0) {
    sizes = AtLeastDynamic(parts.rungs.rungs()[static_cast<size_t>(parts.rungs.num_planned() - 1)], sparse());
  } else {
    size_t dimension = 0;
    const auto vary = [&](int64_t& size) {
      size = ProbeSize(probe, dimension++, std::max(size, graphcache::kLeastDynamic), size / 16);
    };
    for (int64_t& rows : sizes.nodes) vary(rows);
    vary(sizes.edges);
    if (sparse()) vary(sizes.nonzeros);
  }
  PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, sizes, probes_[0]));
  probe_pairs_[0] = from.pairs;
  for (auto* ends : {&probe_pairs_[0].sources, &probe_pairs_[0].targets}) {
    for (int64_t& seed : *ends) seed %= static_cast<int64_t>(seeds);
  }
  return probe_views_.data();
}

int64_t NodeTask::size(data::Split split) const {
  return links_ != nullptr ? links_->size(split) : std::ssize(splits_[static_cast<size_t>(split)]);
}

std::unique_ptr<BatchStream> NodeTask::Stream(Mode mode, data::EpochOrder epochs, int64_t epoch, int64_t first,
                                              uint64_t first_stream) {
  // Captures come before it, and in between seldom; what they were made with is as large as a batch.
  if (features_.cache != nullptr) probes_ = {};
  return std::make_unique<SampledStream>(
      *part(mode).stream, part(mode).rungs, device_, std::move(epochs), epoch, first, first_stream, links_.get(),
      TimesOf(static_cast<size_t>(options_.batch_size)),
      [&parts = part(mode), sparse = sparse()](const BlockSizes& real) {
        return parts.dynamic ? AtLeastDynamic(LeastPadded(real), sparse) : parts.rungs.Fit(real);
      },
      data::BlockStream::Options{.max_depth = options_.nodes.look_ahead,
                                 .budget_bytes = MemoryLimit() / kAdviceShare,
                                 .advise = options_.nodes.advise_pages,
                                 .leases = features_.cache != nullptr},
      [this] { return Reading(); });
}

std::unique_ptr<BatchStream> NodeTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  return Stream(Mode::kTrain, epochs_, epoch, first_batch, static_cast<uint64_t>(epoch * batches_per_epoch()));
}

std::unique_ptr<BatchStream> NodeTask::EvalBatches(data::Split split) {
  // The same sample at each evaluation, so that epochs can be compared.
  const uint64_t streams = kEvalStreams + (static_cast<uint64_t>(split) << 40);
  return Stream(Mode::kEval,
                {splits_[static_cast<size_t>(split)], {.batch_size = options_.batch_size, .shuffle = false}}, 0, 0,
                streams);
}

std::optional<data::RowReading> NodeTask::Reading() {
  if (features_.cache == nullptr) return std::nullopt;
  row_caches_->Adapt(*features_.cache);
  return data::RowReading{.reader = features_.cache->reader(),
                          .counters = data::Since(features_before_, features_.cache->counters())};
}

absl::Status NodeTask::PlanLinkEvaluation(int threads, const std::function<bool()>& keep_going) {
  ModeParts& parts = part(Mode::kEval);
  const data::NeighborSamplingOptions sampling = SamplingOf(options_, Mode::kEval, graph_->summary());
  PF_ASSIGN_OR_RETURN(parts.prober,
                      data::BlockBatcher::Create(graph_, {.sampling = sampling,
                                                          .edge_weights = UsesEdgeWeights(options_, *graph_),
                                                          .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                                          .threads = threads,
                                                          .rows = features_.cache}));
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

absl::StatusOr<Evaluation> NodeTask::EvaluateTimedLinks(data::Split split, bool keep_predictions,
                                                        const std::function<bool()>& keep_going) {
  ModeParts& parts = part(Mode::kEval);
  const uint64_t streams = kEvalStreams + (static_cast<uint64_t>(split) << 40);
  data::SampledSubgraph subgraph;
  data::BlockBatch block;
  SampledBatch view(*parts.prober, parts.rungs, device_);
  const auto score = [&](data::LinkBatch& pairs, uint64_t sample) -> absl::StatusOr<at::Tensor> {
    PF_RETURN_IF_ERROR(parts.prober->Sample(pairs.seeds, streams + sample, nullptr, subgraph, pairs.times));
    PF_ASSIGN_OR_RETURN(const BlockSizes sizes, data::SizesOf(subgraph, graph_->view()));
    PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, parts.rungs.Fit(sizes), block));
    view.Bind(block, &pairs);
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, view.PadTo(block.padded.shape(), 0));
    return Forward(*inputs, Mode::kEval).prediction;
  };
  return links_->EvaluateSampled(score, split, keep_predictions, keep_going);
}

absl::StatusOr<std::optional<Evaluation>> NodeTask::EvaluateWhole(data::Split split, bool keep_predictions,
                                                                  const std::function<bool()>& keep_going) {
  if (links_ != nullptr && options_.nodes.is_temporal()) {
    return EvaluateTimedLinks(split, keep_predictions, keep_going);
  }
  if (!EvaluatesLayerWise(options_)) return std::nullopt;
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  PF_ASSIGN_OR_RETURN(const at::Tensor all, PredictLayerWise(*graph_, *model_,
                                                             {.num_layers = options_.model.num_layers,
                                                              .hidden_channels = options_.model.hidden_channels,
                                                              .edge_weights = UsesEdgeWeights(options_, *graph_),
                                                              .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                                              .device = device_},
                                                             keep_going));
  if (links_ != nullptr) return links_->Evaluate(all.to(device_), split, keep_predictions, keep_going);
  const std::vector<NodeId>& ids = splits_[static_cast<size_t>(split)];
  const at::Tensor rows = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
  const at::Tensor predictions = all.index_select(0, rows).contiguous();
  PF_ASSIGN_OR_RETURN(const at::Tensor labels, ReadLabels(*graph_, ids));
  at::Tensor weights;
  if (!options_.class_weights.empty()) weights = at::tensor(options_.class_weights, at::kFloat);
  const nn::LossTerms loss = nn::ComputeLoss(options_.loss, predictions, labels, weights);
  Evaluation result;
  const double count = loss.count.item<double>();
  result.loss = count > 0 ? loss.sum.item<double>() / count : std::numeric_limits<double>::quiet_NaN();
  result.predictions.assign(predictions.const_data_ptr<float>(),
                            predictions.const_data_ptr<float>() + predictions.numel());
  const std::span<const float> known(labels.const_data_ptr<float>(), static_cast<size_t>(labels.numel()));
  for (const nn::Metric metric : MetricsOf(options_)) {
    result.metrics.push_back(nn::ComputeMetric(metric, options_.loss, result.predictions, known, num_outputs_));
  }
  if (keep_predictions) {
    result.ids = ids;
  } else {
    result.predictions.clear();
  }
  return result;
}

}  // namespace permafrost::train
