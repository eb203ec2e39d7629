// Small artificial batches on which programs are tried (program_trials.h).
// Threads: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/step.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"

namespace permafrost::train {

// Returns the columns of features or labels.
int64_t Columns(const nn::EncoderInput& features);

// Returns a batch of this shape, padding included: a ring of nodes with features of 0.
nn::GraphSetBatch MakeBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels,
                            const BatchShape& shape);
nn::NodeBlock MakeBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                        const BatchShape& shape);

// The values that lie in padding.
enum class Filling { kZeros, kOther };
inline constexpr int64_t kRealSeed = 1, kOtherSeed = 1'000;

// Returns rows of values that differ, from 0 up to 1, or of categories.
at::Tensor Varied(const nn::EncoderInput& features, int64_t rows, int64_t seed);

// No size equals another, or a sum of two: the rows of a batch norm tell what they are.
inline constexpr BatchShape kTrial{.nodes = 9, .edges = 21, .graphs = 4};
inline constexpr int64_t kTrialPairs = 19, kLargestTrialGraph = 3;
// Padding of a trial: as many rows as a small batch gets on a large rung. In a set one padding graph has all nodes of
// padding; edges of padding join the last node to itself.
inline constexpr int64_t kManyRows = 2'000;
inline constexpr BatchShape kLeastTrial{.nodes = kTrial.nodes + 1, .edges = kTrial.edges, .graphs = kTrial.graphs + 1};

// Returns the trial's batch, padded to `shape`.
nn::GraphSetBatch TrialBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels,
                             const BatchShape& shape, Filling filling);

// Padding of a block: rows after the seeds, rows after the other nodes, and edges.
struct BlockPadding {
  int64_t seeds = 0, nodes = 1, edges = 0;
};
// Returns the trial's block with this padding.
nn::NodeBlock TrialBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                         const BlockPadding& padding, Filling filling);

}  // namespace permafrost::train
