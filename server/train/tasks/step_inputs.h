// Converts a prepared batch of small graphs, or a block of a large graph, to the list of tensors that is a step's
// input, and back.
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

// Gives each row of a padded block a key: its place among the block's real rows, or -1 for padding. Dropout draws its
// masks by these keys, so padding does not shift the masks.
// Threads: one at a time.
class RowKeys {
 public:
  // Returns the keys, [padded rows]. They are valid until the next call with other sizes.
  const AlignedVector<int64_t>& For(const data::BlockSizes& real, const data::BlockSizes& padded);

 private:
  data::BlockSizes real_, padded_;
  AlignedVector<int64_t> keys_;
};

// A block as programs read it: edges have targets instead of CSR offsets, and sparse features are made dense.
// Threads: one at a time.
class FlatBlock {
 public:
  // Converts `host`. References that the getters returned before become invalid.
  void Set(const data::BlockBatch& host, int64_t feature_columns);
  const AlignedVector<int64_t>& edge_targets() const { return edge_targets_; }  // [padded edges], rising
  const AlignedVector<float>& features() const { return features_; }  // empty if the features of `host` are not sparse
  int64_t width() const { return width_; }

 private:
  AlignedVector<int64_t> edge_targets_;
  AlignedVector<float> features_;
  int64_t width_ = 0;
};

// Makes the inputs of a step from a block. The tensors share the memory of `host`, `keys`, `flat` and `step` (the
// number of optimizer steps done), which must outlive them. If the batch holds row numbers instead of features,
// `features` is the table that they refer to. `flat` is set for a program, and must have been made from `host`.
graphcache::StepInputs MakeInputs(const data::BlockBatch& host, const AlignedVector<int64_t>& keys, int64_t targets,
                                  const int64_t& step, const FeatureTable& features = {},
                                  const FlatBlock* flat = nullptr);

// Returns `step` as an input that shares its memory.
at::Tensor StepView(const int64_t& step);

// Returns the tensors of a block as the inputs of a step.
graphcache::StepInputs MakeInputs(const nn::NodeBlock& block);

// Marks the inputs of a whole graph that stay on the device. These are all inputs but labels, step and pairs, because
// every batch has the same tensors for them.
void MarkResident(graphcache::StepInputs& inputs);

// Adds the pairs of a batch. The labels of the pairs, [pairs, 1], replace the labels of the seeds. The batch must
// outlive the inputs.
void SetPairs(const data::LinkBatch& batch, graphcache::StepInputs& inputs);

// Returns these inputs as a block for a model. If the inputs hold row numbers instead of features, gathers the
// features on the device.
nn::NodeBlock NodeBlockOf(const graphcache::StepInputs& inputs);

// Makes the inputs of a step from a batch of small graphs. The tensors share the memory of `host` and of `step` (the
// number of optimizer steps done), which must outlive them.
graphcache::StepInputs MakeInputs(const data::PaddedBatch& host, const data::GraphSetSummary& summary,
                                  const int64_t& step);

// Returns the part of these inputs that a graph-level model reads.
nn::GraphSetBatch BatchOf(const graphcache::StepInputs& inputs);

}  // namespace permafrost::train
