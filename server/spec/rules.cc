// CheckRules: the rules that the rows of options cannot express.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "spec/checks.h"

namespace permafrost::spec {
namespace {

// Returns the names of the models with a trait: "gine and gatv2".
template <class Has>
std::string ModelsWith(Has has) {
  std::string names;
  for (const ModelTraits& traits : kOwnModels) {
    if (has(traits)) absl::StrAppend(&names, names.empty() ? "" : " and ", AbslView(traits.name));
  }
  return names;
}

void CheckHeads(const ModelOptions& model, FieldChecker& check) {
  const ModelTraits& traits = TraitsOf(model.architecture);
  if (model.heads > 1 && !traits.has_heads) {
    check.Add("model.heads", absl::StrCat("is given for ", AbslView(traits.name), ", which has none; accepted: for ",
                                          ModelsWith([](const ModelTraits& m) { return m.has_heads; })));
  } else if (model.heads > 0 && model.hidden_channels % model.heads != 0) {
    check.Add("model.heads", absl::StrCat(model.heads, " heads do not divide ", model.hidden_channels,
                                          " hidden_channels; each takes an equal part"));
  }
}

void CheckAggregation(const ModelOptions& model, FieldChecker& check) {
  if (model.aggregation == Aggregation::kMean) return;
  const ModelTraits& traits = TraitsOf(model.architecture);
  const std::string_view name = kAggregationNames.Name(model.aggregation);
  if (!traits.has_aggregation) {
    check.Add("model.aggregation",
              absl::StrCat(AbslView(name), " is given for ", AbslView(traits.name), "; accepted: for ",
                           ModelsWith([](const ModelTraits& m) { return m.has_aggregation; })));
  } else if (model.lowering == Lowering::kShapeFree) {
    check.Add("model.aggregation",
              absl::StrCat(AbslView(name), " is given with lowering shape-free, which has none; accepted: mean"));
  }
}

void CheckInputs(const ModelOptions& model, FieldChecker& check) {
  if (model.level != ModelLevel::kNode) {
    if (model.node_inputs == NodeInputs::kLearned) {
      check.Add("model.node_inputs", "learned is given for a set of graphs; accepted: features, degree, constant");
    }
    return;
  }
  const ModelTraits& traits = TraitsOf(model.architecture);
  if (model.node_inputs == NodeInputs::kLearned && traits.is_program) {
    check.Add("model.node_inputs",
              "learned is given for a program, whose weights are its own; accepted: features, degree, constant");
  }
  if (model.edge_inputs == EdgeInputs::kAuto) return;
  const bool none = model.edge_inputs == EdgeInputs::kNone;
  if (traits.edges == EdgeUse::kNone && !none) {
    check.Add("model.edge_inputs",
              absl::StrCat(AbslView(kEdgeInputsNames.Name(model.edge_inputs)), " is given for ", AbslView(traits.name),
                           ", which reads no features of edges; accepted: for ",
                           ModelsWith([](const ModelTraits& m) { return m.edges != EdgeUse::kNone; })));
  } else if (traits.edges == EdgeUse::kNeeded && none) {
    check.Add("model.edge_inputs", absl::StrCat("none is given for ", AbslView(traits.name),
                                                ", which reads features of edges; accepted: features, weights"));
  }
}

void CheckProgram(const ModelOptions& model, FieldChecker& check) {
  const ModelTraits& traits = TraitsOf(model.architecture);
  if (!traits.is_program) {
    if (model.program.empty()) return;
    check.Add("model.program", absl::StrCat("is given for ", AbslView(traits.name), "; accepted: for program"));
  } else if (model.program.empty()) {
    check.Add("model.program", "is required for program: the name of an imported one");
  }
}

void CheckModel(const ModelOptions& model, FieldChecker& check) {
  CheckProgram(model, check);
  const ModelTraits& traits = TraitsOf(model.architecture);
  if (!traits.Serves(model.level)) {
    const bool of_nodes = model.level == ModelLevel::kNode;
    check.Add("model.architecture",
              absl::StrCat(AbslView(traits.name), " is no model of ", of_nodes ? "one large graph" : "a set of graphs",
                           "; accepted: ", ModelsOf(model.level, ", ")));
  }
  CheckHeads(model, check);
  CheckAggregation(model, check);
  CheckInputs(model, check);
}

void CheckSchedule(const OptimizerOptions& o, FieldChecker& check) {
  if (o.schedule == Schedule::kStep && o.decay_epochs < 1) {
    check.Add("optimizer.decay_epochs", absl::StrCat(o.decay_epochs, " is not at least 1, which schedule step needs"));
  }
  if (o.schedule != Schedule::kPlateau) return;
  if (o.decay_factor >= 1) {
    check.Add("optimizer.decay_factor", absl::StrCat(o.decay_factor, " is not below 1, which schedule plateau needs"));
  }
  // The comparisons are written so that they are false for NaN, which is thus refused.
  const double least = o.min_learning_rate;
  const bool is_below = least >= 0 && least < o.learning_rate;
  if (!is_below) {
    check.Add("optimizer.min_learning_rate",
              absl::StrCat(least, " is not a number of at least 0 and below learning_rate, ", o.learning_rate));
  }
}

void CheckOptimizer(const TrainOptions& options, FieldChecker& check) {
  const OptimizerOptions& o = options.optimizer;
  if (o.nesterov && (o.algorithm != OptimizerAlgorithm::kSgd || o.momentum <= 0)) {
    check.Add("optimizer.nesterov", "is given without momentum; accepted: for sgd with momentum");
  }
  CheckSchedule(o, check);
  if (o.weight_decay_of == WeightDecayOf::kFirstLayer && !Holds(Need::kLayers, options)) {
    check.Add("optimizer.weight_decay_of", RefusalOf(Need::kLayers, options));
  }
  if (!Walks(options) && o.algorithm == OptimizerAlgorithm::kSparseAdam) {
    check.Add("optimizer.algorithm",
              absl::StrCat("sparse_adam is given for ", AbslView(kArchitectureNames.Name(options.model.architecture)),
                           ", whose gradients are not of few rows; accepted: adam, adamw, sgd"));
  }
}

// `field` is "fan_outs" or "eval_fan_outs". A program may have any number of entries, because its layers are unknown.
void CheckFanOuts(std::string_view field, const std::vector<int64_t>& fan_outs, const ModelOptions& model,
                  FieldChecker& check) {
  const std::string name = absl::StrCat("neighbor_sampling.", AbslView(field));
  const auto hops = static_cast<int64_t>(fan_outs.size());
  if (hops > kMaxHops) {
    check.Add(name, absl::StrCat("has ", hops, " entries; at most ", kMaxHops, " are accepted"));
  } else if (hops != model.num_layers && !TraitsOf(model.architecture).is_program) {
    check.Add(name, absl::StrCat("has ", hops, hops == 1 ? " entry" : " entries", ", but model.num_layers is ",
                                 model.num_layers, "; accepted: one for each layer"));
  }
  for (int64_t i = 0; i < std::min(hops, kMaxHops); ++i) {
    const int64_t fan_out = fan_outs[static_cast<size_t>(i)];
    if (!IsFanOut(fan_out)) {
      check.Add(absl::StrCat(name, "[", i, "]"), absl::StrCat(fan_out, " is neither in 1..", kMaxFanOut, " nor ",
                                                              kAllNeighbors, ", which takes all neighbours"));
    }
  }
}

void CheckSampling(const TrainOptions& options, FieldChecker& check) {
  const NodeTrainingOptions& nodes = options.nodes;
  if (options.model.level != ModelLevel::kNode || Walks(options) || nodes.fan_outs.empty()) return;
  const auto refuse = [&](bool given, std::string_view field, std::string_view description) {
    if (given) check.Add(absl::StrCat("neighbor_sampling.", AbslView(field)), description);
  };
  CheckFanOuts("fan_outs", nodes.fan_outs, options.model, check);
  if (!nodes.eval_fan_outs.empty()) {
    CheckFanOuts("eval_fan_outs", nodes.eval_fan_outs, options.model, check);
    refuse(nodes.layer_wise_evaluation, "eval_fan_outs",
           "is given with layer_wise_evaluation, which takes every neighbour");
  }
  const bool temporal = nodes.is_temporal(), timed = nodes.seed_time.has_value();
  if (const auto conflict = FindDrawConflict(nodes)) refuse(true, conflict->field, conflict->description);
  refuse(timed && !temporal, "seed_time", "is given without temporal; accepted: with temporal uniform or last");
  refuse(temporal && nodes.layer_wise_evaluation, "layer_wise_evaluation",
         "is given with temporal, and would see edges of any time; accepted: without, which evaluates by samples");
  refuse(temporal && options.model.node_inputs == NodeInputs::kDegree, "temporal",
         "is given with node_inputs degree, which counts edges of any time; accepted: features, learned, constant");
  refuse(temporal && timed && options.links.enabled, "seed_time",
         "is given with link_prediction, whose links have times of their own; accepted: without");
}

void CheckBatching(const TrainOptions& options, FieldChecker& check) {
  const BatchingOptions& batching = options.batching;
  const bool is_budget = batching.kind == BatchingKind::kBudget;
  if (options.model.level == ModelLevel::kNode && batching != BatchingOptions()) {
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
    if (is_budget && options.nodes.sampler == SamplerKind::kLabor) {
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
      check.Add(field, absl::StrCat("is given for batching ", AbslView(kBatchingNames.Name(batching.kind)),
                                    "; accepted: for budget"));
    } else {
      check.InRange(field, bound, 1, kMaxBudget);
    }
  };
  check_bound("batching.max_nodes", batching.max_nodes);
  check_bound("batching.max_edges", batching.max_edges);
}

void CheckLinks(const TrainOptions& options, FieldChecker& check) {
  const LinkOptions& links = options.links;
  if (!links.enabled || options.model.level != ModelLevel::kNode) return;
  if (IsProgram(options) && links.score != LinkScore::kDot) {
    check.Add("link_prediction.decoder",
              absl::StrCat(AbslView(kLinkScoreNames.Name(links.score)),
                           " is given for a program, whose weights are its own; accepted: dot"));
  }
  if (options.loss != Loss::kBce && !Walks(options)) {
    check.Add("loss", absl::StrCat(AbslView(kLossNames.Name(options.loss)), " is no loss of links; accepted: bce"));
  }
  if (links.given && options.nodes.is_temporal()) {
    check.Add("neighbor_sampling.temporal",
              "is given for links that the dataset divides, which have no times; accepted: with "
              "link_prediction.split drawn");
  }
  const double valid = links.split.valid_part, test = links.split.test_part;
  if (valid >= 0 && valid < 1 && test >= 0 && test < 1 && valid + test >= 1) {
    check.Add("link_prediction.test_part",
              absl::StrCat(test, " and valid_part ", valid, " leave nothing to train on; accepted: a sum below 1"));
  }
  if (!options.nodes.eval_fan_outs.empty() && !options.nodes.is_temporal() && !IsProgram(options)) {
    check.Add(
        "neighbor_sampling.eval_fan_outs",
        "is given with link_prediction, whose evaluation takes every neighbour; accepted: with temporal, or with a "
        "program");
  }
}

void CheckClassWeights(const TrainOptions& options, FieldChecker& check) {
  const std::vector<double>& weights = options.class_weights;
  if (weights.empty() || Walks(options)) return;
  if (!HasClasses(options.loss)) {
    check.Add("class_weights", absl::StrCat("is given for loss ", AbslView(kLossNames.Name(options.loss)),
                                            "; accepted: for cross-entropy and bce"));
  } else if (TraitsOf(options.loss).labels == LabelKind::kBinary && weights.size() != 2) {
    check.Add("class_weights", absl::StrCat("has ", weights.size(), weights.size() == 1 ? " entry" : " entries",
                                            "; accepted for bce: two, the weights of labels 0 and 1"));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    // Stops at the first bad weight, because thousands of classes could give as many violations.
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
    const Metric metric = options.metrics[i];
    const std::string field = absl::StrCat("metrics[", i, "]");
    const std::string_view name = kMetricNames.Name(metric);
    if (std::find(options.metrics.begin(), options.metrics.begin() + static_cast<std::ptrdiff_t>(i), metric) !=
        options.metrics.begin() + static_cast<std::ptrdiff_t>(i)) {
      check.Add(field, absl::StrCat(AbslView(name), " stands there already; each is accepted once"));
    } else if (const auto measures =
                   [&options](Metric of) {
                     // CheckWalks checks the metrics of a node2vec job.
                     if (Walks(options)) return true;
                     return options.links.enabled ? TraitsOf(of).of_links : Measures(of, options.loss);
                   };
               !measures(metric)) {
      std::string accepted;
      for (const auto& [other, other_name] : kMetricNames.rows) {
        if (!measures(other)) continue;
        absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", AbslView(other_name));
      }
      const std::string what =
          options.links.enabled ? "links" : absl::StrCat("loss ", AbslView(kLossNames.Name(options.loss)));
      check.Add(field, absl::StrCat(AbslView(name), " does not measure ", what, "; accepted: ", accepted));
    }
  }
}

void CheckFolds(const TrainOptions& options, FieldChecker& check) {
  const CrossValidation& folds = options.cross_validation;
  if (folds == CrossValidation() || options.model.level == ModelLevel::kNode) return;
  constexpr int64_t kLeastFolds = 3, kMostFolds = 1000;
  if (check.InRange("cross_validation.folds", folds.folds, kLeastFolds, kMostFolds)) {
    check.InRange("cross_validation.fold", folds.fold, 0, folds.folds - 1);
  }
}

void CheckWalks(const TrainOptions& options, FieldChecker& check) {
  if (!Walks(options) || options.model.level != ModelLevel::kNode) return;
  const Node2VecOptions& walks = options.node2vec;
  if (walks.context_size < 2 || walks.context_size > std::max<int64_t>(walks.walk_length, 2)) {
    check.Add("node2vec.context_size",
              absl::StrCat(walks.context_size, " is outside 2..", walks.walk_length, ", the nodes of a walk"));
  }
  if (options.loss != Loss::kBce) {
    check.Add("loss", absl::StrCat(AbslView(kLossNames.Name(options.loss)), " is no loss of node2vec; accepted: bce"));
  }
  for (size_t i = 0; i < options.metrics.size(); ++i) {
    const Metric metric = options.metrics[i];
    if (metric == Metric::kRocAuc || metric == Metric::kAveragePrecision) continue;
    check.Add(absl::StrCat("metrics[", i, "]"),
              absl::StrCat(AbslView(kMetricNames.Name(metric)),
                           " does not measure pairs of walks; accepted: roc_auc, average_precision"));
  }
}

// Checks the options of a job on several daemons. A batch is divided among the daemons, and only the operators of
// lowering auto can sum over all of its parts.
void CheckReplicas(const TrainOptions& options, FieldChecker& check) {
  const int64_t most = std::max<int64_t>(1, options.replicas);
  if (options.min_replicas > most) {
    check.Add("min_replicas",
              absl::StrCat(options.min_replicas, " is given with replicas ", most, "; accepted: 0 to ", most));
  }
  if (options.replicas <= 1) return;
  const auto refuse = [&](absl::string_view why) {
    check.Add("replicas", absl::StrCat(options.replicas, " is given ", why));
  };
  if (options.batch_size < options.replicas) {
    refuse(absl::StrCat("for a batch size of ", options.batch_size, "; accepted: at most the batch size"));
  }
  if (Walks(options)) {
    refuse("with model node2vec; accepted: 1, or another model");
  } else if (options.model.level == ModelLevel::kNode && options.nodes.fan_outs.empty()) {
    refuse(
        "for steps on the whole graph, which ranks cannot divide; accepted: 1, or any with neighbor_sampling.fan_outs");
  }
  if (options.model.lowering != Lowering::kAuto) {
    refuse(absl::StrCat("with lowering ", AbslView(kLoweringNames.Name(options.model.lowering)), "; accepted: auto"));
  }
  if (options.non_finite == NonFinite::kRewind) refuse("with non_finite rewind; accepted: fail");
  // With an executable for each shape, the ranks would capture at different steps, and at each capture all other
  // ranks would wait.
  const PolicyOptions& cache = options.graph_cache;
  const bool is_dynamic =
      cache.policy == Policy::kFreeze && (cache.shapes == Shapes::kAuto || cache.shapes == Shapes::kDynamic);
  if (!is_dynamic && cache.policy != Policy::kNever) {
    refuse(absl::StrCat("with graph cache policy ", AbslView(kPolicyNames.Name(cache.policy)), " and shapes ",
                        AbslView(kShapesNames.Name(cache.shapes)),
                        "; accepted: freeze with shapes auto or dynamic, or never"));
  }
}

}  // namespace

void CheckRules(const TrainOptions& options, FieldChecker& check) {
  CheckModel(options.model, check);
  CheckOptimizer(options, check);
  CheckWeights(options, check);
  CheckClassWeights(options, check);
  CheckMetrics(options, check);
  CheckFolds(options, check);
  CheckLinks(options, check);
  CheckSampling(options, check);
  CheckWalks(options, check);
  CheckBatching(options, check);
  CheckReplicas(options, check);
}

}  // namespace permafrost::spec
