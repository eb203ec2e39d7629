#include "train/tasks/graph_set_task.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/models/model.h"
#include "train/planning/batch_schedule.h"
#include "train/tasks/job_data.h"
#include "train/tasks/program_trials.h"
#include "train/tasks/step_inputs.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

// The number of batches that are made ready ahead of the step.
constexpr int64_t kPrefetchDepth = 3, kEvalPrefetchDepth = 2;

// The most nodes of a small probe, from which a step is recorded without a layout of its storage.
constexpr int64_t kSmallProbe = 96;
// A rung's executable is verified on a batch with one in kRungPart of the graphs that would fill the rung.
constexpr size_t kRungPart = 8;

// Returns another label that is valid for the loss, if there is one. A missing label stays missing.
float OtherLabel(spec::Loss loss, int64_t outputs, float label) {
  switch (spec::TraitsOf(loss).labels) {
    case spec::LabelKind::kBinary:
      return 1 - label;
    case spec::LabelKind::kClass:
      return label + 1 < static_cast<float>(outputs) ? label + 1 : 0;
    case spec::LabelKind::kValues:
      break;
  }
  return 2 * label + 1;
}

// Replaces the batch's values by other valid ones. Every category becomes the first one, and every edge begins at the
// first node.
void MakeOther(spec::Loss loss, int64_t outputs, data::PaddedBatch& batch) {
  for (AlignedVector<int64_t>* categories : {&batch.node_ints, &batch.edge_ints}) std::ranges::fill(*categories, 0);
  for (AlignedVector<float>* values : {&batch.node_floats, &batch.edge_floats, &batch.positions})
    for (float& value : *values) value = 2 * value + 1;
  for (float& label : batch.labels) label = OtherLabel(loss, outputs, label);
  std::fill_n(batch.edge_source.begin(), batch.real.edges, 0);
}

// Returns a score for how much of a step a graph exercises.
int RankOf(const BatchShape& graph) { return graph.edges > 0 ? 2 : graph.nodes > 0 ? 1 : 0; }
// The score that a loss adds. It exceeds the scores of edges and nodes, because a step without a loss computes no
// gradient.
constexpr int kLossRank = 3;

bool HaveLabels(const data::Batcher& batcher, Mode mode) {
  const auto has = [&](uint32_t graph) { return batcher.HasLabel(graph); };
  return std::ranges::any_of(SplitsOf(mode),
                             [&](data::Split split) { return std::ranges::any_of(batcher.split(split), has); });
}

// Streams consecutive batches of one epoch.
class GraphSetStream final : public BatchStream {
 public:
  // Streams the batches [first, last) of the epoch.
  GraphSetStream(const data::Batcher& batcher, bool pads, data::EpochOrder epochs, int64_t epoch, int64_t first,
                 int64_t last, int64_t depth)
      : epochs_(std::move(epochs)),
        order_(epochs_.Of(epoch)),
        view_(batcher, nullptr, pads),
        next_(first),
        prefetcher_(last - first, depth, [this, &batcher, first](int64_t index, data::PaddedBatch& out) {
          const auto graphs = epochs_.Batch(order_, first + index);
          PF_RETURN_IF_ERROR(batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), out));
          if (!out.node_keys.empty() && !order_.places.empty()) {
            const data::EpochOrder::WholeBatch whole = epochs_.Whole(order_, first + index);
            batcher.SetKeys(whole.graphs, whole.places, out);
          }
          return absl::OkStatus();
        }) {}

  absl::StatusOr<HostBatch*> Next() override {
    PF_ASSIGN_OR_RETURN(data::PaddedBatch * host, prefetcher_.Next());
    if (host == nullptr) return nullptr;
    view_.Bind(*host, epochs_.Size(order_, next_++));
    return &view_;
  }

 private:
  const data::EpochOrder epochs_;
  const data::EpochBatches order_;
  GraphSetHostBatch view_;
  int64_t next_;
  data::Prefetcher<data::PaddedBatch> prefetcher_;
};

}  // namespace

absl::StatusOr<int64_t> CountSelfLoops(const data::GraphSet& set) {
  PF_ASSIGN_OR_RETURN(const auto sources, set.edge_source());
  PF_ASSIGN_OR_RETURN(const auto targets, set.edge_target());
  int64_t count = 0;
  for (size_t edge = 0; edge < sources.size(); ++edge) count += sources[edge] == targets[edge] ? 1 : 0;
  PF_RETURN_IF_ERROR(set.CheckIntact());
  return count;
}

