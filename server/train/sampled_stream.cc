#include "train/sampled_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::train {

using data::BlockSizes;

BatchShape SampledBatch::real() const {
  BatchShape shape = host_->real_shape();
  if (pairs_ != nullptr) shape.graphs = static_cast<int64_t>(pairs_->links);
  return shape;
}

BatchShape SampledBatch::least_padded() const { return rungs_->Fit(host_->real).shape(); }

BlockSizes SampledBatch::dynamic_sizes() const {
  return AtLeastDynamic(LeastPadded(host_->real), HasSparseFeatures(batcher_->graph().summary()));
}

absl::Status SampledBatch::PadToSizes(const BlockSizes& sizes) {
  return sizes == host_->padded ? absl::OkStatus() : batcher_->Pad(sizes, *host_);
}

absl::Status SampledBatch::Pad(const BatchShape& shape) {
  if (const BlockSizes* rung = rungs_->Find(shape)) return PadToSizes(*rung);
  return absl::InvalidArgumentError(absl::StrCat("a block cannot be padded to ", ToString(shape, kCountedSeeds),
                                                 ", which is none of the job's sizes"));
}

graphcache::StepInputs SampledBatch::Inputs(const int64_t& step) const {
  const data::GraphSummary& graph = batcher_->graph().summary();
  graphcache::StepInputs inputs =
      MakeInputs(*host_, keys_.For(host_->real, host_->padded), graph.num_targets, step, features_);
  if (pairs_ != nullptr) SetPairs(*pairs_, inputs);
  return inputs;
}

std::span<const uint32_t> SampledBatch::ids() const {
  return std::span(host_->nodes).first(static_cast<size_t>(host_->real_seeds));
}

std::span<const float> SampledBatch::labels() const {
  return std::span(host_->labels)
      .first(static_cast<size_t>(host_->real_seeds * batcher_->graph().summary().num_targets));
}

}  // namespace permafrost::train
