#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/sampling/fan_out.h"
#include "train/draw_options.h"

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
  if (options.model.level == nn::ModelLevel::kNode) {
    if (batching != data::BatchingOptions()) {
      check.Add("batching", "is given for one large graph; accepted: for a set of graphs");
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

// Options that say something of one level, or of some models, alone.
void CheckModelFits(const nn::ModelOptions& model, FieldChecker& check) {
  const nn::ModelOptions defaults;
  const bool of_nodes = model.level == nn::ModelLevel::kNode;
  const auto refuse = [&](const char* field, bool given) {
    if (!given) return;
    check.Add(absl::StrCat("model.", field),
              absl::StrCat("is given for ", of_nodes ? "one large graph" : "a set of graphs", "; accepted: for ",
                           of_nodes ? "a set of graphs" : "one large graph"));
  };
  refuse("pooling", of_nodes && model.pooling != defaults.pooling);
  refuse("virtual_node", of_nodes && model.virtual_node);
  refuse("input_dropout", !of_nodes && model.input_dropout != 0);
  refuse("normalize_features", !of_nodes && model.normalize_features);
  refuse("node_inputs", !of_nodes && model.node_inputs != defaults.node_inputs);
  refuse("edge_inputs", !of_nodes && model.edge_inputs != defaults.edge_inputs);
}

void CheckEdgeInputs(const nn::ModelOptions& model, FieldChecker& check) {
  const nn::ModelTraits& traits = nn::TraitsOf(model.architecture);
  if (model.edge_inputs == nn::EdgeInputs::kAuto || model.level != nn::ModelLevel::kNode) return;
  const std::string_view name = nn::kEdgeInputsNames.Name(model.edge_inputs);
  const bool none = model.edge_inputs == nn::EdgeInputs::kNone;
  if (traits.edges == nn::EdgeUse::kNone && !none) {
    check.Add("model.edge_inputs", absl::StrCat(AbslView(name), " is given for ", AbslView(traits.name),
                                                ", which reads no features of edges; accepted: for gine and gatv2"));
  } else if (traits.edges == nn::EdgeUse::kNeeded && none) {
    check.Add("model.edge_inputs", absl::StrCat("none is given for ", AbslView(traits.name),
                                                ", which reads features of edges; accepted: features, weights"));
  }
}

void CheckModel(const TrainOptions& options, FieldChecker& check) {
  const nn::ModelOptions& model = options.model;
  check.InRange("model.hidden_channels", model.hidden_channels, 1, 4096);
  check.InRange("model.num_layers", model.num_layers, 1, 64);
  const nn::ModelTraits& traits = nn::TraitsOf(model.architecture);
  if (!traits.Serves(model.level)) {
    const bool of_nodes = model.level == nn::ModelLevel::kNode;
    check.Add("model.architecture",
              absl::StrCat(AbslView(traits.name), " is no model of ", of_nodes ? "one large graph" : "a set of graphs",
                           "; accepted: ", ModelsOf(model.level, ", ")));
  }
  if (check.InRange("model.heads", model.heads, 1, 64)) {
    if (model.heads > 1 && !traits.has_heads) {
      check.Add("model.heads",
                absl::StrCat("is given for ", AbslView(traits.name), ", which has none; accepted: for ", "gatv2"));
    } else if (model.hidden_channels % model.heads != 0) {
      check.Add("model.heads", absl::StrCat(model.heads, " heads do not divide ", model.hidden_channels,
                                            " hidden_channels; each takes an equal part"));
    }
  }
  if (model.aggregation != nn::Aggregation::kMean) {
    const std::string_view name = nn::kAggregationNames.Name(model.aggregation);
    if (!traits.has_aggregation) {
      check.Add("model.aggregation",
                absl::StrCat(AbslView(name), " is given for ", AbslView(traits.name), "; accepted: for sage"));
    } else if (model.lowering == nn::Lowering::kShapeFree) {
      check.Add("model.aggregation",
                absl::StrCat(AbslView(name), " is given with lowering shape-free, which has none; accepted: mean"));
    }
  }
  CheckEdgeInputs(model, check);
  const auto check_part = [&](const char* field, double p) {
    const bool is_part = p >= 0 && p < 1;  // NaN is none
    if (!is_part) check.Add(field, absl::StrCat(p, " is not a number of at least 0 and below 1"));
  };
  check_part("model.dropout", model.dropout);
  check_part("model.input_dropout", model.input_dropout);
  CheckModelFits(model, check);
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
  const auto is_part = [](double part) { return part >= 0 && part < 1; };  // NaN is none
  const auto check_part = [&](const char* field, double part) {
    if (!is_part(part)) check.Add(field, absl::StrCat(part, " is not a number of at least 0 and below 1"));
  };
  if (links.given && options.nodes.is_temporal()) {
    check.Add("neighbor_sampling.temporal",
              "is given for links that the dataset divides, which have no times; accepted: with "
              "link_prediction.split drawn");
  }
  const double valid = links.split.valid_part, test = links.split.test_part;
  check_part("link_prediction.valid_part", valid);
  check_part("link_prediction.test_part", test);
  if (is_part(valid) && is_part(test) && valid + test >= 1) {
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
    if (std::isfinite(weights[i]) && weights[i] > 0) continue;
    check.Add(absl::StrCat("class_weights[", i, "]"), absl::StrCat(weights[i], " is not a finite number above 0"));
    break;  // One tells enough: there may be as many as there are classes.
  }
}

void CheckSchedule(const nn::OptimizerOptions& o, FieldChecker& check) {
  const nn::OptimizerOptions defaults;
  const bool is_step = o.schedule == nn::Schedule::kStep, is_plateau = o.schedule == nn::Schedule::kPlateau;
  const auto refuse = [&](const char* field, bool given, const char* accepted) {
    if (!given) return;
    check.Add(absl::StrCat("optimizer.", field),
              absl::StrCat("is given for schedule ", AbslView(nn::kScheduleNames.Name(o.schedule)), "; accepted: for ",
                           accepted));
  };
  if (is_step && o.decay_epochs < 1) {
    check.Add("optimizer.decay_epochs", absl::StrCat(o.decay_epochs, " is not at least 1, which schedule step needs"));
  }
  if (!is_step) refuse("decay_epochs", o.decay_epochs != defaults.decay_epochs, "step");
  if (!is_step && !is_plateau) {
    refuse("decay_factor", o.decay_factor != defaults.decay_factor, "step and plateau");
  } else if (!std::isfinite(o.decay_factor) || o.decay_factor <= 0) {
    check.Add("optimizer.decay_factor", absl::StrCat(o.decay_factor, " is not a finite number above 0"));
  } else if (is_plateau && o.decay_factor >= 1) {
    check.Add("optimizer.decay_factor", absl::StrCat(o.decay_factor, " is not below 1, which schedule plateau needs"));
  }
  if (!is_plateau) {
    refuse("plateau_patience", o.plateau_patience != defaults.plateau_patience, "plateau");
    refuse("plateau_threshold", o.plateau_threshold != defaults.plateau_threshold, "plateau");
    refuse("min_learning_rate", o.min_learning_rate != defaults.min_learning_rate, "plateau");
    return;
  }
  check.InRange("optimizer.plateau_patience", o.plateau_patience, 0, 1'000'000);
  // NaN is within no bounds.
  const double threshold = o.plateau_threshold, least = o.min_learning_rate;
  const bool is_part = threshold >= 0 && threshold < 1, is_below = least >= 0 && least < o.learning_rate;
  if (!is_part) {
    check.Add("optimizer.plateau_threshold", absl::StrCat(threshold, " is not a number of at least 0 and below 1"));
  }
  if (!is_below) {
    check.Add("optimizer.min_learning_rate",
              absl::StrCat(least, " is not a number of at least 0 and below learning_rate, ", o.learning_rate));
  }
}

// What an update is made of, and what is made of it.
void CheckUpdates(const nn::OptimizerOptions& o, FieldChecker& check) {
  if (o.weight_decay_of != nn::WeightDecayOf::kAll && o.weight_decay == 0) {
    check.Add("optimizer.weight_decay_of", "is given without weight_decay; accepted: with one above 0");
  }
  const bool is_part = o.ema_decay >= 0 && o.ema_decay < 1;  // NaN is none
  if (!is_part) {
    check.Add("optimizer.ema_decay", absl::StrCat(o.ema_decay, " is not a number of at least 0 and below 1"));
  }
  check.InRange("optimizer.accumulate_steps", o.accumulate_steps, 1, 65'536);
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

void CheckOptimizer(const nn::OptimizerOptions& o, FieldChecker& check) {
  const double rate = o.learning_rate;
  if (!std::isfinite(rate) || rate <= 0) {
    check.Add("optimizer.learning_rate", absl::StrCat(rate, " is not a finite number above 0"));
  }
  const double decay = o.weight_decay;
  if (!std::isfinite(decay) || decay < 0) {
    check.Add("optimizer.weight_decay", absl::StrCat(decay, " is not a finite number of at least 0"));
  }
  const double norm = o.max_grad_norm;
  if (!std::isfinite(norm) || norm < 0) {
    check.Add("optimizer.max_grad_norm", absl::StrCat(norm, " is not a finite number of at least 0"));
  }
  if (o.warmup_steps < 0) {
    check.Add("optimizer.warmup_steps", absl::StrCat(o.warmup_steps, " is below 0"));
  }
  const bool is_sgd = o.algorithm == nn::OptimizerAlgorithm::kSgd, is_part = o.momentum >= 0 && o.momentum < 1;
  if (!is_part) {
    check.Add("optimizer.momentum", absl::StrCat(o.momentum, " is not a number of at least 0 and below 1"));
  } else if (o.momentum > 0 && !is_sgd) {
    check.Add("optimizer.momentum",
              absl::StrCat("is given for ", AbslView(nn::kOptimizerNames.Name(o.algorithm)), "; accepted: for sgd"));
  }
  if (o.nesterov && (!is_sgd || o.momentum <= 0)) {
    check.Add("optimizer.nesterov", "is given without momentum; accepted: for sgd with momentum");
  }
  CheckSchedule(o, check);
  CheckUpdates(o, check);
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
  CheckModel(options, check);
  CheckOptimizer(options.optimizer, check);
  CheckWeights(options, check);
  CheckLoss(options, check);
  CheckMetrics(options, check);
  CheckFolds(options, check);
  CheckLinks(options, check);
  CheckNodeTraining(options, check);
  CheckDraws(options, prefix, violations);
  CheckBatching(options, check);
  check.InRange("epochs", options.epochs, 1, 1'000'000);
  check.InRange("patience", options.patience, 0, 1'000'000);
  check.InRange("batch_size", options.batch_size, 1, 65'536);
  if (options.checkpoint.every_steps < 0) {
    check.Add("checkpoint.every_steps", absl::StrCat(options.checkpoint.every_steps, " is below 0"));
  }
  check.InRange("checkpoint.every_seconds", options.checkpoint.every_seconds, 0, 86'400);
  check.InRange("checkpoint.keep", options.checkpoint.keep, 1, 100);
  graphcache::Validate(options.graph_cache, absl::StrCat(AbslView(prefix), "graph_cache."), violations);
}

}  // namespace permafrost::train
