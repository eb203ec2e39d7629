#include "train/tasks/links.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nn/loss.h"
#include "nn/metrics.h"
#include "nn/ops/lowering.h"
#include "train/loop/artifacts.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

// The most pairs that EvaluateRows scores at once.
constexpr int64_t kEvalPairs = 1 << 16;
// Returns the key by which evaluation draws the negatives of a link.
constexpr uint64_t EvalKey(data::Split split, uint64_t link) {
  return (uint64_t{1} + static_cast<uint64_t>(split)) << 60 | link;
}

// Scores pairs in order, several at once. Each call of the model scores the same number of pairs, since any other
// number would be a new shape for the device.
class PairScorer {
 public:
  PairScorer(const Links::ScoreOfNodes& score, int64_t most)
      : score_(score), sources_(at::zeros({most}, at::kLong)), targets_(at::zeros({most}, at::kLong)) {}

  bool full() const { return count_ == sources_.size(0); }
  void Add(data::NodeId source, data::NodeId target) {
    sources_.mutable_data_ptr<int64_t>()[count_] = source;
    targets_.mutable_data_ptr<int64_t>()[count_] = target;
    ++count_;
  }
  // Appends the scores of the pairs that were added since the last call.
  absl::Status Score(std::vector<float>& scores) {
    if (count_ == 0) return absl::OkStatus();
    // If there are fewer pairs, some are repeated as padding, as in training.
    for (const at::Tensor& ends : {sources_, targets_}) {
      auto* const rows = ends.mutable_data_ptr<int64_t>();
      for (int64_t i = count_; i < ends.size(0); ++i) rows[i] = rows[i % count_];
    }
    PF_ASSIGN_OR_RETURN(const at::Tensor logits, score_({.sources = sources_, .targets = targets_}));
    const at::Tensor made = logits.to(at::kCPU).contiguous();
    scores.insert(scores.end(), made.const_data_ptr<float>(), made.const_data_ptr<float>() + count_);
    count_ = 0;
    return absl::OkStatus();
  }

