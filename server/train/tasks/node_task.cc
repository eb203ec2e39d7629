#include "train/tasks/node_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "data/rows/frame_table.h"
#include "device/staging.h"
#include "nn/loss.h"
#include "nn/metrics.h"
#include "nn/models/model.h"
#include "nn/ops/lowering.h"
#include "train/tasks/layer_wise.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/program_trials.h"

namespace permafrost::train {
namespace {

using data::BlockSizes;
using data::NodeId;

// The part of memory that the kernel may be advised to fill by reading ahead is 1 / kAdviceShare.
constexpr uint64_t kAdviceShare = 4;

uint64_t Less(uint64_t from, uint64_t taken) { return from - std::min(from, taken); }

// Returns the host memory, in bytes, that the job needs in addition to node features and adjacency. It includes edge
// features and positions, which are read through the mapping.
uint64_t HostBytes(const spec::TrainOptions& options, const JobNodeModel& model, const data::GraphSummary& graph,
                   const MemoryLimits& limits) {
  const int64_t positions = spec::IsProgram(options) ? graph.nodes * graph.position_columns : 0;
  return NodeJobBytes(options, model, graph, limits) + EdgeTableBytes(graph, EdgeInputsOf(options.model, graph)) +
         sizeof(float) * static_cast<uint64_t>(positions);
}

// Returns the memory that a table of the job's features may take if the device gathers them.
FeatureMemory FeatureMemoryOf(const spec::TrainOptions& options, const JobNodeModel& model,
                              const data::GraphSummary& graph, const PlanContext& context) {
  const MemoryLimits& limits = context.limits;
  FeatureMemory memory{
      .device = Less(*limits.device, NodeDeviceBytes(options, model, graph, limits) + MeansBytes(options, graph)),
      .gathering = GatheringBytes(options, graph)};
  if (context.allocate_pinned == nullptr) return memory;
  const uint64_t taken = HostBytes(options, model, graph, limits) + graph.adjacency_bytes;
  memory.host = PinnableBytes(limits.process, taken);
  // Other parts of the process may have taken some of the host's memory by now.
  if (context.rows != nullptr) memory.host = std::min(memory.host, context.rows->LeftBeside(taken));
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeTask>> NodeTask::Create(const spec::TrainOptions& options,
                                                           std::shared_ptr<const data::Graph> graph, c10::Device device,
                                                           int threads, const std::function<bool()>& keep_going,
                                                           const PlanContext& context) {
  PF_ASSIGN_OR_RETURN(const JobNodeModel model, NodeModelFor(options, graph->summary(), kNoLimits, "spec."));
  const NodeProgramData data = ProgramDataOf(graph->summary());
  PF_ASSIGN_OR_RETURN(JobPadding padding, PaddingOf(options, model, data, context.limits, "spec."));
  PF_ASSIGN_OR_RETURN(JobFusion fusion, FusionOf(options, model, data, device, "spec."));
  PF_ASSIGN_OR_RETURN(MadeNodeModel made, MakeModel(OfRank(options, context.rank()), model, data, device, "spec.",
                                                    {.padding = padding.norms, .fused = fusion.fused}));
  const spec::TrainOptions own = WithProgram(options, model, made);
  const std::shared_ptr<const data::Graph> given = graph;
  std::unique_ptr<Links> links;
  if (options.links.enabled) {
    PF_ASSIGN_OR_RETURN(links, Links::Create(own, graph, keep_going));
    graph = links->messages();
  }
  PF_ASSIGN_OR_RETURN(auto splits, ReadSplits(*graph));
  std::unique_ptr<NodeTask> task(new NodeTask(own, std::move(graph), std::move(links), std::move(splits),
                                              model.num_outputs, std::move(made), device,
                                              {.pads = padding.pads, .flat = spec::IsProgram(options)}, context.group));
  task->padding_note_ = std::move(padding.note);
  task->fusion_note_ = std::move(fusion.note);
  if (task->links_ != nullptr) task->links_->AddDecoder(*task->made_.model, options.seed, device);
  PF_RETURN_IF_ERROR(task->ReadTable(model, context, keep_going));
  PF_RETURN_IF_ERROR(task->OpenFeatures(model, context, keep_going));
  // With a row cache, passes are not kept, because one mode's stream would lease the room that the other mode's
  // stream needs.
  task->keeps_passes_ = context.limits.trains && task->features_.cache == nullptr &&
                        HasRoomForBothModes(options, model, task->graph_->summary(), context.limits);
  const std::string key =
      context.plans != nullptr
          ? SampledKey(options, *given, task->MeansElsewhere(Mode::kTrain) || task->MeansElsewhere(Mode::kEval),
                       context.rank())
          : "";
  std::optional<SampledSizes> kept;
  if (!key.empty()) kept = context.plans->FindSizes(key);
  if (kept) {
    for (size_t mode = 0; mode < kept->size(); ++mode) task->parts_[mode].kept = std::move((*kept)[mode]);
  }
  PF_RETURN_IF_ERROR(task->MakeParts(threads, keep_going));
  if (model.program && device.is_cpu()) {
    BatchShape largest = task->plan_.train_ceiling;
    if (task->made_.scores_pairs) largest.edges = std::max(largest.edges, task->links_->pairs());
    task->torch_threads_ = ThreadsFor(model.program->Step(largest).operator_values);
  }
  if (kept) {
    TellKept(context, key);
  } else if (!key.empty()) {
    context.plans->KeepSizes(key, task->Sampled());
  }
  return task;
}

SampledSizes NodeTask::Sampled() const {
  SampledSizes sizes;
  for (size_t mode = 0; mode < sizes.size(); ++mode) {
    for (const Probe& probe : parts_[mode].probes) sizes[mode].push_back(probe.sizes);
  }
  return sizes;
}

NodeTask::NodeTask(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph,
                   std::unique_ptr<Links> links, std::array<std::vector<NodeId>, 3> splits, int64_t num_outputs,
                   MadeNodeModel made, c10::Device device, BlockForm form, collective::Group* group)
    : options_(options),
      graph_(std::move(graph)),
      links_(std::move(links)),
      times_(options_.nodes.temporal, options_.nodes.seed_time, graph_->view()),
      device_(device),
      num_outputs_(num_outputs),
      splits_(std::move(splits)),
      group_(group),
      epochs_(links_ != nullptr ? links_->train_ids() : splits_[0],
              {.batch_size = options.batch_size, .seed = options.seed, .rank = rank(), .world_size = options.replicas}),
      made_(std::move(made)),
      form_(form) {}

absl::Status NodeTask::ReadTable(const JobNodeModel& model, const PlanContext& context,
                                 const std::function<bool()>& keep_going) {
  const data::GraphSummary& summary = graph_->summary();
  const bool dense = std::holds_alternative<data::DenseFeatures>(graph_->view().node_features);
  if (!context.features_on_device || !context.limits.device || !dense) return absl::OkStatus();
  const FeatureMemory memory = FeatureMemoryOf(options_, model, summary, context);
  const int64_t row_bytes = FeatureRowBytes(summary);
  FeatureTableOptions how{.device = device_,
                          .split = SplitFeatures(FeatureTableRows(summary), row_bytes, memory),
                          .allocate_pinned = context.allocate_pinned,
                          .wanted = {}};
  // The device computes means only if all rows lie on it, and if row numbers fit 32 bits.
  const bool makes_means = how.split.host == 0 && how.split.device <= std::numeric_limits<int32_t>::max();
  if (how.split.rows() == 0 || (!makes_means && !GathersRows(Mode::kTrain))) return absl::OkStatus();
  std::vector<float> wanted;
  if (how.split.device > 0 && how.split.host > 0) {
    PF_ASSIGN_OR_RETURN(wanted, ExpectedDraws(keep_going));
    how.wanted = wanted;
  }
  // Frees the memory of cached rows of an earlier job.
  if (how.split.host > 0 && context.rows != nullptr) context.rows->Drop();
  PF_ASSIGN_OR_RETURN(table_, ReadFeatureTable(*graph_, how, keep_going));
  if (!table_.defined()) return absl::OkStatus();
  table_makes_means_ = makes_means;
  table_line_ = DescribeFeatures(how.split, row_bytes);
  return absl::OkStatus();
}

bool NodeTask::GathersRows(Mode mode) const { return !SamplingOf(options_, mode, graph_->summary()).last_hop_apart; }

absl::Status NodeTask::OpenFeatures(const JobNodeModel& model, const PlanContext& context,
                                    const std::function<bool()>& keep_going) {
  if (context.rows == nullptr) return absl::OkStatus();
  const bool on_host = !UsesTable(Mode::kTrain) || (!EvaluatesOutsideCache(options_) && !UsesTable(Mode::kEval));
  if (!on_host) {
    context.rows->Drop();
    return absl::OkStatus();
  }
  const data::GraphSummary& summary = graph_->summary();
  PF_ASSIGN_OR_RETURN(features_, context.rows->Open(graph_, HostBytes(options_, model, summary, context.limits)));
  if (features_.cache == nullptr) return absl::OkStatus();
  row_caches_ = context.rows;
  features_before_ = features_.cache->counters();
  PF_ASSIGN_OR_RETURN(std::vector<float> draws, ExpectedDraws(keep_going));
  features_.cache->SetExpectedDraws(std::move(draws));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> NodeTask::ExpectedDraws(const std::function<bool()>& keep_going) const {
  const data::GraphSummary& summary = graph_->summary();
  std::vector<float> draws(graph_->view().nodes);
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options_)) continue;
    const std::vector<int64_t> fan_outs = SamplingOf(options_, mode, summary).fan_outs;
    // The split whose batches an epoch of this mode draws.
    const data::Split split = mode == Mode::kTrain ? data::Split::kTrain : data::Split::kValid;
    std::vector<NodeId> seeds = splits_[static_cast<size_t>(split)];
    int64_t batch_seeds = options_.batch_size;
    if (links_ != nullptr) {
      // Any node may be the end of a link or of a negative.
      seeds.resize(graph_->view().nodes);
      std::iota(seeds.begin(), seeds.end(), NodeId{0});
      batch_seeds = MostSeeds(options_, options_.batch_size, summary.nodes);
    }
    PF_RETURN_IF_ERROR(data::AddExpectedDraws(graph_->view(), seeds, batch_seeds, fan_outs, keep_going, draws));
  }
  return draws;
}

absl::Status NodeTask::MakeParts(int threads, const std::function<bool()>& keep_going) {
  const bool weights = ReadsWeights();
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && EvaluatesOutsideCache(options_)) continue;
    const data::BlockBatcher::Options how{.sampling = SamplingOf(options_, mode, graph_->summary()),
                                          .edge_weights = weights,
                                          .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                          .positions = made_.reads_positions,
                                          .threads = threads,
                                          .rows = UsesTable(mode) ? nullptr : features_.cache,
                                          .features_elsewhere = UsesTable(mode)};
    PF_ASSIGN_OR_RETURN(part(mode).stream, data::BlockBatcher::Create(graph_, how));
    PF_ASSIGN_OR_RETURN(part(mode).prober, data::BlockBatcher::Create(graph_, how));
    PF_RETURN_IF_ERROR(PlanRungs(mode, keep_going));
  }
  const bool samples_links = links_ != nullptr && (options_.nodes.is_temporal() || made_.layers == nullptr);
  if (samples_links) PF_RETURN_IF_ERROR(PlanLinkEvaluation(threads, keep_going));
  plan_.train_rungs = part(Mode::kTrain).rungs.PlannedShapes();
  if (!EvaluatesOutsideCache(options_)) plan_.eval_rungs = part(Mode::kEval).rungs.PlannedShapes();
  plan_.train_ceiling = plan_.train_rungs.back();
  if (!form_.pads) plan_.train_rungs.clear();
  plan_.train_schedule = RungCounts(Mode::kTrain);
  if (!plan_.eval_rungs.empty()) plan_.eval_schedule = RungCounts(Mode::kEval);
  for (size_t i = 0; i < probes_.size(); ++i) {
    probe_views_.emplace_back(*part(Mode::kTrain).prober, part(Mode::kTrain).rungs, table_, form_);
    probe_views_.back().Bind(probes_[i], links_ != nullptr ? &probe_pairs_[i] : nullptr);
  }
  return absl::OkStatus();
}

