#include "jobs/job_log_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/string_view.h"

namespace permafrost::jobs {
namespace {

// Returns the metric's name for running text.
std::string_view MetricText(spec::Metric metric) {
  switch (metric) {
    case spec::Metric::kAccuracy:
      return "accuracy";
    case spec::Metric::kRocAuc:
      return "ROC-AUC";
    case spec::Metric::kF1Macro:
      return "macro F1";
    case spec::Metric::kF1Micro:
      return "micro F1";
    case spec::Metric::kAveragePrecision:
      return "average precision";
    case spec::Metric::kRmse:
      return "RMSE";
    case spec::Metric::kR2:
      return "R2";
    case spec::Metric::kMrr:
      return "MRR";
    case spec::Metric::kHitsAt10:
      return "hits@10";
    case spec::Metric::kHitsAt20:
      return "hits@20";
    case spec::Metric::kHitsAt50:
      return "hits@50";
    case spec::Metric::kHitsAt100:
      return "hits@100";
    case spec::Metric::kMae:
      break;
  }
  return "MAE";
}

std::string FanOutText(const std::vector<int64_t>& fan_outs) {
  const auto one = [](std::string* out, int64_t fan_out) {
    absl::StrAppend(out, fan_out < 0 ? "all" : absl::StrCat(fan_out));
  };
  return absl::StrJoin(fan_outs, ",", one);
}

// Describes how the batches of a node-level job are made.
std::string SamplingText(const spec::NodeTrainingOptions& nodes) {
  if (nodes.fan_outs.empty()) return ", the whole graph a step";
  std::string text = absl::StrCat(", fan-out ", FanOutText(nodes.fan_outs));
  if (!nodes.eval_fan_outs.empty()) absl::StrAppend(&text, " (evaluation ", FanOutText(nodes.eval_fan_outs), ")");
  if (nodes.replace) absl::StrAppend(&text, ", with replacement");
  if (nodes.weighted) absl::StrAppend(&text, ", by edge weight");
  if (nodes.sampler != spec::SamplerKind::kNeighbor) {
    absl::StrAppend(&text, " by ", AbslView(spec::kSamplerKindNames.Name(nodes.sampler)));
  }
  if (nodes.disjoint) absl::StrAppend(&text, ", disjoint");
  if (nodes.is_temporal()) {
    absl::StrAppend(&text, ", temporal (", AbslView(spec::kTemporalSamplingNames.Name(nodes.temporal)),
                    nodes.seed_time ? absl::StrCat(", before ", *nodes.seed_time) : "", ")");
  }
  if (nodes.layer_wise_evaluation) absl::StrAppend(&text, ", evaluated layer by layer");
  return text;
}

std::string LinkText(const spec::LinkOptions& links) {
  if (!links.enabled) return "";
  const std::string split = links.given
                                ? std::string("split of the dataset")
                                : absl::StrCat(links.split.valid_part, " validate, ", links.split.test_part, " test");
  return absl::StrCat(", links (", split, ", seed ", links.split.seed, "; ", links.negatives, " and ",
                      links.eval_negatives, " negatives, ", AbslView(spec::kNegativeSamplingNames.Name(links.sampling)),
                      "; decoder ", AbslView(spec::kLinkScoreNames.Name(links.score)), ")");
}

// Names the units that a job trains on and counts.
std::string_view UnitText(const spec::TrainOptions& options) {
  if (options.links.enabled) return "links";
  return options.model.level == spec::ModelLevel::kNode ? "nodes" : "graphs";
}

std::string WalkText(const spec::Node2VecOptions& walks) {
  return absl::StrCat(", ", walks.walks_per_node, " walks of ", walks.walk_length, " a node (p ", walks.p, ", q ",
                      walks.q, "), context ", walks.context_size, ", negatives ", walks.num_negative_samples);
}

std::string FoldText(const spec::CrossValidation& folds) {
  if (folds.folds == 0) return "";
  return absl::StrCat(", fold ", folds.fold, " of ", folds.folds, " (seed ", folds.seed, ")");
}

std::string BatchText(const spec::TrainOptions& t) {
  const bool is_budget = t.batching.kind == spec::BatchingKind::kBudget;
  const bool node_level = t.model.level == spec::ModelLevel::kNode;
  if (is_budget && !node_level && t.batch_size == spec::kMaxBatchSize) return "batches of a budget";
  std::string text = absl::StrCat("batch size ", t.batch_size);
  if (is_budget && node_level) {
    const spec::BatchingOptions& bounds = t.batching;
    if (bounds.max_nodes > 0) absl::StrAppend(&text, ", blocks of at most ", bounds.max_nodes, " nodes");
    if (bounds.max_edges > 0) {
      absl::StrAppend(&text, bounds.max_nodes > 0 ? " and " : ", blocks of at most ", bounds.max_edges, " edges");
    }
  }
  return text;
}

std::string ModelText(const spec::ModelOptions& model) {
  const std::string_view name = spec::kArchitectureNames.Name(model.architecture);
  if (spec::TraitsOf(model.architecture).is_program) return absl::StrCat(AbslView(name), " ", model.program.value());
  return absl::StrCat(AbslView(name), " ", model.num_layers, " x ", model.hidden_channels);
}

}  // namespace

std::string SubmittedLine(const Job& job) {
  const spec::TrainOptions& t = job.spec.train;
  const bool node_level = t.model.level == spec::ModelLevel::kNode;
  return absl::StrCat("submitted ", job.id.value(), ": dataset ", t.dataset.value(), ", ", ModelText(t.model),
                      spec::Walks(t) ? WalkText(t.node2vec)
                      : node_level   ? SamplingText(t.nodes)
                      : spec::IsProgram(t)
                          ? ""
                          : absl::StrCat(" ", AbslView(spec::kPoolingNames.Name(t.model.pooling)), " pooling"),
                      LinkText(t.links), ", loss ", AbslView(spec::kLossNames.Name(t.loss)), ", ",
                      AbslView(spec::kOptimizerNames.Name(t.optimizer.algorithm)), " lr ", t.optimizer.learning_rate,
                      " weight decay ", t.optimizer.weight_decay, ", ", t.epochs, " epochs of ", BatchText(t),
                      FoldText(t.cross_validation), ", seed ", t.seed, ", priority ", job.spec.priority);
}

std::string StartedLine(const Job& job, std::string_view device, int threads) {
  const std::string where =
      absl::StrCat(" on ", AbslView(device), ", ", threads, threads == 1 ? " thread" : " threads");
  if (job.resumes == 0) return absl::StrCat("started", where);
  return absl::StrCat("resumed", where, " (resume ", job.resumes, ")");
}

std::string EpochLine(const train::EpochMetrics& metrics, const spec::TrainOptions& options) {
  const int width = static_cast<int>(absl::StrCat(options.epochs).size());
  const std::vector<spec::Metric> names = spec::MetricsOf(options);
  std::string others;
  for (size_t i = 1; i < std::min(names.size(), metrics.valid_metrics.size()); ++i) {
    absl::StrAppendFormat(&others, "  %s %9.5f", AbslView(MetricText(names[i])), metrics.valid_metrics[i]);
  }
  return absl::StrFormat(
      "epoch %*d/%d  train loss %9.5f  valid loss %9.5f  valid %s %9.5f%s  lr %.3g  %7.2f s  %8.0f %s/s", width,
      metrics.epoch, options.epochs, metrics.train_loss, metrics.valid_loss, AbslView(MetricText(names.front())),
      metrics.valid_metric, others, metrics.learning_rate, metrics.train_seconds + metrics.valid_seconds,
      metrics.graphs_per_second, AbslView(UnitText(options)));
}

std::string EndedLine(const Job& job) {
  if (job.state == JobState::kFailed) return absl::StrCat("failed: ", job.error);
  if (job.state == JobState::kCancelled) return absl::StrCat("cancelled after step ", job.progress.step);
  if (!job.result) return std::string(kJobStateNames.Name(job.state));
  const train::RunResult& r = *job.result;
  const absl::string_view metric = AbslView(MetricText(spec::MetricsOf(job.spec.train).front()));
  return absl::StrFormat(
      "succeeded: best epoch %d with valid %s %.5f, test %s %.5f; last epoch test %s %.5f; %.1f s, %.3f ms a step",
      r.best_epoch, metric, r.best_valid_metric, metric, r.best_test_metric, metric, r.final_test_metric,
      r.train_seconds, r.mean_step_milliseconds);
}

}  // namespace permafrost::jobs
