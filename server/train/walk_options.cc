#include "train/walk_options.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// The values in PyG's example.
constexpr int64_t kBatchSize = 128;
constexpr double kLearningRate = 0.01;

// why: what node2vec has, or has not.
void Refuse(bool given, std::string_view field, std::string_view why, FieldChecker& check) {
  if (given) check.Add(field, absl::StrCat("is given for node2vec, which ", AbslView(why), "; accepted: without"));
}

void RefuseModelOptions(const nn::ModelOptions& model, FieldChecker& check) {
  const nn::ModelOptions none;
  const auto refuse_layers = [&check](bool given, std::string_view field) {
    Refuse(given, absl::StrCat("model.", AbslView(field)), "has no layers", check);
  };
  refuse_layers(model.num_layers != 1, "num_layers");
  refuse_layers(model.dropout != 0, "dropout");
  refuse_layers(model.norm != nn::Norm::kNone, "norm");
  refuse_layers(model.residual, "residual");
  refuse_layers(model.jumping_knowledge != none.jumping_knowledge, "jumping_knowledge");
  const auto refuse_features = [&check](bool given, std::string_view field) {
    Refuse(given, absl::StrCat("model.", AbslView(field)), "reads no features", check);
  };
  refuse_features(model.input_dropout != 0, "input_dropout");
  refuse_features(model.normalize_features, "normalize_features");
  refuse_features(model.node_inputs != none.node_inputs, "node_inputs");
  Refuse(model.precision != none.precision, "model.precision", "has no products with weights", check);
}

void RefuseSampling(const NodeTrainingOptions& nodes, FieldChecker& check) {
  const NodeTrainingOptions none;
  const auto refuse = [&check](bool given, std::string_view field) {
    Refuse(given, absl::StrCat("neighbor_sampling.", AbslView(field)), "walks in place of drawing neighbours", check);
  };
  refuse(!nodes.fan_outs.empty(), "fan_outs");
  refuse(!nodes.eval_fan_outs.empty(), "eval_fan_outs");
  refuse(nodes.replace, "replace");
  refuse(nodes.weighted, "weighted");
  refuse(nodes.layer_wise_evaluation, "layer_wise_evaluation");
  refuse(nodes.look_ahead != none.look_ahead, "look_ahead");
  refuse(!nodes.advise_pages, "no_page_advice");
  refuse(nodes.disjoint, "disjoint");
  refuse(nodes.is_temporal(), "temporal");
  refuse(nodes.seed_time.has_value(), "seed_time");
  refuse(nodes.sampler != none.sampler, "sampler");
}

// Refuses options that would change rows without a gradient in a step.
void CheckSparseAdam(const nn::OptimizerOptions& o, FieldChecker& check) {
  const auto refuse = [&check](bool given, std::string_view field) {
    if (!given) return;
    check.Add(absl::StrCat("optimizer.", AbslView(field)), "is given for sparse_adam; accepted: for adam, adamw, sgd");
  };
  refuse(o.weight_decay != 0, "weight_decay");
  refuse(o.max_grad_norm != 0, "max_grad_norm");
  refuse(o.ema_decay != 0, "ema_decay");
  refuse(o.accumulate_steps > 1, "accumulate_steps");
}

}  // namespace

void SetNode2VecDefaults(TrainOptions& options) {
  options.model.num_layers = 1;
  options.loss = nn::Loss::kBce;
  options.batch_size = kBatchSize;
  options.optimizer.algorithm = nn::OptimizerAlgorithm::kSparseAdam;
  options.optimizer.learning_rate = kLearningRate;
}

void CheckWalks(const TrainOptions& options, FieldChecker& check) {
  const bool sparse = options.optimizer.algorithm == nn::OptimizerAlgorithm::kSparseAdam;
  if (!Walks(options)) {
    if (sparse) {
      check.Add(
          "optimizer.algorithm",
          absl::StrCat("sparse_adam is given for ", AbslView(nn::kArchitectureNames.Name(options.model.architecture)),
                       ", whose gradients are not of few rows; accepted: adam, adamw, sgd"));
    }
    return;
  }
  if (options.model.level != nn::ModelLevel::kNode) return;
  const Node2VecOptions& walks = options.node2vec;
  constexpr int64_t kMostLength = 1000, kMostWalks = 1000, kMostNegatives = 100;
  const bool can_walk = check.InRange("node2vec.walk_length", walks.walk_length, 2, kMostLength);
  if (can_walk && (walks.context_size < 2 || walks.context_size > walks.walk_length)) {
    check.Add("node2vec.context_size",
              absl::StrCat(walks.context_size, " is outside 2..", walks.walk_length, ", the nodes of a walk"));
  }
  check.InRange("node2vec.walks_per_node", walks.walks_per_node, 1, kMostWalks);
  check.InRange("node2vec.num_negative_samples", walks.num_negative_samples, 1, kMostNegatives);
  check.IsPositive("node2vec.p", walks.p);
  check.IsPositive("node2vec.q", walks.q);
  RefuseModelOptions(options.model, check);
  RefuseSampling(options.nodes, check);
  if (sparse) CheckSparseAdam(options.optimizer, check);
  Refuse(options.optimizer.weight_decay_of == nn::WeightDecayOf::kFirstLayer, "optimizer.weight_decay_of",
         "has no layers", check);
  Refuse(options.links.enabled, "link_prediction", "learns from walks alone", check);
  Refuse(!options.class_weights.empty(), "class_weights", "reads no labels", check);
  if (options.loss != nn::Loss::kBce) {
    check.Add("loss",
              absl::StrCat(AbslView(nn::kLossNames.Name(options.loss)), " is no loss of node2vec; accepted: bce"));
  }
  for (size_t i = 0; i < options.metrics.size(); ++i) {
    const nn::Metric metric = options.metrics[i];
    if (metric == nn::Metric::kRocAuc || metric == nn::Metric::kAveragePrecision) continue;
    check.Add(absl::StrCat("metrics[", i, "]"),
              absl::StrCat(AbslView(nn::kMetricNames.Name(metric)),
                           " does not measure pairs of walks; accepted: roc_auc, average_precision"));
  }
}

}  // namespace permafrost::train
