#include "train/tasks/node2vec_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/batching/prefetcher.h"
#include "graphcache/shape_plan.h"
#include "nn/metrics.h"
#include "nn/ops/lowering.h"
#include "nn/tensor_set.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

using data::NodeId;

constexpr int64_t kWalkPrefetchDepth = 3;
// The first random streams of evaluation and of probes. The streams of training batches count from 0, so these begin
// far above.
constexpr uint64_t kEvalWalkStreams = uint64_t{1} << 62, kProbeWalkStreams = kEvalWalkStreams + (uint64_t{1} << 61);
// This constant is combined with the job's seed to give the seed of walks. So walks and the order of an epoch share
// no random draws.
constexpr uint64_t kWalkSeed = 0x77616c6b73;
// The number of arrays with an entry for each node: one for all nodes, one for their order, one in each of three
// batchers, and the splits.
constexpr double kArraysOfNodes = 7;
constexpr int64_t kMostEvaluatedSeeds = 1024, kMostEvaluatedPairs = 1 << 20;

// Indices into StepInputs::tensors.
enum WalkPlace : size_t { kWalkNodes, kWalkSeeds, kWalkRows, kWalkOffsets, kWalkPlaces, kNumWalkPlaces };

nn::WalkLayout LayoutOf(const spec::Node2VecOptions& o) {
  return {.context = o.context_size, .per_seed = o.walks_per_node, .negatives = o.num_negative_samples};
}

data::WalkBatchOptions BatchesOf(const spec::TrainOptions& options, int64_t per_seed) {
  const spec::Node2VecOptions& o = options.node2vec;
  return {.length = o.walk_length,
          .p = o.p,
          .q = o.q,
          .per_seed = per_seed,
          .negatives = o.num_negative_samples,
          .seed = options.seed ^ kWalkSeed};
}

// Returns the number of pairs of one walk.
int64_t PairsOf(const spec::Node2VecOptions& o) { return (o.walk_length - o.context_size + 1) * (o.context_size - 1); }

at::Tensor WalkView(const AlignedVector<int64_t>& values) {
  // from_blob takes a mutable pointer; the step only reads its inputs, and a capture checks that.
  return at::from_blob(const_cast<int64_t*>(values.data()), {std::ssize(values)}, at::kLong);
}

RunMemory MemoryOfWalks(const spec::TrainOptions& options, const data::GraphSummary& graph,
                        const MemoryLimits& limits) {
  const int64_t nodes = graph.nodes;
  const data::WalkBatchOptions batches = BatchesOf(options, options.node2vec.walks_per_node);
  const int64_t room = std::min(options.batch_size, nodes);
  const double width = static_cast<double>(options.model.hidden_channels), rows = static_cast<double>(nodes);
  const double entries = static_cast<double>(room) * static_cast<double>(LayoutOf(options.node2vec).all()) *
                         static_cast<double>(batches.length);
  RunMemory memory;
  AddCopies(options.optimizer, memory);
  memory.cost.parameters = rows * width;
  memory.cost.activations = entries * width;
  if (limits.device || options.model.lowering != spec::Lowering::kAuto) {
    // The number of values for each pair in a step: its score, and the values that are computed from it.
    constexpr double kPairCopies = 8;
    memory.cost.activations += kPairCopies * entries * static_cast<double>(batches.length);
  }
  // Memory holds the batches made ready, the one in the step, and two of a capture. Each batcher holds the place of
  // each node.
  const double batch = sizeof(int64_t) * 2 * (entries + std::min(entries, rows)) + sizeof(NodeId) * entries;
  memory.input_bytes = batch;
  // All batches are of one shape.
  if (limits.graphs) memory.executables = graphcache::MostExecutables(options.graph_cache, 2);
  memory.batch_bytes = (kWalkPrefetchDepth + 3) * batch + kArraysOfNodes * sizeof(uint32_t) * rows;
  // At least one seed is evaluated, even if its pairs exceed the limit of scores.
  constexpr double kScoreCopies = 6;
  const int64_t pairs = PairsOf(options.node2vec) * (1 + options.node2vec.num_negative_samples);
  memory.result_bytes = kScoreCopies * sizeof(float) * static_cast<double>(std::max(kMostEvaluatedPairs, pairs));
  // An evaluation of the test split holds two copies of its embeddings.
  memory.result_bytes += 2 * sizeof(float) * width * static_cast<double>(graph.split_nodes[2]);
  if (limits.device) memory.result_bytes += sizeof(float) * rows * width;  // a copy of the table from the device
  return memory;
}

