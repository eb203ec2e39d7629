#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/sampling/fan_out.h"

namespace permafrost::train {
namespace {

// Violations of one message of a spec: field names are put after its prefix.
class FieldChecker {
 public:
  FieldChecker(std::string_view prefix, Violations& violations) : prefix_(prefix), violations_(violations) {}

  bool InRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    Add(field, absl::StrCat(value, " is outside ", low, "..", high));
    return false;
  }
  void Add(std::string_view field, std::string_view description) {
    violations_.Add(absl::StrCat(prefix_, AbslView(field)), description);
  }

 private:
  std::string prefix_;
  Violations& violations_;
};

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
  const std::string_view architecture = nn::kArchitectureNames.Name(options.model.architecture);
  if (!nn::IsNodeLevel(options.model.architecture)) {
    if (nodes != NodeTrainingOptions()) {
      check.Add("neighbor_sampling",
                absl::StrCat("is given for ", AbslView(architecture), ", which is not node-level; accepted: for ",
                             ModelsOf(nn::ModelLevel::kNode, ", ")));
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
  if (nn::IsNodeLevel(options.model.architecture)) {
    if (batching != data::BatchingOptions()) {
      check.Add("batching",
                absl::StrCat("is given for ", AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                             ", which is node-level; accepted: for ", ModelsOf(nn::ModelLevel::kGraph, ", ")));
    }
    return;
  }
  const bool is_budget = batching.kind == BatchingKind::kBudget;
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

void CheckModel(const TrainOptions& options, FieldChecker& check) {
  check.InRange("model.hidden_channels", options.model.hidden_channels, 1, 4096);
  check.InRange("model.num_layers", options.model.num_layers, 1, 64);
  const nn::ModelTraits& traits = nn::TraitsOf(options.model.architecture);
  if (!traits.pools && options.model.pooling != nn::ModelOptions().pooling) {
    check.Add("model.pooling", absl::StrCat(AbslView(nn::kPoolingNames.Name(options.model.pooling)), " is given for ",
                                            AbslView(traits.name), ", which pools nothing"));
  }
  const double dropout = options.model.dropout;
  const bool is_part = dropout >= 0 && dropout < 1;  // NaN is none
  if (!is_part) {
    check.Add("model.dropout", absl::StrCat(dropout, " is not a number of at least 0 and below 1"));
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
    if (std::isfinite(weights[i]) && weights[i] > 0) continue;
    check.Add(absl::StrCat("class_weights[", i, "]"), absl::StrCat(weights[i], " is not a finite number above 0"));
    break;  // One tells enough: there may be as many as there are classes.
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
    } else if (!nn::Measures(metric, options.loss)) {
      std::string accepted;
      for (const auto& [other, other_name] : nn::kMetricNames.rows) {
        if (!nn::Measures(other, options.loss)) continue;
        absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", AbslView(other_name));
      }
      check.Add(field, absl::StrCat(AbslView(name), " does not measure loss ",
                                    AbslView(nn::kLossNames.Name(options.loss)), "; accepted: ", accepted));
    }
  }
}

void CheckFolds(const TrainOptions& options, FieldChecker& check) {
  const data::CrossValidation& folds = options.cross_validation;
  if (folds == data::CrossValidation()) return;
  if (nn::IsNodeLevel(options.model.architecture)) {
    check.Add("cross_validation",
              absl::StrCat("is given for ", AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                           ", which is node-level; accepted: for ", ModelsOf(nn::ModelLevel::kGraph, ", ")));
    return;
  }
  constexpr int64_t kLeastFolds = 3, kMostFolds = 1000;
  if (check.InRange("cross_validation.folds", folds.folds, kLeastFolds, kMostFolds)) {
    check.InRange("cross_validation.fold", folds.fold, 0, folds.folds - 1);
  }
}

}  // namespace

std::vector<nn::Metric> MetricsOf(const TrainOptions& options) {
  return options.metrics.empty() ? std::vector{nn::MetricOf(options.loss)} : options.metrics;
}

std::string ModelsOf(nn::ModelLevel level, std::string_view separator) {
  std::string names;
  for (const nn::ModelTraits& model : nn::kModels) {
    if (model.level != level) continue;
    absl::StrAppend(&names, names.empty() ? "" : AbslView(separator), AbslView(model.name));
  }
  return names;
}

TrainOptions DefaultOptions(nn::Architecture architecture) {
  const nn::ModelTraits& traits = nn::TraitsOf(architecture);
  TrainOptions options;
  options.model.architecture = architecture;
  options.model.num_layers = traits.num_layers;
  options.loss = traits.loss;
  options.batch_size = traits.batch_size;
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
  CheckModel(options, check);
  const double rate = options.optimizer.learning_rate;
  if (!std::isfinite(rate) || rate <= 0) {
    check.Add("optimizer.learning_rate", absl::StrCat(rate, " is not a finite number above 0"));
  }
  const double decay = options.optimizer.weight_decay;
  if (!std::isfinite(decay) || decay < 0) {
    check.Add("optimizer.weight_decay", absl::StrCat(decay, " is not a finite number of at least 0"));
  }
  const double norm = options.optimizer.max_grad_norm;
  if (!std::isfinite(norm) || norm < 0) {
    check.Add("optimizer.max_grad_norm", absl::StrCat(norm, " is not a finite number of at least 0"));
  }
  if (options.optimizer.warmup_steps < 0) {
    check.Add("optimizer.warmup_steps", absl::StrCat(options.optimizer.warmup_steps, " is below 0"));
  }
  CheckLoss(options, check);
  CheckMetrics(options, check);
  CheckFolds(options, check);
  CheckNodeTraining(options, check);
  CheckBatching(options, check);
  check.InRange("epochs", options.epochs, 1, 1'000'000);
  check.InRange("batch_size", options.batch_size, 1, 65'536);
  if (options.checkpoint.every_steps < 0) {
    check.Add("checkpoint.every_steps", absl::StrCat(options.checkpoint.every_steps, " is below 0"));
  }
  check.InRange("checkpoint.every_seconds", options.checkpoint.every_seconds, 0, 86'400);
  check.InRange("checkpoint.keep", options.checkpoint.keep, 1, 100);
  graphcache::Validate(options.graph_cache, absl::StrCat(AbslView(prefix), "graph_cache."), violations);
}

}  // namespace permafrost::train
