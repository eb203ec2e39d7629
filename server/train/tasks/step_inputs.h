// Converts a prepared batch of small graphs, or a block of a large graph, to the inputs of a step, and back. Both
// directions use one order of tensors.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/buffer.h"
#include "data/batching/batch.h"
#include "data/batching/block_batch.h"
#include "data/batching/pair_batch.h"
#include "device/step_program.h"
#include "nn/models/model.h"
#include "train/tasks/feature_table.h"

namespace permafrost::train {

// The place of each row of a padded block among the block's real rows. Dropout draws its masks by these keys, so that
// padding does not shift them.
// Threads: one at a time.
class RowKeys {
 public:
  // [padded rows], valid until the next call with other sizes.
  const AlignedVector<int64_t>& For(const data::BlockSizes& real, const data::BlockSizes& padded);

 private:
  data::BlockSizes real_, padded_;
  AlignedVector<int64_t> keys_;
};

// A block without CSR, as programs read it: edges have targets, and sparse features are made dense.
// Threads: one at a time.
class FlatBlock {
 public:
  // Fills this from `host`; what the getters returned before becomes invalid.
  void Set(const data::BlockBatch& host, int64_t feature_columns);
  const AlignedVector<int64_t>& edge_targets() const { return edge_targets_; }  // [padded edges], rising
  const AlignedVector<float>& features() const { return features_; }            // empty where they are dense already
  int64_t width() const { return width_; }

 private:
  AlignedVector<int64_t> edge_targets_;
  AlignedVector<float> features_;
  int64_t width_ = 0;
};

// The tensors share the memory of `host`, `keys` and `step` (optimizer steps done), which must outlive them. features:
// of all nodes, if the batch says which rows it has of them. flat: of the same host, for a program; it must outlive
// them, too.
graphcache::StepInputs MakeInputs(const data::BlockBatch& host, const AlignedVector<int64_t>& keys, int64_t targets,
                                  const int64_t& step, const FeatureTable& features = {},
                                  const FlatBlock* flat = nullptr);

// Returns `step` as an input that shares its memory.
at::Tensor StepView(const int64_t& step);

// The inputs that a block makes up.
graphcache::StepInputs MakeInputs(const nn::NodeBlock& block);

// Says of the inputs of a whole graph, which lies on the device, that all but labels, step and pairs are the same
// tensors in every batch.
void MarkResident(graphcache::StepInputs& inputs);

// Puts the pairs of a batch, which outlives the inputs, in the place of the labels of its seeds: inputs' labels are
// [pairs, 1] from there on.
void SetPairs(const data::LinkBatch& batch, graphcache::StepInputs& inputs);

// The block that such inputs make up, as a model takes it; gathers its features if the device is to.
nn::NodeBlock NodeBlockOf(const graphcache::StepInputs& inputs);

// The tensors share the memory of the host batch and of `step` (optimizer steps done), which must outlive them.
graphcache::StepInputs MakeInputs(const data::PaddedBatch& host, const data::GraphSetSummary& summary,
                                  const int64_t& step);

// Returns the part of such inputs that a model takes.
nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs);

}  // namespace permafrost::train