std::vector<std::string> NodeTask::notes() const {
  std::vector<std::string> notes = links_ != nullptr ? links_->notes() : std::vector<std::string>();
  for (const std::string& note : {made_.note, padding_note_, fusion_note_}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

Task::Output NodeTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::NodeBlock block = NodeBlockOf(inputs);
  const at::Tensor made = made_.model->Forward(block, mode);
  return {decodes_pairs() ? links_->Predict(made, block.pairs) : made, block.labels, made_.model->TakeLoss()};
}

int64_t NodeTask::size(data::Split split) const {
  return links_ != nullptr ? links_->size(split) : std::ssize(splits_[static_cast<size_t>(split)]);
}

std::unique_ptr<BatchStream> NodeTask::Batches(Mode mode, SampledPasses::Plan plan, bool keeps) {
  // Frees the probes, which are as large as a batch. Captures need them before the first stream, and seldom later.
  if (features_.cache != nullptr) probes_ = {};
  const int64_t pass = plan.first_pass;
  std::shared_ptr<SampledPasses>& kept = passes_[static_cast<size_t>(mode)];
  if (keeps && kept != nullptr && kept->IsAt(pass, plan.first_batch)) return SampledPasses::Rest(kept, pass);
  // Destroys the kept stream, since only one stream may use the batcher.
  kept = nullptr;
  if (!keeps) plan.passes = 1;
  auto passes = std::make_shared<SampledPasses>(
      std::move(plan),
      SampledPasses::Source{.batcher = *part(mode).stream,
                            .rungs = part(mode).rungs,
                            .features = TableOf(mode),
                            .form = form_,
                            .links = links_.get(),
                            .times = times_,
                            .fit = [this, mode](const BlockSizes& real) { return ReadyAt(mode, real); },
                            .reading = [this] { return Reading(); }},
      data::BlockStream::Options{.max_depth = options_.nodes.look_ahead,
                                 // If passes are kept, the streams of both modes exist at the same time.
                                 .budget_bytes = MemoryLimit() / kAdviceShare / (keeps_passes_ ? 2 : 1),
                                 .advise = options_.nodes.advise_pages,
                                 .leases = features_.cache != nullptr,
                                 .sampled_bytes = SampledAheadBytes(MemoryLimit())});
  if (keeps) kept = passes;
  return SampledPasses::Rest(std::move(passes), pass);
}

std::unique_ptr<BatchStream> NodeTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  epoch_ = epoch;
  // Each rank has its own sample numbers, and so draws its own neighbours.
  const auto sample = [batches = batches_per_epoch(), ranks = options_.replicas, rank = rank()](int64_t pass,
                                                                                                int64_t batch) {
    return static_cast<uint64_t>((pass * batches + batch) * ranks + rank);
  };
  return Batches(Mode::kTrain,
                 {.order = epochs_,
                  .first_pass = epoch,
                  .first_batch = first_batch,
                  .passes = std::max<int64_t>(1, options_.epochs - epoch),
                  .sample = sample},
                 keeps_passes_);
}

