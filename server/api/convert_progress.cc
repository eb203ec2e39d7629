#include "api/convert_progress.h"

#include "api/convert_metrics.h"
#include "api/convert_time.h"

namespace permafrost::api {
namespace {

void FeaturesToWire(const data::RowReading& features, v1::FeatureReading& wire) {
  wire.set_reader(features.reader.kind);
  wire.set_fallback(features.reader.fallback);
  wire.set_direct(features.reader.direct);
  wire.set_depth(features.reader.depth);
  const data::RowCounters& counters = features.counters;
  wire.set_hits(counters.hits);
  wire.set_misses(counters.misses);
  wire.set_evictions(counters.evictions);
  wire.set_reads(counters.reads);
  wire.set_read_bytes(counters.read_bytes);
  wire.set_read_errors(counters.read_errors);
  wire.set_read_seconds(counters.read_seconds_sum);
  wire.set_stall_seconds(counters.stall_seconds);
  wire.set_over_budget(counters.over_budget);
  wire.set_resizes(counters.resizes);
  wire.set_budget_bytes(static_cast<int64_t>(counters.budget_bytes));
  wire.set_used_bytes(static_cast<int64_t>(counters.used_bytes));
  wire.set_rows(static_cast<int64_t>(counters.rows));
}

void LookAheadToWire(const train::LookAhead& look_ahead, v1::LookAhead& wire) {
  wire.set_depth(look_ahead.depth);
  wire.set_ready(look_ahead.ready);
  wire.set_sampled_edges(look_ahead.sampled_edges);
  wire.set_stalls(look_ahead.stalls);
  wire.set_wanted_pages(look_ahead.pages.wanted_pages);
  wire.set_sampled_pages(look_ahead.pages.sampled_pages);
  wire.set_resident_pages(look_ahead.pages.resident_pages);
  wire.set_advised_bytes(look_ahead.pages.advised_bytes);
  wire.set_advice_calls(look_ahead.pages.advice_calls);
  wire.set_major_faults(look_ahead.pages.major_faults);
  wire.set_cut_batches(look_ahead.cut_batches);
  if (look_ahead.rows) FeaturesToWire(*look_ahead.rows, *wire.mutable_features());
}

}  // namespace

void ProgressToWire(const train::Progress& progress, v1::Progress& wire) {
  wire.set_epoch(progress.epoch);
  wire.set_step_in_epoch(progress.step_in_epoch);
  wire.set_steps_per_epoch(progress.steps_per_epoch);
  wire.set_step(progress.step);
  wire.set_loss(progress.loss);
  wire.set_graphs_per_second(progress.graphs_per_second);
  SetDuration(progress.eta, [&wire] { return wire.mutable_eta(); });
  wire.set_graphs(progress.graphs);
  wire.set_nodes(progress.nodes);
  wire.set_edges(progress.edges);
  wire.set_padding_nodes(progress.padding_nodes);
  wire.set_padding_edges(progress.padding_edges);
  wire.mutable_phase_seconds()->set_batch(progress.phase_seconds.batch);
  wire.mutable_phase_seconds()->set_forward(progress.phase_seconds.forward);
  wire.mutable_phase_seconds()->set_backward(progress.phase_seconds.backward);
  wire.mutable_phase_seconds()->set_optimizer(progress.phase_seconds.optimizer);
  wire.set_checkpoint_step(progress.checkpoint_step);
  wire.set_warm_up_done(progress.warm_up_done);
  wire.set_warm_up_total(progress.warm_up_total);
  wire.set_skipped_batches(progress.skipped_batches);
  if (progress.look_ahead) LookAheadToWire(*progress.look_ahead, *wire.mutable_look_ahead());
}

void EpochToWire(const train::EpochMetrics& epoch, const std::vector<spec::Metric>& metrics, v1::EpochMetrics& wire) {
  wire.set_epoch(epoch.epoch);
  wire.set_train_loss(epoch.train_loss);
  wire.set_valid_loss(epoch.valid_loss);
  wire.set_valid_metric(epoch.valid_metric);
  wire.set_learning_rate(epoch.learning_rate);
  wire.set_train_seconds(epoch.train_seconds);
  wire.set_valid_seconds(epoch.valid_seconds);
  wire.set_graphs_per_second(epoch.graphs_per_second);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, epoch.valid_metrics, epoch.valid_metric, *wire.mutable_valid_metrics());
  wire.set_steps(epoch.steps);
  wire.set_exact_hits(epoch.exact_hits);
  wire.set_padded_hits(epoch.padded_hits);
  wire.set_eager_steps(epoch.eager_steps);
  wire.set_captures(epoch.captures);
  wire.set_nodes(epoch.nodes);
  wire.set_edges(epoch.edges);
  wire.set_padding_nodes(epoch.padding_nodes);
  wire.set_padding_edges(epoch.padding_edges);
  wire.set_cache_bytes(epoch.cache_bytes);
}

void ResultToWire(const train::RunResult& result, const std::vector<spec::Metric>& metrics, v1::JobResult& wire) {
  wire.set_best_epoch(result.best_epoch);
  wire.set_best_valid_metric(result.best_valid_metric);
  wire.set_best_test_metric(result.best_test_metric);
  wire.set_best_test_loss(result.best_test_loss);
  wire.set_final_test_metric(result.final_test_metric);
  wire.set_final_test_loss(result.final_test_loss);
  wire.set_train_seconds(result.train_seconds);
  wire.set_mean_step_milliseconds(result.mean_step_milliseconds);
  wire.set_num_parameters(result.num_parameters);
  wire.set_metric(MetricToWire(metrics.front()));
  MetricsToWire(metrics, result.best_valid_metrics, result.best_valid_metric, *wire.mutable_best_valid_metrics());
  MetricsToWire(metrics, result.best_test_metrics, result.best_test_metric, *wire.mutable_best_test_metrics());
  MetricsToWire(metrics, result.final_test_metrics, result.final_test_metric, *wire.mutable_final_test_metrics());
  wire.set_unranked_valid_links(result.unranked_valid_links);
  wire.set_unranked_test_links(result.unranked_test_links);
}

}  // namespace permafrost::api
