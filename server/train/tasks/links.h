// The parts of a job that predicts links, apart from its node model: the links, the graph without held-out links, the
// decoder, and the evaluation. Threads: the device thread, except that MakeBatch is thread-safe.
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
  // Reads all edges of `graph`. Errors: those of data::SplitLinks; InvalidArgument if no link is left to train on, or
  // if a split by time leaves none to validate or to test on.
  static absl::StatusOr<std::unique_ptr<Links>> Create(const spec::TrainOptions& options,
                                                       const std::shared_ptr<const data::Graph>& graph,
                                                       const std::function<bool()>& keep_going);

  // Returns the graph that a model may see, without the held-out links. Degrees as node features
  // (spec::NodeInputs::kDegree) count only the edges of this graph.
  const std::shared_ptr<const data::Graph>& messages() const { return messages_; }
  int64_t size(data::Split split) const { return std::ssize(links(split)); }
  // Returns one id per link of the train split: 0, 1, 2, ...
  std::vector<uint32_t> train_ids() const;
  // Returns how many pairs every training batch has, padding and negatives included. With fan_outs, min(batch_size,
  // links of the train split) links are divided among the ranks, and a batch has room for the largest share. Without
  // fan_outs, a batch has all links of the train split.
  int64_t pairs() const { return pairs_; }
  // Makes a batch of the train links `ids` and their negatives. Equal arguments make equal batches. Errors: DataLoss.
  absl::Status MakeBatch(std::span<const uint32_t> ids, int64_t epoch, data::LinkBatch& out) const {
    return batcher_->Make(ids, epoch, pairs_, out);
  }

  // Makes a batch of all train links and their negatives in `epoch`. The batch gives each end of a pair as a node id,
  // not as an index of a seed.
  absl::Status MakeWholeBatch(int64_t epoch, data::LinkBatch& out) const {
    return batcher_->MakeOfNodes(train_ids(), epoch, pairs_, out);
  }

  // Returns how many links of a split are never ranked. The source of such a link has an edge to every other node, so
  // the link has no negatives.
  int64_t unranked(data::Split split) const;
  // Returns notes for the user about the links and their negatives, one line each.
  std::vector<std::string> notes() const;

  // Adds the decoder's parameters to those of `model`. Call it once.
  void AddDecoder(nn::NodeModel& model, uint64_t seed, c10::Device device);
  // Returns the description of a model, with the decoder's name added.
  std::string Describe(const nn::NodeModel& model) const;
  // Returns the logits of the pairs, [pairs, 1]. `rows` is what the model returns for the seeds of a block, [seeds,
  // channels].
  at::Tensor Predict(const at::Tensor& rows, const nn::NodePairs& pairs) const { return (*decoder_)(rows, pairs); }

  // Scores a split's links and their negatives. The loss uses as many negatives per link as in training. A link has
  // two predictions: its score, and its rank among its negatives. If a link is not ranked, its rank is NaN, and no
  // metric counts the link. `rows` are the model's outputs for all nodes, [nodes, channels] on the device.
  // Errors: DataLoss; Cancelled if `keep_going`, called now and then, returns false.
  absl::StatusOr<Evaluation> EvaluateRows(const at::Tensor& rows, data::Split split, bool keep_predictions,
                                          const std::function<bool()>& keep_going) const;
  // Returns the logits [pairs, 1] of pairs of node ids, which lie on the host. Each call gets the same number of
  // pairs. The pairs have at most as many distinct ends as a training batch has seeds.
  using ScoreOfNodes = std::function<absl::StatusOr<at::Tensor>(const nn::NodePairs& pairs)>;
  // Same as EvaluateRows, but `score` scores the pairs.
  absl::StatusOr<Evaluation> EvaluatePairs(const ScoreOfNodes& score, data::Split split, bool keep_predictions,
                                           const std::function<bool()>& keep_going) const;
  // Returns the logits [pairs, 1] of a batch, in which an end of a pair is the index of a seed. `sample` is the
  // number of the batch in its split, from 0.
  using Score = std::function<absl::StatusOr<at::Tensor>(data::LinkBatch& pairs, uint64_t sample)>;
  // Same as EvaluateRows, but for links with times. `score` scores each batch of pairs, on a block that is sampled
  // around their ends.
  absl::StatusOr<Evaluation> EvaluateSampled(const Score& score, data::Split split, bool keep_predictions,
                                             const std::function<bool()>& keep_going) const;
  // Makes a batch of a split's links [begin, begin + eval_links()), with the negatives of evaluation. If the split
  // has fewer links from `begin` on, the batch is padded to as many pairs as a full batch.
  absl::Status MakeEvalBatch(data::Split split, int64_t begin, data::LinkBatch& out) const;
  // Returns how many links EvaluateSampled scores at once, so that a batch has about as many seeds as in training.
  int64_t eval_links() const;
  // Returns source and target of these links of a split, and for temporal jobs the time of each. Errors: DataLoss.
  absl::StatusOr<NamedRows> NameRows(data::Split split, std::span<const uint32_t> ids) const;

 private:
  Links(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph, data::LinkSplit split,
        std::vector<uint32_t> non_neighbors);
  const std::vector<data::Link>& links(data::Split split) const { return links_[static_cast<size_t>(split)]; }
  // The scores of all links of a split, and the scores of all negatives in the order of their links. If `each` is
  // above 0, each ranked link has `each` negatives of its own, and any other link has none. If `each` is 0, all links
  // share the same negatives.
  struct Scored {
    std::vector<float> links, negatives;
    int64_t each = 0;
  };
  Evaluation Judge(const Scored& scored, data::Split split, bool keep_predictions) const;
  // Returns how many nodes can be the target of a negative of this link: those to which its source has no edge.
  uint32_t TargetsOf(const data::Link& link) const { return (*non_neighbors_)[link.source]; }
  bool IsRanked(data::Split split, const data::Link& link) const {
    return !given_negatives(split).empty() || TargetsOf(link) > 0;
  }
  // Returns the negatives of a split that the dataset contains; empty if negatives are drawn.
  const data::Column<data::NodeId>& given_negatives(data::Split split) const {
    return given_.negatives[static_cast<size_t>(split)];
  }
  // Returns how many negatives each link of a split has, or 0 if all links share them.
  int64_t NegativesOfEach(data::Split split) const;

  // Calls add(source, target) for each negative of a split, in order. Errors: DataLoss; Cancelled; those of `add`.
  template <class Add>
  absl::Status ForEachNegative(data::Split split, const std::function<bool()>& keep_going, const Add& add) const;
  absl::StatusOr<Evaluation> Evaluate(const ScoreOfNodes& score, int64_t most_at_once, data::Split split,
                                      bool keep_predictions, const std::function<bool()>& keep_going) const;
  // Returns the larger of two numbers of pairs: those that an evaluation of the validation split scores, and those
  // that one of the test split scores.
  int64_t most_pairs() const;

  const spec::TrainOptions options_;
  const std::shared_ptr<const data::Graph> graph_;
  const std::shared_ptr<const data::Graph> messages_;
  const std::array<std::vector<data::Link>, 3> links_;
  const std::array<std::vector<int64_t>, 3> times_;                   // by Split; empty unless the job is temporal
  const data::GivenLinks given_;                                      // empty if links are drawn
  const std::shared_ptr<const std::vector<uint32_t>> non_neighbors_;  // data::CountNonNeighbors of the graph
  const int64_t pairs_;
  std::unique_ptr<data::LinkBatcher> batcher_;  // makes batches of the train split
  std::unique_ptr<nn::LinkDecoder> decoder_;
};

// Returns how many seeds a training batch of `links` links has at most, in a graph of `nodes` nodes.
int64_t MostSeeds(const spec::TrainOptions& options, int64_t links, int64_t nodes);

// Estimates how many links a split has. If the dataset gives the split's links, returns their number. If links are
// drawn, returns the number of all links for the train split, and the split's fraction of it for any other split.
double LinkCountOf(const spec::TrainOptions& options, const data::GraphSummary& graph, data::Split split);

// The bytes that a job on links takes in addition to those of a job on nodes. `host` counts the links and the
// remaining edges. `result` counts what an evaluation keeps, such as the model's output for every node.
struct LinkMemory {
  double host = 0, result = 0;
};
// `in_channels` is the number of inputs of the model's first layer. `channels` is the width of the rows from which
// links are scored.
LinkMemory LinkMemoryOf(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                        int64_t channels);

}  // namespace permafrost::train
