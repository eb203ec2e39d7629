// What a model, its loss and its optimizer are, without torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enum_names.h"

namespace permafrost::nn {

enum class Pooling { kMean, kSum };
inline constexpr EnumNames<Pooling, 2> kPoolingNames{{{{Pooling::kMean, "mean"}, {Pooling::kSum, "sum"}}}};

// kCrossEntropy: one label a row, a class 0..C-1. kBce: binary cross-entropy on logits, each target by itself 0 or 1.
enum class Loss { kL1, kMse, kCrossEntropy, kBce };
inline constexpr EnumNames<Loss, 4> kLossNames{
    {{{Loss::kL1, "l1"}, {Loss::kMse, "mse"}, {Loss::kCrossEntropy, "cross-entropy"}, {Loss::kBce, "bce"}}}};

// What evaluation can report beside the loss; nn/metrics.h says what each is.
enum class Metric { kMae, kAccuracy, kRocAuc, kF1Macro, kF1Micro, kAveragePrecision, kRmse, kR2 };
inline constexpr EnumNames<Metric, 8> kMetricNames{{{{Metric::kMae, "mae"},
                                                     {Metric::kAccuracy, "accuracy"},
                                                     {Metric::kRocAuc, "roc_auc"},
                                                     {Metric::kF1Macro, "f1_macro"},
                                                     {Metric::kF1Micro, "f1_micro"},
                                                     {Metric::kAveragePrecision, "average_precision"},
                                                     {Metric::kRmse, "rmse"},
                                                     {Metric::kR2, "r2"}}}};
// What a job reports that says nothing of metrics.
constexpr Metric MetricOf(Loss loss) {
  switch (loss) {
    case Loss::kCrossEntropy:
      return Metric::kAccuracy;
    case Loss::kBce:
      return Metric::kRocAuc;
    default:
      return Metric::kMae;
  }
}
constexpr bool HigherIsBetter(Metric metric) { return metric != Metric::kMae && metric != Metric::kRmse; }
// Whether the metric says anything of what a model learned by this loss.
constexpr bool Measures(Metric metric, Loss loss) {
  const bool of_values = metric == Metric::kMae || metric == Metric::kRmse || metric == Metric::kR2;
  return of_values == (loss == Loss::kL1 || loss == Loss::kMse);
}

enum class Architecture { kGine, kSage, kGcn };

// What a model predicts for: each graph of a set of many, or each node of one large graph.
enum class ModelLevel { kGraph, kNode };

// What is known of a model without torch. Its weights, its steps and what they cost: nn/models/registry.h.
struct ModelTraits {
  Architecture architecture;
  std::string_view name;
  ModelLevel level;
  bool pools;                    // whether ModelOptions::pooling has a meaning
  bool weighs_messages = false;  // whether it reads the weights of a graph's edges
  // Whether its first layer begins with the plain mean of each row's neighbours, and the row beside it: of dense
  // features that can be made while a batch is gathered.
  bool begins_with_means = false;
  // Of a job that names the model and nothing else.
  int64_t num_layers, batch_size;
  Loss loss;
};
inline constexpr std::array kModels{ModelTraits{.architecture = Architecture::kGine,
                                                .name = "gine",
                                                .level = ModelLevel::kGraph,
                                                .pools = true,
                                                .num_layers = 4,
                                                .batch_size = 32,
                                                .loss = Loss::kL1},
                                    ModelTraits{.architecture = Architecture::kSage,
                                                .name = "sage",
                                                .level = ModelLevel::kNode,
                                                .pools = false,
                                                .begins_with_means = true,
                                                .num_layers = 2,
                                                .batch_size = 1024,
                                                .loss = Loss::kCrossEntropy},
                                    ModelTraits{.architecture = Architecture::kGcn,
                                                .name = "gcn",
                                                .level = ModelLevel::kNode,
                                                .pools = false,
                                                .weighs_messages = true,
                                                .num_layers = 2,
                                                .batch_size = 1024,
                                                .loss = Loss::kCrossEntropy}};

constexpr const ModelTraits& TraitsOf(Architecture architecture) {
  for (const ModelTraits& model : kModels)
    if (model.architecture == architecture) return model;
  return kModels.front();
}
constexpr bool IsNodeLevel(Architecture architecture) { return TraitsOf(architecture).level == ModelLevel::kNode; }

inline constexpr auto kArchitectureNames = [] {
  EnumNames<Architecture, kModels.size()> names{};
  for (size_t i = 0; i < kModels.size(); ++i) names.rows[i] = {kModels[i].architecture, kModels[i].name};
  return names;
}();

// What a step is made of: the CPU's fused operators; those of PyTorch that say it best; or those that add no entry to
// the graph cache of MPS (nn/ops/lowering.h). kAuto: shape-free on MPS, fused on the CPU, else plain.
enum class Lowering { kAuto, kPlain, kShapeFree };
inline constexpr EnumNames<Lowering, 3> kLoweringNames{
    {{{Lowering::kAuto, "auto"}, {Lowering::kPlain, "plain"}, {Lowering::kShapeFree, "shape-free"}}}};

enum class OptimizerAlgorithm { kAdam, kAdamW };
inline constexpr EnumNames<OptimizerAlgorithm, 2> kOptimizerNames{
    {{{OptimizerAlgorithm::kAdam, "adam"}, {OptimizerAlgorithm::kAdamW, "adamw"}}}};

enum class Schedule { kConstant, kCosine };
inline constexpr EnumNames<Schedule, 2> kScheduleNames{
    {{{Schedule::kConstant, "constant"}, {Schedule::kCosine, "cosine"}}}};

struct ModelOptions {
  Architecture architecture = Architecture::kGine;
  int64_t hidden_channels = 64;  // 1..4096
  int64_t num_layers = 4;        // 1..64
  Pooling pooling = Pooling::kMean;
  double dropout = 0;  // 0 <= p < 1, after each layer
  Lowering lowering = Lowering::kAuto;
  bool operator==(const ModelOptions&) const = default;
};

struct OptimizerOptions {
  OptimizerAlgorithm algorithm = OptimizerAlgorithm::kAdam;
  double learning_rate = 1e-3;  // > 0
  double weight_decay = 0;      // >= 0; into the gradient for Adam, decoupled for AdamW
  double max_grad_norm = 0;     // gradients are scaled down to this norm; 0: not clipped
  // learning_rate is what warm-up rises to and the schedule begins with.
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_steps = 0;  // >= 0
  bool operator==(const OptimizerOptions&) const = default;
};

}  // namespace permafrost::nn