std::unique_ptr<BatchStream> NodeTask::EvalBatches(data::Split split) {
  // All evaluations draw equal samples, so that epochs can be compared.
  const uint64_t streams = kEvalStreams + (static_cast<uint64_t>(split) << 40);
  // Any other split is evaluated only once or twice, so making its next batches ahead would gain nothing.
  const bool keeps = keeps_passes_ && split == data::Split::kValid;
  // Each rank takes consecutive batches, so that predictions gathered in rank order are in the order of the split.
  const std::span<const NodeId> ids = splits_[static_cast<size_t>(split)];
  const int64_t batches = (std::ssize(ids) + options_.batch_size - 1) / options_.batch_size;
  const int64_t first = batches * rank() / options_.replicas, end = batches * (rank() + 1) / options_.replicas;
  const auto place = [&](int64_t batch) {
    return static_cast<size_t>(std::min(batch * options_.batch_size, std::ssize(ids)));
  };
  return Batches(
      Mode::kEval,
      {.order = {ids.subspan(place(first), place(end) - place(first)),
                 {.batch_size = options_.batch_size, .shuffle = false}},
       .first_pass = keeps ? validations_++ : 0,
       .first_batch = 0,
       .passes = std::max<int64_t>(1, options_.epochs - epoch_),
       .sample = [streams, first](int64_t, int64_t batch) { return streams + static_cast<uint64_t>(first + batch); }},
      keeps);
}