absl::Status GraphSetHostBatch::Pad(const BatchShape& shape) {
  if (shape == host_->padded) return absl::OkStatus();
  if (!pads_ && shape != least_padded()) {
    return absl::InternalError(
        absl::StrCat("a batch whose step knows its sizes by the shape was to be padded to ", ToString(shape)));
  }
  return batcher_->Pad(shape, *host_);
}

graphcache::StepInputs GraphSetHostBatch::Inputs(const int64_t& step) const {
  return MakeInputs(*host_, batcher_->summary(), step);
}

std::span<const float> GraphSetHostBatch::labels() const {
  const auto rows = static_cast<size_t>(host_->real.graphs * batcher_->summary().num_targets);
  return std::span(host_->labels).first(rows);
}

absl::StatusOr<std::unique_ptr<GraphSetTask>> GraphSetTask::Create(const spec::TrainOptions& options,
                                                                   std::shared_ptr<const data::GraphSet> set,
                                                                   c10::Device device,
                                                                   const std::function<bool()>& keep_going,
                                                                   const PlanContext& context) {
  PF_ASSIGN_OR_RETURN(const nn::GraphModelOptions model, GraphModelFor(options, set->summary(), "spec."));
  std::string reading = TellNodeInputs(options.model, set->summary());
  // The plan comes before features and weights are made, since it shows whether they fit in memory. Shapes do not
  // depend on features, so this plan equals the one that was made when the job was submitted.
  PF_ASSIGN_OR_RETURN(const data::GraphExtents extents, data::GraphExtents::Create(set));
  PF_ASSIGN_OR_RETURN(const int64_t self_loops, spec::IsProgram(options) ? CountSelfLoops(*set) : 0);
  PF_ASSIGN_OR_RETURN(JobPadding padding, PaddingOf(options, model, self_loops, context.limits, "spec."));
  PF_ASSIGN_OR_RETURN(graphcache::ShapeSchedule plan,
                      PlanJob(options, model, extents, context, "spec.", keep_going, padding.pads));
  PF_ASSIGN_OR_RETURN(set, WithNodeInputs(options.model.node_inputs, std::move(set)));
  if (spec::TraitsOf(options.loss).labels == spec::LabelKind::kBinary) PF_RETURN_IF_ERROR(CheckBinary(*set, "spec."));
  PF_ASSIGN_OR_RETURN(JobFusion fusion, FusionOf(options, model, self_loops, device, "spec."));
  // With our own models, keys of rows give the ranks the dropout masks that a single rank would draw. A program's
  // rows have no keys, so each rank draws its own random numbers.
  const bool keys = !spec::IsProgram(options) && options.model.dropout > 0 && options.replicas > 1;
  PF_ASSIGN_OR_RETURN(MadeModel made,
                      MakeModel(spec::IsProgram(options) ? OfRank(options, context.rank()) : options, model, self_loops,
                                device, "spec.", {.padding = padding.norms, .fused = fusion.fused}));
  PF_ASSIGN_OR_RETURN(auto batcher,
                      data::Batcher::Create(std::move(set), {.positions = made.reads_positions, .keys = keys}));
  std::unique_ptr<GraphSetTask> task(
      new GraphSetTask(options, context.rank(), model, std::move(batcher), std::move(made.model), padding.pads));
  if (device.is_cpu()) {
    // The operators of our own models compute a row for each node.
    double values = static_cast<double>(plan.train_ceiling.nodes * options.model.hidden_channels);
    if (spec::IsProgram(options)) {
      PF_ASSIGN_OR_RETURN(const StepCost cost, CostOfStep(options, model, plan.train_ceiling, "spec."));
      values = cost.operator_values;
    }
    task->torch_threads_ = ThreadsFor(values);
  }
  task->plan_ = std::move(plan);
  for (std::string& note : std::vector{std::move(made.note), std::move(padding.note), std::move(fusion.note)}) {
    if (!note.empty()) task->notes_.push_back(std::move(note));
  }
  task->reading_ = std::move(reading);
  return task;
}

GraphSetTask::GraphSetTask(const spec::TrainOptions& options, int64_t rank, const nn::GraphModelOptions& model,
                           std::unique_ptr<data::Batcher> batcher, std::unique_ptr<nn::GraphModel> made, bool pads)
    : num_epochs_(options.epochs),
      loss_(options.loss),
      num_outputs_(model.num_targets),
      pads_(pads),
      batcher_(std::move(batcher)),
      order_options_{.batch_size = options.batch_size,
                     .seed = options.seed,
                     .rank = rank,
                     .world_size = options.replicas,
                     .batching = options.batching},
      typical_batch_(GraphsPerBatch(options, sizes())),
      epochs_(TrainingOrder(batcher_->extents(), order_options_)),
      has_labels_{HaveLabels(*batcher_, Mode::kTrain), HaveLabels(*batcher_, Mode::kEval)},
      model_(std::move(made)),
      probe_views_{GraphSetHostBatch(*batcher_, probes_.data(), pads_),
                   GraphSetHostBatch(*batcher_, probes_.data() + 1, pads_)} {}