// Streams the batches of an epoch from `first` on. Borrows the order.
class WalkStream final : public BatchStream {
 public:
  WalkStream(data::WalkBatcher& batcher, const WalkHostBatch& view, const data::EpochOrder& epochs, int64_t epoch,
             int64_t first, int64_t room)
      : epochs_(epochs),
        order_(epochs_.Of(epoch)),
        next_(first),
        view_(view),
        prefetcher_(epochs_.batches_per_epoch() - first, kWalkPrefetchDepth,
                    [this, &batcher, epoch, first, room](int64_t index, data::WalkBatch& out) {
                      const int64_t batch = first + index;
                      return batcher.Make(epochs_.Batch(order_, batch), room,
                                          static_cast<uint64_t>(epoch * epochs_.batches_per_epoch() + batch), out);
                    }) {}

  absl::StatusOr<HostBatch*> Next() override {
    PF_ASSIGN_OR_RETURN(const data::WalkBatch* host, prefetcher_.Next());
    if (host == nullptr) return nullptr;
    view_.Bind(*host, epochs_.Batch(order_, next_++));
    return &view_;
  }

 private:
  const data::EpochOrder& epochs_;
  const data::EpochBatches order_;
  int64_t next_;
  WalkHostBatch view_;
  data::Prefetcher<data::WalkBatch> prefetcher_;
};

}  // namespace

absl::Status CheckNode2Vec(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                           const MemoryLimits& limits, std::string_view prefix) {
  Violations violations;
  const auto* graph = std::get_if<data::GraphSummary>(&summary);
  if (graph == nullptr) {
    violations.Add(
        absl::StrCat(AbslView(prefix), "model.architecture"),
        absl::StrCat("node2vec learns from the walks of one large graph, and the dataset is a set of graphs; "
                     "use ",
                     ModelsOf(spec::ModelLevel::kGraph, " or ")));
    return violations.ToStatus();
  }
  if (graph->edges == 0) {
    violations.Add(absl::StrCat(AbslView(prefix), "dataset"), "it has no edges, which walks go along");
    return violations.ToStatus();
  }
  CheckFits(MemoryOfWalks(options, *graph, limits), limits, "the walks of a batch beside a row for each node", prefix,
            violations);
  return violations.ToStatus();
}

absl::Status CheckWalkable(const data::Graph& graph, std::string_view prefix) {
  if (graph.view().out.present()) return absl::OkStatus();
  Violations violations;
  violations.Add(
      absl::StrCat(AbslView(prefix), "dataset"),
      "it was imported without out-edges, which walks go along; accepted: one imported without no_out_edges");
  return violations.ToStatus();
}

at::Tensor AddEmbedding(const spec::TrainOptions& options, int64_t nodes, c10::Device device, nn::TensorSet& tensors) {
  return nn::WeightMaker(options.seed, device, tensors)
      .Normal("embedding.weight", {nodes, options.model.hidden_channels});
}

BatchShape WalkHostBatch::ShapeOf(int64_t seeds) const {
  const int64_t walks = seeds * layout_.all();
  return {walks * length_, walks * (length_ - layout_.context + 1) * (layout_.context - 1), seeds};
}

absl::Status WalkHostBatch::Pad(const BatchShape& shape) {
  if (shape == padded()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a batch of walks of ", ToString(padded(), kCountedSeeds),
                                                 " is never padded, to ", ToString(shape, kCountedSeeds),
                                                 " or any other"));
}

graphcache::StepInputs WalkHostBatch::Inputs(const int64_t& /*step*/) const {
  graphcache::StepInputs inputs;
  auto& t = inputs.tensors;
  t.resize(kNumWalkPlaces);
  t[kWalkNodes] = WalkView(host_->walks).view({-1, length_});
  t[kWalkSeeds] = at::from_blob(const_cast<int64_t*>(&host_->seeds), {1}, at::kLong);
  t[kWalkRows] = WalkView(host_->rows);
  t[kWalkOffsets] = WalkView(host_->offsets);
  t[kWalkPlaces] = WalkView(host_->places);
  return inputs;
}

absl::StatusOr<std::unique_ptr<Node2VecTask>> Node2VecTask::Create(const spec::TrainOptions& options,
                                                                   const std::shared_ptr<const data::Graph>& graph,
                                                                   c10::Device device, int threads) {
  PF_RETURN_IF_ERROR(CheckNode2Vec(options, graph->summary(), kNoLimits, "spec."));
  PF_RETURN_IF_ERROR(CheckWalkable(*graph, "spec."));
  PF_ASSIGN_OR_RETURN(auto splits, ReadSplits(*graph));
  std::unique_ptr<Node2VecTask> task(new Node2VecTask(options, graph, std::move(splits), device));
  const data::WalkBatchOptions batches = BatchesOf(options, options.node2vec.walks_per_node);
  PF_ASSIGN_OR_RETURN(task->batcher_, data::WalkBatcher::Create(graph, batches, threads));
  PF_ASSIGN_OR_RETURN(task->prober_, data::WalkBatcher::Create(graph, batches, threads));
  PF_ASSIGN_OR_RETURN(task->evaluator_, data::WalkBatcher::Create(graph, BatchesOf(options, 1), threads));
  return task;
}