std::optional<data::RowReading> NodeTask::Reading() {
  if (features_.cache == nullptr) return std::nullopt;
  row_caches_->Adapt(*features_.cache);
  return data::RowReading{.reader = features_.cache->reader(),
                          .counters = data::Since(features_before_, features_.cache->counters())};
}

absl::StatusOr<Evaluation> NodeTask::EvaluateTimedLinks(data::Split split, bool keep_predictions,
                                                        const std::function<bool()>& keep_going) {
  ModeParts& parts = part(Mode::kEval);
  const uint64_t streams = kEvalStreams + (static_cast<uint64_t>(split) << 40);
  data::SampledSubgraph subgraph;
  data::BlockBatch block;
  SampledBatch view(*parts.prober, parts.rungs, /*features=*/{}, form_);
  const auto score = [&](data::LinkBatch& pairs, uint64_t sample) -> absl::StatusOr<at::Tensor> {
    PF_RETURN_IF_ERROR(parts.prober->Sample(pairs.seeds, streams + sample, nullptr, subgraph, pairs.times));
    PF_ASSIGN_OR_RETURN(const BlockSizes sizes, parts.prober->SizesOf(subgraph));
    PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, form_.pads ? parts.rungs.Fit(sizes) : LeastPadded(sizes), block));
    view.Bind(block, &pairs);
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, view.PadTo(block.padded.shape(), 0));
    return Forward(device::CopyToDevice(*inputs, device_), Mode::kEval).prediction;
  };
  return links_->EvaluateSampled(score, split, keep_predictions, keep_going);
}

