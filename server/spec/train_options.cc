#include "spec/train_options.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "spec/checks.h"

namespace permafrost::spec {
namespace {

// The values of PyG's example.
constexpr int64_t kNode2VecBatchSize = 128;
constexpr double kNode2VecLearningRate = 0.01;

}  // namespace

bool EvaluatesLayerWise(const TrainOptions& options) {
  return options.nodes.layer_wise_evaluation ||
         (options.links.enabled && !options.nodes.fan_outs.empty() && !options.nodes.is_temporal());
}

bool EvaluatesOutsideCache(const TrainOptions& options) {
  return EvaluatesLayerWise(options) || (options.links.enabled && options.nodes.is_temporal());
}

std::vector<Metric> MetricsOf(const TrainOptions& options) {
  if (!options.metrics.empty()) return options.metrics;
  return {options.links.enabled ? Metric::kMrr : TraitsOf(options.loss).metric};
}

std::string ModelsOf(ModelLevel level, std::string_view separator) {
  std::string names;
  for (const ModelTraits& model : kModels) {
    if (!model.Serves(level)) continue;
    absl::StrAppend(&names, names.empty() ? "" : AbslView(separator), AbslView(model.name));
  }
  return names;
}

TrainOptions DefaultOptions(ModelLevel level) {
  const LevelDefaults defaults = DefaultsOf(level);
  TrainOptions options;
  options.model.architecture = defaults.architecture;
  options.model.level = level;
  options.model.num_layers = defaults.num_layers;
  options.model.norm = defaults.norm;
  options.loss = defaults.loss;
  options.batch_size = defaults.batch_size;
  return options;
}

void SetNode2VecDefaults(TrainOptions& options) {
  options.model.num_layers = 1;
  options.loss = Loss::kBce;
  options.batch_size = kNode2VecBatchSize;
  options.optimizer.algorithm = OptimizerAlgorithm::kSparseAdam;
  options.optimizer.learning_rate = kNode2VecLearningRate;
}

TrainOptions UsualOptions(const TrainOptions& options) {
  TrainOptions usual = DefaultOptions(options.model.level);
  usual.model.architecture = options.model.architecture;
  if (Walks(options)) SetNode2VecDefaults(usual);
  return usual;
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
  RowCheck(check, &options).Visit(options, UsualOptions(options));
  CheckRules(options, check);
  CheckStrict(options.graph_cache, absl::StrCat(AbslView(prefix), "graph_cache."), violations);
}

}  // namespace permafrost::spec
