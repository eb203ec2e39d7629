#include "train/options.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/sampling/fan_out.h"
#include "train/draw_options.h"
#include "train/field_checker.h"
#include "train/model_options.h"
#include "train/optimizer_options.h"
#include "train/walk_options.h"

namespace permafrost::train {
namespace {

// `field`: "fan_outs" or "eval_fan_outs".
void CheckFanOuts(std::string_view field, const std::vector<int64_t>& fan_outs, int64_t num_layers,
                  FieldChecker& check) {
  const std::string name = absl::StrCat("neighbor_sampling.", AbslView(field));
  const auto hops = static_cast<int64_t>(fan_outs.size());
  if (hops > data::kMaxHops) {
    check.Add(name, absl::StrCat("has ", hops, " entries; at most ", data::kMaxHops, " are accepted"));
  } else if (hops != num_layers) {
    check.Add(name, absl::StrCat("has ", hops, hops == 1 ? " entry" : " entries", ", but model.num_layers is ",
                                 num_layers, "; accepted: one for each layer"));
  }
  for (int64_t i = 0; i < std::min(hops, data::kMaxHops); ++i) {
    const int64_t fan_out = fan_outs[static_cast<size_t>(i)];
    if (!data::IsFanOut(fan_out)) {
      check.Add(absl::StrCat(name, "[", i, "]"), absl::StrCat(fan_out, " is neither in 1..", data::kMaxFanOut, " nor ",
                                                              data::kAllNeighbors, ", which takes all neighbours"));
    }
  }
}

void CheckNodeTraining(const TrainOptions& options, FieldChecker& check) {
  const NodeTrainingOptions& nodes = options.nodes;
  if (options.model.level != nn::ModelLevel::kNode) {
    if (nodes != NodeTrainingOptions()) {
      check.Add("neighbor_sampling", "is given for a set of graphs; accepted: for one large graph");
    }
    return;
  }
  const bool in_range = check.InRange("neighbor_sampling.look_ahead", nodes.look_ahead, 1, 64);
  if (!nodes.fan_outs.empty()) {
    CheckFanOuts("fan_outs", nodes.fan_outs, options.model.num_layers, check);
    if (nodes.eval_fan_outs.empty()) return;
    CheckFanOuts("eval_fan_outs", nodes.eval_fan_outs, options.model.num_layers, check);
    if (nodes.layer_wise_evaluation) {
      check.Add("neighbor_sampling.eval_fan_outs", "is given with layer_wise_evaluation, which takes every neighbour");
    }
    return;
  }
  constexpr std::string_view kNothingSampled = "is given without fan_outs: the whole graph is taken, nothing is drawn";
  if (!nodes.eval_fan_outs.empty()) check.Add("neighbor_sampling.eval_fan_outs", kNothingSampled);
  if (nodes.replace) check.Add("neighbor_sampling.replace", kNothingSampled);
  if (nodes.weighted) check.Add("neighbor_sampling.weighted", kNothingSampled);
  if (nodes.look_ahead != NodeTrainingOptions().look_ahead && in_range) {
    check.Add("neighbor_sampling.look_ahead", kNothingSampled);
  }
  if (!nodes.advise_pages) check.Add("neighbor_sampling.no_page_advice", kNothingSampled);
  if (nodes.layer_wise_evaluation) check.Add("neighbor_sampling.layer_wise_evaluation", kNothingSampled);
}

void CheckBatching(const TrainOptions& options, FieldChecker& check) {
  using data::BatchingKind;
  const data::BatchingOptions& batching = options.batching;
  const bool is_budget = batching.kind == BatchingKind::kBudget;
  if (options.model.level == nn::ModelLevel::kNode && batching != data::BatchingOptions()) {
    if (Walks(options) || options.nodes.fan_outs.empty()) {
      check.Add("batching", absl::StrCat("is given for ",
                                         Walks(options) ? "walks" : "one large graph, whose batch is the whole of it",
                                         "; accepted: budget with neighbor_sampling.fan_outs, or a set of graphs"));
      return;
    }
    if (batching.kind == BatchingKind::kBalanced) {
      check.Add("batching.kind", "is balanced for one large graph; accepted: budget, which bounds each sampled block");
      return;
    }
    if (is_budget && options.nodes.sampler == data::SamplerKind::kLabor) {
      check.Add("neighbor_sampling.sampler",
                "is labor with batching budget: it draws any number of a node's edges, which no budget bounds; "
                "accepted: neighbor");
    }
  }
  if (is_budget && batching.max_nodes == 0 && batching.max_edges == 0) {
    check.Add("batching", "is budget without a bound; accepted: with max_nodes, max_edges, or both");
  }
  const auto check_bound = [&](std::string_view field, int64_t bound) {
    if (bound == 0) return;
    if (!is_budget) {
      check.Add(field, absl::StrCat("is given for batching ", AbslView(data::kBatchingNames.Name(batching.kind)),
                                    "; accepted: for budget"));
    } else {
      check.InRange(field, bound, 1, data::kMaxBudget);
    }
  };
  check_bound("batching.max_nodes", batching.max_nodes);
  check_bound("batching.max_edges", batching.max_edges);
}

// Beside the level, which CheckNodeTraining looks at.
void CheckLinks(const TrainOptions& options, FieldChecker& check) {
  const LinkOptions& links = options.links;
  if (!links.enabled) return;
  if (options.model.level != nn::ModelLevel::kNode) {
    check.Add("link_prediction", "is given for a set of graphs; accepted: for one large graph");
    return;
  }
  if (options.loss != nn::Loss::kBce) {
    check.Add("loss", absl::StrCat(AbslView(nn::kLossNames.Name(options.loss)), " is no loss of links; accepted: bce"));
  }
  if (links.given && options.nodes.is_temporal()) {
    check.Add("neighbor_sampling.temporal",
              "is given for links that the dataset divides, which have no times; accepted: with "
              "link_prediction.split drawn");
  }
  const double valid = links.split.valid_part, test = links.split.test_part;
  const bool valid_fits = check.IsPart("link_prediction.valid_part", valid);
  const bool test_fits = check.IsPart("link_prediction.test_part", test);
  if (valid_fits && test_fits && valid + test >= 1) {
    check.Add("link_prediction.test_part",
              absl::StrCat(test, " and valid_part ", valid, " leave nothing to train on; accepted: a sum below 1"));
  }
  check.InRange("link_prediction.negatives", links.negatives, 1, 1000);
  check.InRange("link_prediction.eval_negatives", links.eval_negatives, 1, 10'000);
  if (!options.nodes.eval_fan_outs.empty() && !options.nodes.is_temporal()) {
    check.Add("neighbor_sampling.eval_fan_outs",
              "is given with link_prediction, whose evaluation takes every neighbour; accepted: with temporal");
  }
}

void CheckLoss(const TrainOptions& options, FieldChecker& check) {
  const std::string_view loss = nn::kLossNames.Name(options.loss);
  const std::vector<double>& weights = options.class_weights;
  if (weights.empty()) return;
  if (options.loss != nn::Loss::kCrossEntropy && options.loss != nn::Loss::kBce) {
    check.Add("class_weights",
              absl::StrCat("is given for loss ", AbslView(loss), "; accepted: for cross-entropy and bce"));
  } else if (options.loss == nn::Loss::kBce && weights.size() != 2) {
    check.Add("class_weights", absl::StrCat("has ", weights.size(), weights.size() == 1 ? " entry" : " entries",
                                            "; accepted for bce: two, the weights of labels 0 and 1"));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    // One tells enough: there may be as many as there are classes.
    if (!check.IsPositive(absl::StrCat("class_weights[", i, "]"), weights[i])) break;
  }
}

void CheckWeights(const TrainOptions& options, FieldChecker& check) {
  const InitialWeights& from = options.init_from;
  constexpr size_t kMostFixed = 1000, kLongestPath = 4096;
  if (!from.job.empty() && !from.file.empty()) {
    check.Add("init_from", "has both a job and a file; accepted: one of them");
  } else if (!from.given() && from != InitialWeights()) {
    check.Add("init_from", "has neither a job nor a file; accepted: one of them");
  } else if (!from.job.empty()) {
    const absl::Status syntax = CheckIdSyntax("job", from.job.value());
    for (const FieldViolation& violation : GetViolations(syntax)) check.Add("init_from.job", violation.description);
  } else if (from.weights != InitialWeights().weights) {
    check.Add("init_from.weights", "is given for a file; accepted: for a job");
  }
  if (from.file.size() > kLongestPath) {
    check.Add("init_from.file",
              absl::StrCat("has ", from.file.size(), " characters; at most ", kLongestPath, " are accepted"));
  }
  if (options.fixed_parameters.size() > kMostFixed) {
    check.Add("fixed_parameters",
              absl::StrCat("has ", options.fixed_parameters.size(), " entries; at most ", kMostFixed, " are accepted"));
  }
}

void CheckMetrics(const TrainOptions& options, FieldChecker& check) {
  for (size_t i = 0; i < options.metrics.size(); ++i) {
    const nn::Metric metric = options.metrics[i];
    const std::string field = absl::StrCat("metrics[", i, "]");
    const std::string_view name = nn::kMetricNames.Name(metric);
    if (std::find(options.metrics.begin(), options.metrics.begin() + static_cast<std::ptrdiff_t>(i), metric) !=
        options.metrics.begin() + static_cast<std::ptrdiff_t>(i)) {
      check.Add(field, absl::StrCat(AbslView(name), " stands there already; each is accepted once"));
    } else if (const auto measures =
                   [&options](nn::Metric of) {
                     // CheckWalks says what of these measures walks.
                     if (Walks(options)) return true;
                     return options.links.enabled ? nn::MeasuresLinks(of) : nn::Measures(of, options.loss);
                   };
               !measures(metric)) {
      std::string accepted;
      for (const auto& [other, other_name] : nn::kMetricNames.rows) {
        if (!measures(other)) continue;
        absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", AbslView(other_name));
      }
      const std::string what =
          options.links.enabled ? "links" : absl::StrCat("loss ", AbslView(nn::kLossNames.Name(options.loss)));
      check.Add(field, absl::StrCat(AbslView(name), " does not measure ", what, "; accepted: ", accepted));
    }
  }
}

void CheckFolds(const TrainOptions& options, FieldChecker& check) {
  const data::CrossValidation& folds = options.cross_validation;
  if (folds == data::CrossValidation()) return;
  if (options.model.level == nn::ModelLevel::kNode) {
    check.Add("cross_validation", "is given for one large graph; accepted: for a set of graphs");
    return;
  }
  constexpr int64_t kLeastFolds = 3, kMostFolds = 1000;
  if (check.InRange("cross_validation.folds", folds.folds, kLeastFolds, kMostFolds)) {
    check.InRange("cross_validation.fold", folds.fold, 0, folds.folds - 1);
  }
}

}  // namespace

bool EvaluatesLayerWise(const TrainOptions& options) {
  return options.nodes.layer_wise_evaluation ||
         (options.links.enabled && !options.nodes.fan_outs.empty() && !options.nodes.is_temporal());
}

bool EvaluatesOutsideCache(const TrainOptions& options) {
  return EvaluatesLayerWise(options) || (options.links.enabled && options.nodes.is_temporal());
}

std::vector<nn::Metric> MetricsOf(const TrainOptions& options) {
  if (!options.metrics.empty()) return options.metrics;
  return {options.links.enabled ? nn::Metric::kMrr : nn::MetricOf(options.loss)};
}

std::string ModelsOf(nn::ModelLevel level, std::string_view separator) {
  std::string names;
  for (const nn::ModelTraits& model : nn::kModels) {
    if (!model.Serves(level)) continue;
    absl::StrAppend(&names, names.empty() ? "" : AbslView(separator), AbslView(model.name));
  }
  return names;
}

TrainOptions DefaultOptions(nn::ModelLevel level) {
  const nn::LevelDefaults defaults = nn::DefaultsOf(level);
  TrainOptions options;
  options.model.architecture = defaults.architecture;
  options.model.level = level;
  options.model.num_layers = defaults.num_layers;
  options.model.norm = defaults.norm;
  options.loss = defaults.loss;
  options.batch_size = defaults.batch_size;
  return options;
}

void Validate(const TrainOptions& options, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  if (options.dataset.empty()) {
    check.Add("dataset", "is required: the name of an imported dataset");
  } else {
    const absl::Status syntax = CheckIdSyntax(absl::StrCat(AbslView(prefix), "dataset"), options.dataset.value());
    for (const FieldViolation& violation : GetViolations(syntax))
      violations.Add(violation.field, violation.description);
  }
  CheckModelOptions(options.model, check);
  CheckOptimizerOptions(options.optimizer, check);
  CheckWeights(options, check);
  CheckLoss(options, check);
  CheckMetrics(options, check);
  CheckFolds(options, check);
  CheckLinks(options, check);
  if (!Walks(options)) {
    CheckNodeTraining(options, check);
    CheckDraws(options, check);
  }
  CheckWalks(options, check);
  CheckBatching(options, check);
  check.InRange("epochs", options.epochs, 1, 1'000'000);
  check.InRange("patience", options.patience, 0, 1'000'000);
  check.InRange("batch_size", options.batch_size, 1, data::kMaxBatchSize);
  if (options.checkpoint.every_steps < 0) {
    check.Add("checkpoint.every_steps", absl::StrCat(options.checkpoint.every_steps, " is below 0"));
  }
  check.InRange("checkpoint.every_seconds", options.checkpoint.every_seconds, 0, 86'400);
  check.InRange("checkpoint.keep", options.checkpoint.keep, 1, 100);
  graphcache::Validate(options.graph_cache, absl::StrCat(AbslView(prefix), "graph_cache."), violations);
}

}  // namespace permafrost::train