absl::StatusOr<at::Tensor> NodeTask::ForwardOfSample(std::span<const NodeId> seeds, uint64_t stream,
                                                     const nn::NodePairs& pairs) {
  ModeParts& parts = part(Mode::kEval);
  data::SampledSubgraph subgraph;
  data::BlockBatch host;
  PF_RETURN_IF_ERROR(parts.prober->Sample(seeds, stream, nullptr, subgraph));
  PF_ASSIGN_OR_RETURN(const BlockSizes sizes, parts.prober->SizesOf(subgraph));
  PF_RETURN_IF_ERROR(parts.prober->Gather(subgraph, LeastPadded(sizes), host));
  SampledBatch view(*parts.prober, parts.rungs, /*features=*/{}, {.pads = false, .flat = true});
  view.Bind(host, /*pairs=*/nullptr);
  PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, view.PadTo(host.padded.shape(), 0));
  nn::NodeBlock block = NodeBlockOf(device::CopyToDevice(*inputs, device_));
  if (pairs.sources.defined()) block.pairs = {pairs.sources.to(device_), pairs.targets.to(device_)};
  return made_.model->Forward(block, Mode::kEval);
}

absl::StatusOr<at::Tensor> NodeTask::PredictBySamples(const std::function<bool()>& keep_going) {
  const at::NoGradGuard no_grad;
  const auto nodes = static_cast<int64_t>(graph_->view().nodes);
  std::vector<NodeId> seeds;
  at::Tensor all;
  for (int64_t begin = 0; begin < nodes; begin += options_.batch_size) {
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    seeds.resize(static_cast<size_t>(std::min(options_.batch_size, nodes - begin)));
    std::iota(seeds.begin(), seeds.end(), static_cast<NodeId>(begin));
    // All evaluations draw equal samples.
    PF_ASSIGN_OR_RETURN(const at::Tensor rows,
                        ForwardOfSample(seeds, kEvalStreams + static_cast<uint64_t>(begin), /*pairs=*/{}));
    if (!all.defined()) all = at::empty({nodes, rows.size(1)}, rows.options());
    all.narrow(0, begin, rows.size(0)).copy_(rows);
  }
  return all;
}

