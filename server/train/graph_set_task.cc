#include "train/graph_set_task.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/shape_schedule.h"
#include "train/step_inputs.h"

namespace permafrost::train {
namespace {

// Batches made ready ahead of the step.
constexpr int64_t kPrefetchDepth = 3, kEvalPrefetchDepth = 2;

// Where only one graph fits: the same edges with other values, all of them valid.
void MakeOther(data::PaddedBatch& batch) {
  for (AlignedVector<int64_t>* categories : {&batch.node_ints, &batch.edge_ints}) std::ranges::fill(*categories, 0);
  for (AlignedVector<float>* values : {&batch.node_floats, &batch.edge_floats, &batch.labels})
    for (float& value : *values) value = 2 * value + 1;
}

// Other labels would have a loss without a lower bound, and classes that are none.
absl::Status CheckBinary(const data::GraphSet& set) {
  PF_ASSIGN_OR_RETURN(const auto labels, set.labels());
  const auto other = std::ranges::find_if(labels, [](float l) { return !std::isnan(l) && l != 0 && l != 1; });
  if (other == labels.end()) return absl::OkStatus();
  Violations violations;
  violations.Add("spec.loss", absl::StrCat("bce takes labels 0 and 1, and graph ",
                                           (other - labels.begin()) / set.summary().num_targets, " has ", *other));
  return violations.ToStatus();
}

// Batches first.. of an order of graphs.
class SmallGraphsStream final : public BatchStream {
 public:
  SmallGraphsStream(const data::Batcher& batcher, c10::Device device, data::ShapeSampler sampler, int64_t epoch,
                    int64_t first, int64_t depth)
      : sampler_(std::move(sampler)),
        order_(sampler_.EpochOrder(epoch)),
        view_(batcher, device),
        prefetcher_(sampler_.batches_per_epoch() - first, depth,
                    [this, &batcher, first](int64_t index, data::PaddedBatch& out) {
                      const auto graphs = sampler_.Batch(order_, first + index);
                      return batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), out);
                    }) {}

  absl::StatusOr<HostBatch*> Next() override {
    PF_ASSIGN_OR_RETURN(data::PaddedBatch * host, prefetcher_.Next());
    if (host == nullptr) return nullptr;
    view_.Show(*host);
    return &view_;
  }

 private:
  const data::ShapeSampler sampler_;
  const std::vector<uint32_t> order_;
  SmallGraphsBatch view_;
  data::Prefetcher<data::PaddedBatch> prefetcher_;
};

}  // namespace

absl::Status SmallGraphsBatch::Pad(const BatchShape& shape) { return batcher_->Pad(shape, *host_); }

graphcache::StepInputs SmallGraphsBatch::Inputs(const int64_t& step, c10::Device device) const {
  return MakeInputs(*host_, batcher_->summary(), step, device);
}

std::span<const float> SmallGraphsBatch::labels() const {
  const auto rows = static_cast<size_t>(host_->real.graphs * batcher_->summary().num_targets);
  return std::span(host_->labels).first(rows);
}

absl::StatusOr<std::unique_ptr<GraphSetTask>> GraphSetTask::Create(const TrainOptions& options,
                                                                   std::shared_ptr<const data::GraphSet> set,
                                                                   c10::Device device) {
  PF_ASSIGN_OR_RETURN(const nn::GineOptions model, ModelFor(options, set->summary(), "spec."));
  if (options.loss == nn::Loss::kBce) PF_RETURN_IF_ERROR(CheckBinary(*set));
  PF_ASSIGN_OR_RETURN(auto batcher, data::Batcher::Create(std::move(set)));
  return std::unique_ptr<GraphSetTask>(new GraphSetTask(options, model, std::move(batcher), device));
}

GraphSetTask::GraphSetTask(const TrainOptions& options, const nn::GineOptions& model,
                           std::unique_ptr<data::Batcher> batcher, c10::Device device)
    : batch_size_(options.batch_size),
      device_(device),
      batcher_(std::move(batcher)),
      sampler_(batcher_->split(data::Split::kTrain), {.batch_size = options.batch_size, .seed = options.seed}),
      model_(model, options.seed, device),
      plan_(PlanShapes(*batcher_, {.epochs = options.epochs, .batch_size = options.batch_size, .seed = options.seed})),
      probe_views_{SmallGraphsBatch(*batcher_, device, probes_.data()),
                   SmallGraphsBatch(*batcher_, device, probes_.data() + 1)} {}

Task::Output GraphSetTask::Forward(const graphcache::StepInputs& inputs, Mode mode) {
  const nn::GraphSetBatch batch = BatchOf(inputs);
  return {model_.Forward(batch, mode), batch.labels};
}

graphcache::GraphSizes GraphSetTask::sizes() const {
  const data::SizeStatistics& train = batcher_->summary().splits[static_cast<size_t>(data::Split::kTrain)];
  return {.graphs = train.graphs, .std_nodes = train.std_nodes, .std_edges = train.std_edges};
}

std::vector<uint32_t> GraphSetTask::ProbeGraphs(Mode mode, const BatchShape& shape, int which) const {
  std::vector<uint32_t> graphs;
  BatchShape room{shape.nodes - 1, shape.edges, shape.graphs - 1};
  for (const data::Split split : SplitsOf(mode)) {
    for (const uint32_t graph : batcher_->split(split)) {
      const BatchShape size = batcher_->ShapeOf({&graph, 1});
      if (!room.Holds(size)) continue;
      if (which == 0) {
        graphs.push_back(graph);
        room = {room.nodes - size.nodes, room.edges - size.edges, room.graphs - size.graphs};
        if (room.graphs == 0) return graphs;
      } else {
        // The second that fits alone, else the first.
        const bool second = !graphs.empty();
        graphs.assign(1, graph);
        if (second) return graphs;
      }
    }
  }
  return graphs;
}

absl::StatusOr<std::array<HostBatch*, 2>> GraphSetTask::Probes(Mode mode, const BatchShape& shape) {
  for (size_t i = 0; i < probes_.size(); ++i) {
    const std::vector<uint32_t> graphs = ProbeGraphs(mode, shape, static_cast<int>(i));
    if (graphs.empty()) {
      return absl::InternalError(absl::StrCat("no graph of the ", AbslView(kModeNames.Name(mode)),
                                              " splits fits the shape ", ToString(shape)));
    }
    PF_RETURN_IF_ERROR(batcher_->Assemble(graphs, shape, probes_[i]));
    if (i > 0 && probes_[i].graph_ids == probes_[0].graph_ids) MakeOther(probes_[i]);
  }
  return std::array<HostBatch*, 2>{&probe_views_[0], &probe_views_[1]};
}

std::unique_ptr<BatchStream> GraphSetTask::TrainBatches(int64_t epoch, int64_t first_batch) {
  return std::make_unique<SmallGraphsStream>(*batcher_, device_, sampler_, epoch, first_batch, kPrefetchDepth);
}

std::unique_ptr<BatchStream> GraphSetTask::EvalBatches(data::Split split) {
  return std::make_unique<SmallGraphsStream>(
      *batcher_, device_, data::ShapeSampler(batcher_->split(split), {.batch_size = batch_size_, .shuffle = false}),
      /*epoch=*/0, /*first=*/0, kEvalPrefetchDepth);
}

}  // namespace permafrost::train
