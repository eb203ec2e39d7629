// The losses and metrics of a job. Threads: values.
#pragma once

#include <cstdint>

#include "base/enum_names.h"

namespace permafrost::spec {

// kCrossEntropy: one label a row, a class 0..C-1. kBce: binary cross-entropy on logits, each target by itself 0 or 1.
enum class Loss { kL1, kMse, kCrossEntropy, kBce };
inline constexpr EnumNames<Loss, 4> kLossNames{
    {{{Loss::kL1, "l1"}, {Loss::kMse, "mse"}, {Loss::kCrossEntropy, "cross-entropy"}, {Loss::kBce, "bce"}}}};

// The figures that evaluation can report beside the loss; nn/metrics.h explains each.
enum class Metric {
  kMae,
  kAccuracy,
  kRocAuc,
  kF1Macro,
  kF1Micro,
  kAveragePrecision,
  kRmse,
  kR2,
  // These serve link prediction alone: nn/link_metrics.h.
  kMrr,
  kHitsAt10,
  kHitsAt20,
  kHitsAt50,
  kHitsAt100
};
inline constexpr EnumNames<Metric, 13> kMetricNames{{{{Metric::kMae, "mae"},
                                                      {Metric::kAccuracy, "accuracy"},
                                                      {Metric::kRocAuc, "roc_auc"},
                                                      {Metric::kF1Macro, "f1_macro"},
                                                      {Metric::kF1Micro, "f1_micro"},
                                                      {Metric::kAveragePrecision, "average_precision"},
                                                      {Metric::kRmse, "rmse"},
                                                      {Metric::kR2, "r2"},
                                                      {Metric::kMrr, "mrr"},
                                                      {Metric::kHitsAt10, "hits_at_10"},
                                                      {Metric::kHitsAt20, "hits_at_20"},
                                                      {Metric::kHitsAt50, "hits_at_50"},
                                                      {Metric::kHitsAt100, "hits_at_100"}}}};
// The metric of a job that asks for none.
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
constexpr bool IsRanking(Metric metric) { return metric >= Metric::kMrr; }
// Returns whether the metric says anything of what a model of graphs or nodes learned by this loss.
constexpr bool Measures(Metric metric, Loss loss) {
  if (IsRanking(metric)) return false;
  const bool of_values = metric == Metric::kMae || metric == Metric::kRmse || metric == Metric::kR2;
  return of_values == (loss == Loss::kL1 || loss == Loss::kMse);
}

// Returns whether the metric says anything of predicted links.
constexpr bool MeasuresLinks(Metric metric) {
  return IsRanking(metric) || metric == Metric::kRocAuc || metric == Metric::kAveragePrecision;
}

}  // namespace permafrost::spec