absl::StatusOr<NamedRows> GraphSetTask::NameRows(data::Split /*split*/, std::span<const uint32_t> ids) const {
  NamedRows rows{.columns = {"graph"}, .names = {}, .values = PredictionColumns(num_outputs_)};
  // Classes get the names that they have in the source.
  const std::vector<int64_t>& classes = batcher_->summary().class_values;
  if (spec::TraitsOf(loss_).labels == spec::LabelKind::kClass && std::ssize(classes) == num_outputs_) {
    for (size_t c = 0; c < classes.size(); ++c) rows.values[c] = absl::StrCat("prediction_", classes[c]);
  }
  for (const uint32_t id : ids) rows.names.push_back(std::to_string(id));
  return rows;
}

Task::Output GraphSetTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::GraphSetBatch batch = BatchOf(inputs);
  at::Tensor prediction = model_->Forward(batch, mode);
  return {std::move(prediction), batch.labels, model_->TakeLoss()};
}

graphcache::GraphSizes GraphSetTask::sizes() const { return SizesOf(batcher_->summary()); }

spec::BatchingOptions GraphSetTask::TypicalBudget() const {
  const data::SizeStatistics& train = batcher_->summary().splits[static_cast<size_t>(data::Split::kTrain)];
  const auto budget = [this](double mean, int64_t largest) {
    return std::clamp(static_cast<int64_t>(std::ceil(mean * static_cast<double>(typical_batch_))),
                      std::max<int64_t>(largest, 1), spec::kMaxBudget);
  };
  return {.kind = spec::BatchingKind::kBudget,
          .max_nodes = budget(train.mean_nodes, train.max_nodes),
          .max_edges = budget(train.mean_edges, train.max_edges)};
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> GraphSetTask::Schedules(
    const std::function<bool()>& keep_going) {
  const data::EpochOrder valid =
      EvaluationOrder(batcher_->extents(), data::Split::kValid, order_options_.batch_size, order_options_.batching);
  PF_ASSIGN_OR_RETURN(const graphcache::PlannedSchedule validation,
                      WalkBatches(batcher_->extents(), valid, /*epochs=*/1, kWholeWalk, keep_going));
  std::vector<graphcache::PlannedSchedule> schedules;
  const auto add = [&](const spec::BatchingOptions& batching, const data::EpochOrder& order) -> absl::Status {
    PF_ASSIGN_OR_RETURN(graphcache::PlannedSchedule schedule,
                        WalkBatches(batcher_->extents(), order, num_epochs_, LimitsOf(batching.kind), keep_going));
    schedule.batching = spec::kBatchingNames.Name(batching.kind);
    schedule.max_nodes = batching.max_nodes;
    schedule.max_edges = batching.max_edges;
    schedule.eval_rungs = plan_.eval_rungs;
    schedule.eval_schedule = plan_.eval_schedule;
    schedule.eval_shapes = std::ssize(plan_.eval_schedule);
    schedule.valid_shapes = std::ssize(validation.train);
    schedules.push_back(std::move(schedule));
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(add(order_options_.batching, epochs_));
  schedules.front().ceiling = plan_.train_ceiling;
  // A schedule that is too long to be walked is too long with every kind of batching.
  if (schedules.front().cut) return schedules;
  for (const spec::BatchingOptions& other :
       {spec::BatchingOptions{}, spec::BatchingOptions{.kind = spec::BatchingKind::kBalanced}, TypicalBudget()}) {
    if (other.kind == order_options_.batching.kind) continue;
    data::EpochOrderOptions options = order_options_;
    options.batching = other;
    // With a budget, the batch size is the default for such jobs.
    options.batch_size = other.kind == spec::BatchingKind::kBudget ? spec::kMaxBatchSize : typical_batch_;
    PF_RETURN_IF_ERROR(add(other, TrainingOrder(batcher_->extents(), options)));
    if (schedules.back().cut) {
      schedules.pop_back();
    } else {
      schedules.back().ceiling = graphcache::Ceiling(graphcache::CountsOf(schedules.back()));
    }
  }
  return schedules;
}

bool GraphSetTask::HasLoss(Mode mode, uint32_t graph) const {
  return !has_labels_[static_cast<size_t>(mode)] || batcher_->HasLabel(graph);
}

std::vector<uint32_t> GraphSetTask::GraphsThatFill(Mode mode, const BatchShape& shape) const {
  std::vector<uint32_t> graphs;
  BatchShape room{shape.nodes - 1, shape.edges, shape.graphs - 1};
  const auto take = [&](uint32_t graph) {
    const BatchShape size = batcher_->ShapeOf({&graph, 1});
    if (room.graphs == 0 || !room.Holds(size)) return false;
    graphs.push_back(graph);
    room = {room.nodes - size.nodes, room.edges - size.edges, room.graphs - size.graphs};
    return true;
  };
  const auto fill = [&](std::optional<uint32_t> taken) {
    for (const data::Split split : SplitsOf(mode)) {
      for (const uint32_t graph : batcher_->split(split)) {
        if (room.graphs == 0) return;
        if (graph != taken) take(graph);
      }
    }
  };
  const auto has_loss = [&](uint32_t graph) { return HasLoss(mode, graph); };
  const BatchShape all = room;
  fill(std::nullopt);
  if (std::ranges::any_of(graphs, has_loss)) return graphs;
  // With these graphs the step would have no loss, so its gradients would not be verified. So takes the first graph
  // that has a label, and fills the shape with others.
  for (const data::Split split : SplitsOf(mode)) {
    for (const uint32_t graph : batcher_->split(split)) {
      if (!has_loss(graph) || !all.Holds(batcher_->ShapeOf({&graph, 1}))) continue;
      graphs.clear();
      room = all;
      take(graph);
      fill(graph);
      return graphs;
    }
  }
  return graphs;
}

std::vector<uint32_t> GraphSetTask::OtherGraph(Mode mode, const BatchShape& shape,
                                               const std::vector<uint32_t>& first) const {
  std::vector<uint32_t> best = first;
  int best_rank = -1;
  for (const data::Split split : SplitsOf(mode)) {
    for (const uint32_t graph : batcher_->split(split)) {
      const BatchShape size = batcher_->ShapeOf({&graph, 1});
      const bool fits = shape.Holds(data::Batcher::LeastPadded(size));
      const int rank = RankOf(size) + (HasLoss(mode, graph) ? kLossRank : 0);
      if (!fits || rank <= best_rank || (first.size() == 1 && first[0] == graph)) continue;
      best = {graph};
      best_rank = rank;
      if (best_rank == RankOf({1, 1, 1}) + kLossRank) return best;
    }
  }
  return best;
}

bool GraphSetTask::HoldsAGraph(Mode mode, const BatchShape& shape) const {
  const auto fits = [&](uint32_t graph) {
    return shape.Holds(data::Batcher::LeastPadded(batcher_->ShapeOf({&graph, 1})));
  };
  return std::ranges::any_of(SplitsOf(mode),
                             [&](data::Split split) { return std::ranges::any_of(batcher_->split(split), fits); });
}

absl::Status GraphSetTask::AssembleOne(Mode mode, const BatchShape& shape, data::PaddedBatch& out, size_t part) const {
  std::vector<uint32_t> first = GraphsThatFill(mode, shape);
  if (first.empty()) {
    return absl::InternalError(
        absl::StrCat("no graph of the ", AbslView(kModeNames.Name(mode)), " splits fits the shape ", ToString(shape)));
  }
  if (part == 1) return batcher_->Assemble(first, shape, out);
  // Takes graphs from all parts of `first`.
  std::vector<uint32_t> some;
  for (size_t i = 0; i < first.size(); i += part) some.push_back(first[i]);
  const auto include = [&](const std::function<bool(uint32_t)>& is) {
    if (std::ranges::any_of(some, is)) return;
    if (const auto found = std::ranges::find_if(first, is); found != first.end()) some.push_back(*found);
  };
  include([&](uint32_t graph) { return HasLoss(mode, graph); });
  include([&](uint32_t graph) { return RankOf(batcher_->ShapeOf({&graph, 1})) == RankOf({1, 1, 1}); });
  return batcher_->Assemble(some, shape, out);
}

absl::Status GraphSetTask::AssembleOther(Mode mode, const BatchShape& shape, data::PaddedBatch& out) const {
  const std::vector<uint32_t> first = GraphsThatFill(mode, shape), second = OtherGraph(mode, shape, first);
  PF_RETURN_IF_ERROR(batcher_->Assemble(second, shape, out));
  if (second == first) MakeOther(loss_, num_outputs(), out);
  return absl::OkStatus();
}

absl::StatusOr<HostBatch*> GraphSetTask::ExactProbe(Mode mode, size_t probe, const BatchShape& shape) {
  std::vector<uint32_t> graphs;
  for (const data::Split split : SplitsOf(mode)) {
    const auto of_split = batcher_->split(split);
    graphs.insert(graphs.end(), of_split.begin(), of_split.end());
  }
  data::PaddedBatch& batch = probes_[probe % probes_.size()];
  PF_RETURN_IF_ERROR(batcher_->Compose(graphs, shape, probe, batch));
  return &probe_views_[probe % probes_.size()];
}

absl::StatusOr<std::array<HostBatch*, 2>> GraphSetTask::Probes(Mode mode, const BatchShape& shape) {
  if (!pads_) {
    PF_ASSIGN_OR_RETURN(HostBatch * first, ExactProbe(mode, 0, shape));
    PF_ASSIGN_OR_RETURN(HostBatch * second, ExactProbe(mode, 1, shape));
    return std::array<HostBatch*, 2>{first, second};
  }
  PF_RETURN_IF_ERROR(AssembleOne(mode, shape, probes_[0]));
  PF_RETURN_IF_ERROR(AssembleOther(mode, shape, probes_[1]));
  return std::array<HostBatch*, 2>{&probe_views_[0], &probe_views_[1]};
}

BatchShape GraphSetTask::CeilingOf(Mode mode) const {
  if (mode == Mode::kTrain) return plan_.train_ceiling;
  graphcache::ShapeCounter rungs;
  for (const BatchShape& rung : plan_.eval_rungs) rungs.Add(rung);
  return graphcache::Ceiling(rungs.Counts());
}

absl::StatusOr<HostBatch*> GraphSetTask::ProbeBelow(Mode mode, size_t probe, const BatchShape& ceiling) {
  auto shapes = ProbeShapes(ceiling, /*below=*/true);
  if (!std::ranges::all_of(shapes, [&](const BatchShape& shape) { return HoldsAGraph(mode, shape); })) {
    shapes = ProbeShapes(ceiling, /*below=*/false);
  }
  PF_RETURN_IF_ERROR(probe % 2 == 0 ? AssembleOne(mode, shapes[probe], probes_[0])
                                    : AssembleOther(mode, shapes[probe], probes_[0]));
  return &probe_views_[0];
}

absl::StatusOr<HostBatch*> GraphSetTask::DynamicProbe(Mode mode, size_t probe) {
  if (!pads_) return ExactProbe(mode, probe, ProbeShapes(CeilingOf(mode), /*below=*/true)[probe]);
  return ProbeBelow(mode, probe, CeilingOf(mode));
}

absl::StatusOr<HostBatch*> GraphSetTask::SmallProbe(Mode mode, size_t probe) {
  const BatchShape all = CeilingOf(mode);
  if (!pads_) return DynamicProbe(mode, probe);
  const BatchShape few{std::min(all.nodes, kSmallProbe), std::min(all.edges, 2 * kSmallProbe), all.graphs};
  return ProbeBelow(mode, probe, HoldsAGraph(mode, few) ? few : all);
}

absl::StatusOr<HostBatch*> GraphSetTask::RungProbe(Mode mode, const BatchShape& shape) {
  if (!pads_) return ExactProbe(mode, 0, shape);
  // A step takes longer with more real rows, so only the largest rung is filled. Each smaller rung is verified with a
  // part of the graphs, which is enough to check its shape.
  PF_RETURN_IF_ERROR(AssembleOne(mode, shape, probes_[0], shape == CeilingOf(mode) ? 1 : kRungPart));
  return &probe_views_[0];
}

std::unique_ptr<BatchStream> GraphSetTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  return std::make_unique<GraphSetStream>(*batcher_, pads_, epochs_, epoch, first_batch, batches_per_epoch(),
                                          kPrefetchDepth);
}

std::unique_ptr<BatchStream> GraphSetTask::EvalBatches(data::Split split) {
  data::EpochOrder order =
      EvaluationOrder(batcher_->extents(), split, order_options_.batch_size, order_options_.batching);
  // Each rank takes consecutive batches, so that predictions gathered in rank order are in the order of the split.
  const int64_t batches = order.batches_per_epoch();
  const auto before = [&](int64_t rank) { return batches * rank / order_options_.world_size; };
  return std::make_unique<GraphSetStream>(*batcher_, pads_, std::move(order), /*epoch=*/0, before(order_options_.rank),
                                          before(order_options_.rank + 1), kEvalPrefetchDepth);
}

}  // namespace permafrost::train
