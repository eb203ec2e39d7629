// The parts of a job that predicts links, beside its model of nodes: the links, the graph without those held out, the
// decoder, and the evaluation. Threads: the device thread, but for MakeBatch, which is safe anywhere.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batching/pair_batch.h"
#include "data/store/other_splits.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "spec/train_options.h"
#include "train/tasks/task.h"

namespace permafrost::train {

class Links {
 public:
  // Reads all edges of `graph`. Errors: as data::SplitLinks; InvalidArgument where no link is left to train on.
  static absl::StatusOr<std::unique_ptr<Links>> Create(const spec::TrainOptions& options,
                                                       const std::shared_ptr<const data::Graph>& graph,
                                                       const std::function<bool()>& keep_going);

  // The graph that a model may see. Degrees as features of nodes (spec::NodeInputs::kDegree) count its edges alone.
  const std::shared_ptr<const data::Graph>& messages() const { return messages_; }
  int64_t size(data::Split split) const { return std::ssize(links(split)); }
  // 0, 1, ...: a number for each link of the train split.
  std::vector<uint32_t> train_ids() const;
  // Returns the pairs in every batch, padding included. With fan_outs a batch has a rank's largest share of
  // `batch_size` links, or of all links of the train split if it has fewer; without, it has all of them.
  int64_t pairs() const { return pairs_; }
  // The batch of these links of the train split. Equal arguments make equal batches. Errors: DataLoss.
  absl::Status MakeBatch(std::span<const uint32_t> ids, int64_t epoch, data::LinkBatch& out) const {
    return batcher_->Make(ids, epoch, pairs_, out);
  }

  // All links of the train split with the negatives of an epoch, their ends being nodes.
  absl::Status MakeWholeBatch(int64_t epoch, data::LinkBatch& out) const {
    return batcher_->MakeOfNodes(train_ids(), epoch, pairs_, out);
  }

  // Links of a split that no evaluation ranks: their source has an edge to every other node, and so no negative.
  int64_t unranked(data::Split split) const;
  // Returns notes for the user about the links and their negatives, a line each.
  std::vector<std::string> notes() const;

  // Once: adds the decoder's parameters to those of `model`.
  void AddDecoder(nn::NodeModel& model, uint64_t seed, c10::Device device);
  // A model's description with the decoder's name.
  std::string Describe(const nn::NodeModel& model) const;
  // rows: what the model gives for the seeds of a block, [seeds, channels]. Returns [pairs, 1] logits.
  at::Tensor Predict(const at::Tensor& rows, const nn::NodePairs& pairs) const { return (*decoder_)(rows, pairs); }

  // Scores a split's links and their negatives. The loss takes as many negatives a link as training does. Predictions:
  // for each link its score and its rank among its negatives, NaN if it is not ranked; such links count in no metric.
  // `keep_going` is asked now and then; false ends with Cancelled. Errors: DataLoss.
  // rows: the model's for all nodes, [nodes, channels] on the device.
  absl::StatusOr<Evaluation> EvaluateRows(const at::Tensor& rows, data::Split split, bool keep_predictions,
                                          const std::function<bool()>& keep_going) const;
  // score: returns the [pairs, 1] logits for pairs of node ids, which lie on the host. Each call has the same number of
  // pairs, whose ends are no more than the seeds of a training batch.
  using ScoreOfNodes = std::function<absl::StatusOr<at::Tensor>(const nn::NodePairs& pairs)>;
  absl::StatusOr<Evaluation> EvaluatePairs(const ScoreOfNodes& score, data::Split split, bool keep_predictions,
                                           const std::function<bool()>& keep_going) const;
  // Does the same for links with times, whose ends are scored by blocks of their own: `score` gives the [pairs, 1]
  // logits of kEvalPairs pairs with seeds, and the sample's number among those of the split.
  using Score = std::function<absl::StatusOr<at::Tensor>(data::LinkBatch& pairs, uint64_t sample)>;
  absl::StatusOr<Evaluation> EvaluateSampled(const Score& score, data::Split split, bool keep_predictions,
                                             const std::function<bool()>& keep_going) const;
  // The pairs of the links begin..end-1 of a split, with the negatives of evaluation. It has as many links as
  // eval_links().
  absl::Status MakeEvalBatch(data::Split split, int64_t begin, data::LinkBatch& out) const;
  // The number of links that EvaluateSampled scores at once: about as many seeds as a training batch has.
  int64_t eval_links() const;
  // Returns source and target of a split's links, and for temporal jobs the time of each. Errors: DataLoss.
  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const;

 private:
  Links(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph, data::LinkSplit split,
        std::vector<uint32_t> non_neighbors);
  const std::vector<data::Link>& links(data::Split split) const { return links_[static_cast<size_t>(split)]; }
  // Pairs of a split, scored: first all links, then all negatives, of each link `each` after another; 0: shared by all.
  // Links that are not ranked have none.
  struct Scored {
    std::vector<float> links, negatives;
    int64_t each = 0;
  };
  Evaluation Judge(const Scored& scored, data::Split split, bool keep_predictions) const;
  // Counts the nodes that negatives of the link's source may end in.
  uint32_t TargetsOf(const data::Link& link) const { return (*non_neighbors_)[link.source]; }
  bool IsRanked(data::Split split, const data::Link& link) const {
    return !given_negatives(split).empty() || TargetsOf(link) > 0;
  }
  // Negatives of a split as the dataset gives them; empty: they are drawn.
  const data::Column<data::NodeId>& given_negatives(data::Split split) const {
    return given_.negatives[static_cast<size_t>(split)];
  }
  // Negatives of each link of a split; 0: all links share them.
  int64_t NegativesOfEach(data::Split split) const;

  // Calls add(source, target) for each negative of a split in their order. Errors: DataLoss, Cancelled.
  template <class Add>
  absl::Status ForEachNegative(data::Split split, const std::function<bool()>& keep_going, const Add& add) const;
  absl::StatusOr<Evaluation> Evaluate(const ScoreOfNodes& score, int64_t most_at_once, data::Split split,
                                      bool keep_predictions, const std::function<bool()>& keep_going) const;
  // The most pairs that an evaluation of either split has.
  int64_t most_pairs() const;

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;
  const std::shared_ptr<const data::Graph> messages_;
  const std::array<std::vector<data::Link>, 3> links_;
  const std::array<std::vector<int64_t>, 3> times_;                   // of temporal jobs, else empty
  const data::GivenLinks given_;                                      // none where links are drawn
  const std::shared_ptr<const std::vector<uint32_t>> non_neighbors_;  // data::CountNonNeighbors of the graph
  const int64_t pairs_;
  std::unique_ptr<data::LinkBatcher> batcher_;  // of the train split
  std::unique_ptr<nn::LinkDecoder> decoder_;
};

// Seeds that a training batch of so many links has at most, in a graph of so many nodes.
int64_t MostSeeds(const spec::TrainOptions& options, int64_t links, int64_t nodes);

// Links of a split, about: those that the dataset gives, or of drawn ones that part of all; `train`: all.
double LinkCountOf(const spec::TrainOptions& options, const data::GraphSummary& graph, data::Split split);

// Bytes beyond those of a job on nodes: the links and the edges left, and for an evaluation every node's row.
struct LinkMemory {
  double host = 0, result = 0;
};
// in_channels: of the model's first layer; channels: of the rows between which links are scored.
LinkMemory LinkMemoryOf(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                        int64_t channels);

}  // namespace permafrost::train