 private:
  const Links::ScoreOfNodes& score_;
  at::Tensor sources_, targets_;
  int64_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Links>> Links::Create(const spec::TrainOptions& options,
                                                     const std::shared_ptr<const data::Graph>& graph,
                                                     const std::function<bool()>& keep_going) {
  const bool edge_features = EdgeInputsOf(options.model, graph->summary()) == data::EdgeInputs::kFeatures;
  const auto divide = [&]() -> absl::StatusOr<data::LinkSplit> {
    if (options.links.given) return data::TakeGivenLinks(graph, keep_going, edge_features);
    if (options.nodes.is_temporal())
      return data::SplitLinksByTime(graph, options.links.split, keep_going, edge_features);
    return data::SplitLinks(graph, options.links.split, keep_going, edge_features);
  };
  PF_ASSIGN_OR_RETURN(data::LinkSplit split, divide());
  if (split.links.front().empty()) {
    Violations violations;
    violations.Add("spec.link_prediction",
                   options.links.given
                       ? "the dataset gives no link to train on"
                       : absl::StrCat("none of the dataset's ", graph->summary().edges, " edges is left to train on"));
    return violations.ToStatus();
  }
  const auto is_missing = [&](data::Split of, double part) {
    return part > 0 && split.links[static_cast<size_t>(of)].empty();
  };
  const spec::LinkSplitOptions& parts = options.links.split;
  // A split by time keeps links with equal times together, so it may leave a part empty.
  if (options.nodes.is_temporal() &&
      (is_missing(data::Split::kValid, parts.valid_part) || is_missing(data::Split::kTest, parts.test_part))) {
    Violations violations;
    violations.Add(
        "spec.link_prediction",
        "the dataset's links have so few times that none of them is left to validate or to test on; accepted: "
        "parts of 0, or a split without times (no temporal)");
    return violations.ToStatus();
  }
  // Degrees count the edges of `messages` only. Degrees of the whole graph would reveal held-out links.
  if (options.model.node_inputs == spec::NodeInputs::kDegree) {
    PF_ASSIGN_OR_RETURN(split.messages, WithNodeInputs(options.model, std::move(split.messages)));
  }
  PF_ASSIGN_OR_RETURN(std::vector<uint32_t> non_neighbors, data::CountNonNeighbors(graph->view(), keep_going));
  return std::unique_ptr<Links>(new Links(options, graph, std::move(split), std::move(non_neighbors)));
}

namespace {

// Returns the number of links in the largest share of a batch that a rank gets.
int64_t LargestShare(int64_t links, int64_t replicas) { return (links + replicas - 1) / replicas; }

}  // namespace

Links::Links(const spec::TrainOptions& options, std::shared_ptr<const data::Graph> graph, data::LinkSplit split,
             std::vector<uint32_t> non_neighbors)
    : options_(options),
      graph_(std::move(graph)),
      messages_(std::move(split.messages)),
      links_(std::move(split.links)),
      times_(std::move(split.times)),
      given_(options.links.given ? graph_->view().given_links : data::GivenLinks()),
      non_neighbors_(std::make_shared<const std::vector<uint32_t>>(std::move(non_neighbors))),
      pairs_((options.nodes.fan_outs.empty()
                  ? size(data::Split::kTrain)
                  : LargestShare(std::min(options.batch_size, size(data::Split::kTrain)), options.replicas)) *
             (1 + options.links.negatives)),
      batcher_(std::make_unique<data::LinkBatcher>(
          links(data::Split::kTrain), data::NegativeDraw(graph_, options.links.sampling, options.seed, non_neighbors_),
          options.links.negatives, times_.front())) {}

int64_t Links::unranked(data::Split split) const {
  return std::ranges::count_if(links(split), [&](const data::Link& link) { return !IsRanked(split, link); });
}

std::vector<std::string> Links::notes() const {
  std::vector<std::string> notes;
  for (const auto& [split, what] :
       {std::pair(data::Split::kTrain, "train on"), std::pair(data::Split::kValid, "validate on"),
        std::pair(data::Split::kTest, "test on")}) {
    const bool trains = split == data::Split::kTrain;
    // If the source gives the negatives, no link lacks any, so there is nothing to note.
    if (!trains && !given_negatives(split).empty()) continue;
    const int64_t each = trains ? options_.links.negatives : options_.links.eval_negatives;
    const auto none = std::ranges::count_if(links(split), [&](const data::Link& l) { return TargetsOf(l) == 0; });
    const auto few = std::ranges::count_if(
        links(split), [&](const data::Link& l) { return TargetsOf(l) > 0 && TargetsOf(l) < each; });
    const std::string of = absl::StrCat(" of the ", size(split), " links to ", what);
    if (none > 0) {
      notes.push_back(absl::StrCat(none, of,
                                   " begin at a node that has an edge to every other node: they have no "
                                   "negatives",
                                   trains ? "" : " and are not ranked"));
    }
    if (few > 0) {
      notes.push_back(absl::StrCat(few, of, " begin at a node with fewer than ", each,
                                   " nodes that it has no edge to: their ", each, " negatives repeat some"));
    }
  }
  return notes;
}

std::vector<uint32_t> Links::train_ids() const {
  std::vector<uint32_t> ids(links(data::Split::kTrain).size());
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

void Links::AddDecoder(nn::NodeModel& model, uint64_t seed, c10::Device device) {
  decoder_ = std::make_unique<nn::LinkDecoder>(options_.links.score, options_.model.hidden_channels, seed, device,
                                               model.tensors());
}

std::string Links::Describe(const nn::NodeModel& model) const {
  nlohmann::json description = nlohmann::json::parse(model.Describe());
  description["decoder"] = spec::kLinkScoreNames.Name(options_.links.score);
  return description.dump();
}

int64_t Links::NegativesOfEach(data::Split split) const {
  if (given_negatives(split).empty()) return options_.links.eval_negatives;
  const data::GivenLinksSummary::Part& part = graph_->summary().links.of(split);
  return part.pairs > 0 ? 0 : part.negatives;
}

int64_t Links::most_pairs() const {
  int64_t most = 0;
  for (const data::Split split : {data::Split::kValid, data::Split::kTest}) {
    const int64_t each = NegativesOfEach(split);
    const int64_t negatives = each > 0 ? size(split) * each : static_cast<int64_t>(given_negatives(split).size() / 2);
    most = std::max(most, size(split) + negatives);
  }
  return most;
}

template <class Add>
absl::Status Links::ForEachNegative(data::Split split, const std::function<bool()>& keep_going, const Add& add) const {
  constexpr size_t kLinksAsked = 256;
  const std::vector<data::Link>& of = links(split);
  const data::Column<data::NodeId>& given = given_negatives(split);
  if (!given.Touch(0, given.size())) return given.status();
  const auto each = static_cast<uint64_t>(NegativesOfEach(split));
  if (each == 0) {
    for (uint64_t i = 0; i + 1 < given.size(); i += 2) {
      if (i % (2 * kLinksAsked) == 0 && !keep_going()) return absl::CancelledError("evaluation stopped");
      PF_RETURN_IF_ERROR(add(given[i], given[i + 1]));
    }
    return absl::OkStatus();
  }
  const data::NegativeDraw draw(graph_, options_.links.sampling, options_.links.split.seed, non_neighbors_);
  std::vector<data::NodeId> targets(each);
  for (size_t i = 0; i < of.size(); ++i) {
    if (i % kLinksAsked == 0 && !keep_going()) return absl::CancelledError("evaluation stopped");
    if (given.empty()) {
      PF_ASSIGN_OR_RETURN(const bool any, draw.Draw(of[i].source, EvalKey(split, i), targets));
      if (!any) continue;
    } else {
      std::copy_n(given.data() + i * each, each, targets.begin());
    }
    for (const data::NodeId target : targets) PF_RETURN_IF_ERROR(add(of[i].source, target));
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Links::EvaluateRows(const at::Tensor& rows, data::Split split, bool keep_predictions,
                                               const std::function<bool()>& keep_going) const {
  const auto score = [&](const nn::NodePairs& pairs) {
    return Predict(rows, {.sources = pairs.sources.to(rows.device()), .targets = pairs.targets.to(rows.device())});
  };
  return Evaluate(score, kEvalPairs, split, keep_predictions, keep_going);
}

absl::StatusOr<Evaluation> Links::EvaluatePairs(const ScoreOfNodes& score, data::Split split, bool keep_predictions,
                                                const std::function<bool()>& keep_going) const {
  const auto asking = [&](const nn::NodePairs& pairs) -> absl::StatusOr<at::Tensor> {
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    return score(pairs);
  };
  // With n negatives, a link has 2 + n ends: its source, its target, and a target for each negative. Each call draws
  // its own sample, so the results depend on the size of a call. That size must not depend on the number of replicas.
  const int64_t train = size(data::Split::kTrain);
  const int64_t links_at_once = options_.nodes.fan_outs.empty() ? train : std::min(options_.batch_size, train);
  return Evaluate(asking, std::max<int64_t>(1, links_at_once * (2 + options_.links.negatives) / 2), split,
                  keep_predictions, keep_going);
}

absl::StatusOr<Evaluation> Links::Evaluate(const ScoreOfNodes& score, int64_t most_at_once, data::Split split,
                                           bool keep_predictions, const std::function<bool()>& keep_going) const {
  const at::NoGradGuard no_grad;
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  std::vector<float> scores;
  PairScorer scorer(score, std::min(most_at_once, most_pairs()));
  const auto add = [&](data::NodeId source, data::NodeId target) -> absl::Status {
    if (scorer.full()) PF_RETURN_IF_ERROR(scorer.Score(scores));
    scorer.Add(source, target);
    return absl::OkStatus();
  };
  for (const data::Link& link : links(split)) PF_RETURN_IF_ERROR(add(link.source, link.target));
  PF_RETURN_IF_ERROR(ForEachNegative(split, keep_going, add));
  PF_RETURN_IF_ERROR(scorer.Score(scores));
  PF_RETURN_IF_ERROR(graph_->CheckIntact());
  const auto end_of_links = scores.begin() + size(split);
  return Judge({.links = {scores.begin(), end_of_links},
                .negatives = {end_of_links, scores.end()},
                .each = NegativesOfEach(split)},
               split, keep_predictions);
}

int64_t Links::eval_links() const {
  const int64_t seeds = options_.batch_size * (2 + options_.links.negatives);
  return std::max<int64_t>(1, seeds / (2 + options_.links.eval_negatives));
}

absl::Status Links::MakeEvalBatch(data::Split split, int64_t begin, data::LinkBatch& out) const {
  const data::LinkBatcher batcher(
      links(split), data::NegativeDraw(graph_, options_.links.sampling, options_.links.split.seed, non_neighbors_),
      options_.links.eval_negatives, times_[static_cast<size_t>(split)]);
  std::vector<uint32_t> ids(static_cast<size_t>(std::min(eval_links(), size(split) - begin)));
  std::iota(ids.begin(), ids.end(), static_cast<uint32_t>(begin));
  // No training reaches this epoch, so evaluation shares no draws with training.
  const int64_t epoch = (int64_t{1} << 40) + static_cast<int64_t>(split);
  return batcher.Make(ids, epoch, batcher.pairs(eval_links()), out);
}

absl::StatusOr<Evaluation> Links::EvaluateSampled(const Score& score, data::Split split, bool keep_predictions,
                                                  const std::function<bool()>& keep_going) const {
  const at::NoGradGuard no_grad;
  const nn::LoweringScope lowering(options_.model.lowering, options_.model.precision);
  const auto each = static_cast<size_t>(options_.links.eval_negatives);
  Scored scored{.links = {}, .negatives = {}, .each = options_.links.eval_negatives};
  scored.negatives.reserve(links(split).size() * each);
  data::LinkBatch pairs;
  uint64_t sample = 0;
  for (int64_t begin = 0; begin < size(split); begin += eval_links()) {
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    PF_RETURN_IF_ERROR(MakeEvalBatch(split, begin, pairs));
    PF_ASSIGN_OR_RETURN(const at::Tensor logits, score(pairs, sample++));
    const at::Tensor made = logits.to(at::kCPU).contiguous();
    const float* const of_pairs = made.const_data_ptr<float>();
    for (size_t i = 0; i < pairs.links; ++i) {
      const float* const negatives = of_pairs + pairs.links + i * each;
      scored.links.push_back(of_pairs[i]);
      if (!IsRanked(split, links(split)[static_cast<size_t>(begin) + i])) continue;
      scored.negatives.insert(scored.negatives.end(), negatives, negatives + each);
    }
  }
  PF_RETURN_IF_ERROR(graph_->CheckIntact());
  return Judge(scored, split, keep_predictions);
}

Evaluation Links::Judge(const Scored& scored, data::Split split, bool keep_predictions) const {
  // The loss uses as many negatives per link as in training, or all of them if there are fewer.
  std::vector<float> compared = scored.links;
  const int64_t own = std::ssize(scored.links);
  if (scored.each == 0) {
    const int64_t count = std::min(std::ssize(scored.negatives), own * options_.links.negatives);
    compared.insert(compared.end(), scored.negatives.begin(), scored.negatives.begin() + count);
  } else {
    const int64_t count = std::min(options_.links.negatives, scored.each);
    for (auto of_link = scored.negatives.begin(); of_link != scored.negatives.end(); of_link += scored.each) {
      compared.insert(compared.end(), of_link, of_link + count);
    }
  }
  std::vector<float> labels(compared.size(), 0.0F);
  std::fill_n(labels.begin(), own, 1.0F);
  Evaluation result;
  std::vector<float> ranked;
  for (size_t i = 0; i < scored.links.size(); ++i) {
    if (IsRanked(split, links(split)[i])) ranked.push_back(scored.links[i]);
  }
  const nn::LinkScores all{.links = ranked, .negatives = scored.negatives, .share = scored.each == 0};
  for (const spec::Metric metric : MetricsOf(options_)) result.metrics.push_back(nn::ComputeLinkMetric(metric, all));
  at::Tensor weights;
  if (!options_.class_weights.empty()) weights = at::tensor(options_.class_weights, at::kFloat);
  const nn::LossTerms loss = nn::ComputeLoss(spec::Loss::kBce, at::tensor(compared, at::kFloat).unsqueeze(1),
                                             at::tensor(labels, at::kFloat).unsqueeze(1), weights);
  const double count = loss.count.item<double>();
  result.has_labels = count > 0;
  result.loss = count > 0 ? loss.sum.item<double>() / count : std::numeric_limits<double>::quiet_NaN();
  if (!keep_predictions) return result;
  const std::vector<float> ranks = nn::RanksOf(all);
  auto rank = ranks.begin();
  for (size_t i = 0; i < scored.links.size(); ++i) {
    result.ids.push_back(static_cast<uint32_t>(i));
    const bool is_ranked = IsRanked(split, links(split)[i]);
    result.predictions.insert(result.predictions.end(),
                              {scored.links[i], is_ranked ? *rank++ : std::numeric_limits<float>::quiet_NaN()});
  }
  return result;
}

absl::StatusOr<NamedRows> Links::NameRows(data::Split split, std::span<const uint32_t> ids) const {
  std::vector<uint32_t> sources, targets;
  for (const uint32_t id : ids) {
    const data::Link& link = links(split)[id];
    sources.push_back(link.source);
    targets.push_back(link.target);
  }
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> from, NamesOfNodes(*graph_, sources));
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> to, NamesOfNodes(*graph_, targets));
  NamedRows rows{.columns = {"source", "target"}, .names = {}, .values = {"score", "rank"}, .empty_nan = 1};
  const std::vector<int64_t>& times = times_[static_cast<size_t>(split)];
  if (!times.empty()) rows.columns.emplace_back("time");
  for (size_t i = 0; i < ids.size(); ++i) {
    rows.names.insert(rows.names.end(), {from[i], to[i]});
    if (!times.empty()) rows.names.push_back(absl::StrCat(times[ids[i]]));
  }
  return rows;
}

int64_t MostSeeds(const spec::TrainOptions& options, int64_t links, int64_t nodes) {
  const int64_t ends = links * (2 + options.links.negatives);
  // In temporal jobs, a node with links at several times is a separate seed for each time.
  return options.nodes.is_temporal() ? ends : std::min(nodes, ends);
}

double LinkCountOf(const spec::TrainOptions& options, const data::GraphSummary& graph, data::Split split) {
  if (options.links.given) return static_cast<double>(graph.links.of(split).links);
  const double links = static_cast<double>(graph.edges) / (graph.symmetric ? 2 : 1);
  const spec::LinkSplitOptions& parts = options.links.split;
  return split == data::Split::kTrain ? links
                                      : links * (split == data::Split::kValid ? parts.valid_part : parts.test_part);
}

LinkMemory LinkMemoryOf(const spec::TrainOptions& options, const data::GraphSummary& graph, int64_t in_channels,
                        int64_t channels) {
  if (!options.links.enabled) return {};
  const double links = LinkCountOf(options, graph, data::Split::kTrain);
  const spec::LinkOptions& o = options.links;
  double evaluated = 0, negatives = 0;
  for (const data::Split split : {data::Split::kValid, data::Split::kTest}) {
    const data::GivenLinksSummary::Part part = o.given ? graph.links.of(split) : data::GivenLinksSummary::Part();
    const double of_split = LinkCountOf(options, graph, split);
    const int64_t each = part.negatives > 0 ? part.negatives : o.eval_negatives;
    evaluated = std::max(evaluated, of_split);
    negatives =
        std::max(negatives, part.pairs > 0 ? static_cast<double>(part.pairs) : of_split * static_cast<double>(each));
  }
  const double rows = LayerWiseBytes(options, graph, in_channels, channels);
  // Each score is in memory several times: as it was computed, in the array of all scores, with its label for a
  // metric, and sorted.
  constexpr double kScoreBytes = 6 * sizeof(float);
  const double scores =
      kScoreBytes * (evaluated + negatives) + 2 * sizeof(float) * evaluated * (1 + static_cast<double>(o.negatives));
  // Besides the split, memory holds the ids of the links, once in order and once shuffled. It also holds, for each
  // node, the number of possible targets of its negatives.
  const double ids = 2 * sizeof(uint32_t) * links + sizeof(uint32_t) * static_cast<double>(graph.nodes);
  if (options.nodes.is_temporal()) {
    return {.host = static_cast<double>(data::TimedLinkSplitBytes(graph)) + ids, .result = scores};
  }
  const bool edge_features = EdgeInputsOf(options.model, graph) == data::EdgeInputs::kFeatures;
  const uint64_t split =
      o.given ? data::GivenLinksBytes(graph, edge_features) : data::LinkSplitBytes(graph, edge_features);
  // The degrees in the graph without held-out links take memory in addition to those in the whole graph: an offset
  // and a column for each node.
  const double degrees = options.model.node_inputs == spec::NodeInputs::kDegree
                             ? static_cast<double>(graph.nodes) * (sizeof(uint64_t) + sizeof(uint32_t))
                             : 0;
  return {.host = static_cast<double>(split) + ids + degrees, .result = rows + scores};
}

}  // namespace permafrost::train