absl::StatusOr<Evaluation> NodeTask::EvaluatePairsBySamples(data::Split split, bool keep_predictions,
                                                            const std::function<bool()>& keep_going) {
  uint64_t stream = kEvalStreams + (static_cast<uint64_t>(split) << 40);
  const auto score = [&](const nn::NodePairs& pairs) -> absl::StatusOr<at::Tensor> {
    const auto [ends, places] = at::_unique(at::stack({pairs.sources, pairs.targets}), /*sorted=*/true,
                                            /*return_inverse=*/true);
    const std::span<const int64_t> nodes(ends.const_data_ptr<int64_t>(), static_cast<size_t>(ends.numel()));
    return ForwardOfSample(std::vector<NodeId>(nodes.begin(), nodes.end()), stream++, {places[0], places[1]});
  };
  return links_->EvaluatePairs(score, split, keep_predictions, keep_going);
}

absl::StatusOr<std::optional<Evaluation>> NodeTask::EvaluateWhole(data::Split split, bool keep_predictions,
                                                                  const std::function<bool()>& keep_going) {
  if (links_ != nullptr && options_.nodes.is_temporal()) {
    return EvaluateTimedLinks(split, keep_predictions, keep_going);
  }
  if (!EvaluatesLayerWise(options_)) return std::nullopt;
  if (made_.scores_pairs) return EvaluatePairsBySamples(split, keep_predictions, keep_going);
  if (made_.layers == nullptr) {
    PF_ASSIGN_OR_RETURN(const at::Tensor all, PredictBySamples(keep_going));
    return links_->EvaluateRows(all, split, keep_predictions, keep_going);
  }
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  PF_ASSIGN_OR_RETURN(const at::Tensor all, PredictLayerWise(*graph_, *made_.layers,
                                                             {.num_layers = options_.model.num_layers,
                                                              .hidden_channels = options_.model.hidden_channels,
                                                              .edge_weights = ReadsWeights(),
                                                              .edges = EdgeInputsOf(options_.model, graph_->summary()),
                                                              .device = device_,
                                                              .group = group_},
                                                             keep_going));
  if (links_ != nullptr) return links_->EvaluateRows(all.to(device_), split, keep_predictions, keep_going);
  const std::vector<NodeId>& ids = splits_[static_cast<size_t>(split)];
  const at::Tensor rows = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
  const at::Tensor predictions = all.index_select(0, rows).contiguous();
  PF_ASSIGN_OR_RETURN(const at::Tensor labels, ReadLabels(*graph_, ids));
  at::Tensor weights;
  if (!options_.class_weights.empty()) weights = at::tensor(options_.class_weights, at::kFloat);
  const nn::LossTerms loss = nn::ComputeLoss(options_.loss, predictions, labels, weights);
  Evaluation result;
  const double count = loss.count.item<double>();
  result.has_labels = count > 0;
  result.loss = count > 0 ? loss.sum.item<double>() / count : std::numeric_limits<double>::quiet_NaN();
  result.predictions.assign(predictions.const_data_ptr<float>(),
                            predictions.const_data_ptr<float>() + predictions.numel());
  const std::span<const float> known(labels.const_data_ptr<float>(), static_cast<size_t>(labels.numel()));
  for (const spec::Metric metric : MetricsOf(options_)) {
    result.metrics.push_back(nn::ComputeMetric(metric, options_.loss, result.predictions, known, num_outputs_));
  }
  if (keep_predictions) {
    result.ids = ids;
  } else {
    result.predictions = std::vector<float>();
  }
  return result;
}

}  // namespace permafrost::train
