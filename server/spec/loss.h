// The losses and metrics of a job, one row for each. Threads: plain values.
#pragma once

#include <array>
#include <string_view>

#include "base/enum_names.h"

namespace permafrost::spec {

// The labels with which a loss compares predictions. kValues: arbitrary numbers. kClass: one class 0..C-1 per row.
// kBinary: 0 or 1 per target.
enum class LabelKind { kValues, kClass, kBinary };

// The metrics that evaluation can report beside the loss (explained in nn/metrics.h). kMrr and the metrics after it
// serve only link prediction.
enum class Metric {
  kMae,
  kAccuracy,
  kRocAuc,
  kF1Macro,
  kF1Micro,
  kAveragePrecision,
  kRmse,
  kR2,
  kMrr,
  kHitsAt10,
  kHitsAt20,
  kHitsAt50,
  kHitsAt100
};

struct MetricTraits {
  Metric metric;
  std::string_view name;
  std::string_view title;  // the name shown to users
  bool of_values = false;  // true: for losses of values; false: for losses of classes and of binary labels
  bool of_links = false;   // true: the metric can measure link predictions
  bool ranking = false;    // true: the metric can measure nothing but link predictions
  bool higher_is_better = true;
};
inline constexpr std::array kMetrics{
    MetricTraits{.metric = Metric::kMae, .name = "mae", .title = "MAE", .of_values = true, .higher_is_better = false},
    MetricTraits{.metric = Metric::kAccuracy, .name = "accuracy", .title = "accuracy"},
    MetricTraits{.metric = Metric::kRocAuc, .name = "roc_auc", .title = "ROC-AUC", .of_links = true},
    MetricTraits{.metric = Metric::kF1Macro, .name = "f1_macro", .title = "macro F1"},
    MetricTraits{.metric = Metric::kF1Micro, .name = "f1_micro", .title = "micro F1"},
    MetricTraits{
        .metric = Metric::kAveragePrecision, .name = "average_precision", .title = "avg. precision", .of_links = true},
    MetricTraits{
        .metric = Metric::kRmse, .name = "rmse", .title = "RMSE", .of_values = true, .higher_is_better = false},
    MetricTraits{.metric = Metric::kR2, .name = "r2", .title = "R2", .of_values = true},
    MetricTraits{.metric = Metric::kMrr, .name = "mrr", .title = "MRR", .of_links = true, .ranking = true},
    MetricTraits{
        .metric = Metric::kHitsAt10, .name = "hits_at_10", .title = "hits@10", .of_links = true, .ranking = true},
    MetricTraits{
        .metric = Metric::kHitsAt20, .name = "hits_at_20", .title = "hits@20", .of_links = true, .ranking = true},
    MetricTraits{
        .metric = Metric::kHitsAt50, .name = "hits_at_50", .title = "hits@50", .of_links = true, .ranking = true},
    MetricTraits{
        .metric = Metric::kHitsAt100, .name = "hits_at_100", .title = "hits@100", .of_links = true, .ranking = true}};
inline constexpr auto kMetricNames = NamesFrom(kMetrics, &MetricTraits::metric);
constexpr const MetricTraits& TraitsOf(Metric metric) { return RowOf(kMetrics, &MetricTraits::metric, metric); }

enum class Loss { kL1, kMse, kCrossEntropy, kBce };

struct LossTraits {
  Loss loss;
  std::string_view name;
  LabelKind labels;
  Metric metric;  // the default metric of a job with this loss
};
// kBce is binary cross-entropy on logits.
inline constexpr std::array kLosses{
    LossTraits{Loss::kL1, "l1", LabelKind::kValues, Metric::kMae},
    LossTraits{Loss::kMse, "mse", LabelKind::kValues, Metric::kMae},
    LossTraits{Loss::kCrossEntropy, "cross-entropy", LabelKind::kClass, Metric::kAccuracy},
    LossTraits{Loss::kBce, "bce", LabelKind::kBinary, Metric::kRocAuc}};
inline constexpr auto kLossNames = NamesFrom(kLosses, &LossTraits::loss);
constexpr const LossTraits& TraitsOf(Loss loss) { return RowOf(kLosses, &LossTraits::loss, loss); }
// Returns whether the labels of the loss are classes or binary. Only these losses can have class weights.
constexpr bool HasClasses(Loss loss) { return TraitsOf(loss).labels != LabelKind::kValues; }

// Returns whether the metric suits this loss, for jobs that do not predict links.
constexpr bool Measures(Metric metric, Loss loss) {
  return !TraitsOf(metric).ranking && TraitsOf(metric).of_values != HasClasses(loss);
}

}  // namespace permafrost::spec