Node2VecTask::Node2VecTask(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph,
                           std::array<std::vector<NodeId>, 3> splits, c10::Device device)
    : options_(options),
      graph_(std::move(graph)),
      splits_(std::move(splits)),
      device_(device),
      layout_(LayoutOf(options.node2vec)),
      nodes_([this] {
        std::vector<uint32_t> all(graph_->view().nodes);
        std::iota(all.begin(), all.end(), 0U);
        return all;
      }()),
      epochs_(nodes_, {.batch_size = options.batch_size, .seed = options.seed}),
      table_(AddEmbedding(options, std::ssize(nodes_), device, tensors_)) {
  for (size_t i = 0; i < probes_.size(); ++i) {
    probe_views_.emplace_back(layout_, options_.node2vec.walk_length);
  }
  plan_.train_ceiling = probe_views_.front().ShapeOf(room());
  plan_.train_rungs = {plan_.train_ceiling};
  plan_.train_shapes = 1;
}

int64_t Node2VecTask::room() const { return std::min(options_.batch_size, std::ssize(nodes_)); }

absl::StatusOr<NamedRows> Node2VecTask::NameRows(data::Split /*split*/, std::span<const uint32_t> ids) const {
  PF_ASSIGN_OR_RETURN(NamedRows rows, NameNodes(*graph_, ids, /*outputs=*/0));
  for (int64_t c = 0; c < num_outputs(); ++c) rows.values.push_back(absl::StrCat("embedding_", c));
  return rows;
}

std::string Node2VecTask::Describe() const {
  const spec::Node2VecOptions& o = options_.node2vec;
  return nlohmann::json{{"architecture", spec::kArchitectureNames.Name(options_.model.architecture)},
                        {"level", spec::kModelLevelNames.Name(spec::ModelLevel::kNode)},
                        {"hidden_channels", options_.model.hidden_channels},
                        {"embedded_nodes", nodes_.size()},
                        {"walk_length", o.walk_length},
                        {"context_size", o.context_size},
                        {"walks_per_node", o.walks_per_node},
                        {"p", o.p},
                        {"q", o.q},
                        {"num_negative_samples", o.num_negative_samples}}
      .dump();
}

Task::Output Node2VecTask::Forward(const graphcache::StepInputs& inputs, Mode /*mode*/) {
  const at::Tensor first = inputs.tensors.at(kWalkNodes).select(1, 0).narrow(0, 0, room() * layout_.per_seed);
  return {nn::SelectRows(table_, first.view({room(), layout_.per_seed}).select(1, 0)), {}};
}

std::optional<Task::RowStep> Node2VecTask::StepRows(const graphcache::StepInputs& inputs) {
  const auto& t = inputs.tensors;
  nn::SkipGramStep step = nn::SkipGram(table_, t.at(kWalkNodes), t.at(kWalkSeeds), layout_);
  return RowStep{.terms = std::move(step.terms),
                 .gradient = {.rows = t.at(kWalkRows),
                              .offsets = t.at(kWalkOffsets),
                              .places = t.at(kWalkPlaces),
                              .parts = std::move(step.parts),
                              .nodes = t.at(kWalkNodes).view({-1})}};
}

absl::StatusOr<std::vector<graphcache::PlannedSchedule>> Node2VecTask::Schedules(
    const std::function<bool()>& /*keep_going*/) {
  const BatchShape& shape = plan_.train_ceiling;
  const auto over_epochs = [this](int64_t of_one) {
    int64_t product = 0;
    const bool fits = !__builtin_mul_overflow(options_.epochs, of_one, &product);
    return fits ? product : std::numeric_limits<int64_t>::max();
  };
  const int64_t batches = over_epochs(batches_per_epoch());
  const int64_t real = over_epochs(graphcache::Rows(probe_views_.front().ShapeOf(std::ssize(nodes_))));
  const int64_t rows = over_epochs(batches_per_epoch() * graphcache::Rows(shape));
  return std::vector<graphcache::PlannedSchedule>{
      {.batching = "walks",
       .train = {{.shape = shape, .batches = batches, .real_rows = real, .dynamic_rows = rows}},
       .first_epoch_shapes = 1,
       .epochs = options_.epochs,
       .ceiling = shape,
       .eval_rungs = {},
       .eval_shapes = 0}};
}

