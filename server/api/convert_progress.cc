#include "api/convert_progress.h"

#include "api/convert_metrics.h"
#include "api/wire_fields.h"

namespace permafrost::api {
void ProgressToWire(const train::Progress& progress, v1::Progress& wire) { WireWriter(wire).Write(progress); }

void EpochToWire(const train::EpochMetrics& epoch, const std::vector<spec::Metric>& metrics, v1::EpochMetrics& wire) {
  WireWriter(wire).Write(epoch);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, epoch.valid_metrics, epoch.valid_metric, *wire.mutable_valid_metrics());
}

void ResultToWire(const train::RunResult& result, const std::vector<spec::Metric>& metrics, v1::JobResult& wire) {
  WireWriter(wire).Write(result);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, result.best_valid_metrics, result.best_valid_metric, *wire.mutable_best_valid_metrics());
  MetricsToWire(metrics, result.best_test_metrics, result.best_test_metric, *wire.mutable_best_test_metrics());
  MetricsToWire(metrics, result.final_test_metrics, result.final_test_metric, *wire.mutable_final_test_metrics());
}

}  // namespace permafrost::api