absl::StatusOr<std::array<HostBatch*, 2>> Node2VecTask::Probes(Mode /*mode*/, const BatchShape& /*shape*/) {
  for (size_t i = 0; i < probes_.size(); ++i) {
    // The second probe has fewer seeds, so that a capture does not treat the number of seeds as a constant.
    const auto seeds = std::span(nodes_).first(static_cast<size_t>(i == 0 ? room() : (room() + 1) / 2));
    PF_RETURN_IF_ERROR(prober_->Make(seeds, room(), kProbeWalkStreams + i, probes_[i]));
    probe_views_[i].Bind(probes_[i], seeds);
  }
  return std::array<HostBatch*, 2>{probe_views_.data(), probe_views_.data() + 1};
}

absl::StatusOr<HostBatch*> Node2VecTask::DynamicProbe(Mode /*mode*/, size_t /*probe*/) {
  return absl::UnimplementedError(NoDynamicReason());
}

int64_t Node2VecTask::size(data::Split split) const {
  return split == data::Split::kTrain ? std::ssize(nodes_) : std::ssize(splits_[static_cast<size_t>(split)]);
}

std::unique_ptr<BatchStream> Node2VecTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  return std::make_unique<WalkStream>(*batcher_, WalkHostBatch(layout_, options_.node2vec.walk_length), epochs_, epoch,
                                      first_batch, room());
}

std::unique_ptr<BatchStream> Node2VecTask::EvalBatches(data::Split /*split*/) {
  // No batches are needed, because EvaluateWhole evaluates every split.
  return nullptr;
}

std::vector<NodeId> Node2VecTask::EvaluatedSeeds(data::Split split) const {
  const std::vector<NodeId>& of_split = splits_[static_cast<size_t>(split)];
  const std::vector<NodeId>& from = of_split.empty() ? nodes_ : of_split;
  const int64_t pairs = PairsOf(options_.node2vec) * (1 + layout_.negatives);
  const auto count = static_cast<size_t>(
      std::clamp<int64_t>(kMostEvaluatedPairs / pairs, 1, std::min<int64_t>(kMostEvaluatedSeeds, std::ssize(from))));
  std::vector<NodeId> seeds;
  for (size_t i = 0; i < count; ++i) seeds.push_back(from[i * from.size() / count]);
  return seeds;
}

absl::StatusOr<std::optional<Evaluation>> Node2VecTask::EvaluateWhole(data::Split split, bool keep_predictions,
                                                                      const std::function<bool()>& keep_going) {
  if (!keep_going()) return absl::CancelledError("evaluation stopped");
  const at::NoGradGuard no_grad;
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  const std::vector<NodeId> seeds = EvaluatedSeeds(split);
  data::WalkBatch batch;
  PF_RETURN_IF_ERROR(
      evaluator_->Make(seeds, std::ssize(seeds), kEvalWalkStreams + static_cast<uint64_t>(split), batch));
  PF_RETURN_IF_ERROR(graph_->CheckIntact());
  const at::Tensor walks = WalkView(batch.walks).to(device_).view({-1, options_.node2vec.walk_length});
  const at::Tensor scores = nn::WalkScores(table_, walks, layout_.context).to(at::kCPU).contiguous();
  const at::Tensor linked = scores.narrow(0, 0, batch.seeds), random = scores.slice(0, batch.seeds);
  Evaluation result;
  result.has_labels = true;
  result.loss = nn::MeanWalkLoss(linked, /*negative=*/false) + nn::MeanWalkLoss(random, /*negative=*/true);
  const auto values = [](const at::Tensor& t) {
    return std::span(t.const_data_ptr<float>(), static_cast<size_t>(t.numel()));
  };
  for (const spec::Metric metric : MetricsOf(options_)) {
    result.metrics.push_back(
        nn::ComputeLinkMetric(metric, {.links = values(linked), .negatives = values(random), .share = true}));
  }
  if (!keep_predictions) return result;
  result.ids = splits_[static_cast<size_t>(split)];
  const at::Tensor ids = at::tensor(std::vector<int64_t>(result.ids.begin(), result.ids.end()), at::kLong);
  // The rows are selected on the host. On the device, this would compile a further graph, although the cache is
  // sealed.
  const at::Tensor rows = table_.to(at::kCPU).index_select(0, ids);
  result.predictions.assign(rows.const_data_ptr<float>(), rows.const_data_ptr<float>() + rows.numel());
  return result;
}

}  // namespace permafrost::train
