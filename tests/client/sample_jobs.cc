#include "client/sample_jobs.h"

namespace permafrost::client {
namespace {

// 2026-03-10 12:00:00 UTC.
constexpr int64_t kCreated = 1'773'144'000;

void SetSizes(int64_t graphs, v1::SizeStatistics& sizes) {
  sizes.set_num_graphs(graphs);
  sizes.set_num_nodes(graphs * 23);
  sizes.set_num_edges(graphs * 50);
  sizes.set_mean_nodes(23.09);
  sizes.set_std_nodes(4.49);
  sizes.set_mean_edges(49.65);
  sizes.set_std_edges(10.53);
  sizes.set_max_nodes(38);
  sizes.set_max_edges(88);
  sizes.set_node_edge_correlation(0.992);
}

}  // namespace

v1::Job QueuedJob() {
  v1::Job job;
  job.set_name("jobs/zinc-1");
  job.set_state(v1::Job::STATE_QUEUED);
  job.mutable_create_time()->set_seconds(kCreated);
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_dataset("datasets/zinc");
  spec.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_GINE);
  spec.mutable_model()->set_hidden_channels(64);
  spec.mutable_model()->set_num_layers(4);
  spec.mutable_model()->set_pooling(v1::ModelSpec::POOLING_MEAN);
  spec.mutable_optimizer()->set_algorithm(v1::OptimizerSpec::ALGORITHM_ADAM);
  spec.mutable_optimizer()->set_learning_rate(1e-3);
  spec.mutable_optimizer()->set_schedule(v1::OptimizerSpec::SCHEDULE_CONSTANT);
  spec.set_loss(v1::JobSpec::LOSS_L1);
  spec.set_epochs(3);
  spec.set_batch_size(32);
  spec.mutable_checkpoint()->set_keep(2);
  spec.mutable_checkpoint()->set_every_seconds(60);
  spec.mutable_graph_cache()->set_policy(v1::GraphCachePolicy::POLICY_FREEZE);
  spec.mutable_graph_cache()->set_freeze_at(0);
  spec.mutable_graph_cache()->set_on_miss(v1::GraphCachePolicy::ON_MISS_PAD);
  return job;
}

v1::Job RunningJob(int64_t epoch) {
  v1::Job job = QueuedJob();
  job.set_state(v1::Job::STATE_RUNNING);
  job.mutable_start_time()->set_seconds(kCreated + 1);
  v1::Progress& progress = *job.mutable_progress();
  progress.set_epoch(epoch);
  progress.set_steps_per_epoch(100);
  progress.set_step_in_epoch(50);
  progress.set_step((epoch - 1) * 100 + 50);
  progress.set_loss(0.5 / static_cast<double>(epoch));
  progress.set_graphs_per_second(21'437);
  progress.mutable_eta()->set_seconds(72);
  progress.set_graphs(progress.step() * 32);
  progress.set_nodes(progress.step() * 700);
  progress.set_edges(progress.step() * 1500);
  progress.set_padding_nodes(progress.step());
  progress.set_padding_edges(progress.step() * 2);
  progress.mutable_phase_seconds()->set_forward(1.5);
  progress.set_checkpoint_step((epoch - 1) * 100);
  return job;
}

void AddEpoch(int64_t epoch, v1::Job& job) {
  v1::EpochMetrics& metrics = *job.add_epochs();
  metrics.set_epoch(epoch);
  metrics.set_train_loss(0.9 / static_cast<double>(epoch));
  metrics.set_valid_loss(0.8 / static_cast<double>(epoch));
  metrics.set_valid_metric(0.7 / static_cast<double>(epoch));
  metrics.set_train_seconds(0.5);
  metrics.set_valid_seconds(0.02);
  metrics.set_graphs_per_second(20'000);
}

v1::Job SucceededJob() {
  v1::Job job = RunningJob(3);
  job.set_state(v1::Job::STATE_SUCCEEDED);
  job.mutable_end_time()->set_seconds(kCreated + 113);
  job.mutable_progress()->set_step_in_epoch(100);
  job.mutable_progress()->set_step(300);
  v1::JobResult& result = *job.mutable_result();
  result.set_best_epoch(3);
  result.set_best_valid_metric(0.23333);
  result.set_best_test_metric(0.24);
  result.set_final_test_metric(0.25);
  result.set_train_seconds(101);
  result.set_mean_step_milliseconds(3.21);
  result.set_num_parameters(103'425);
  return job;
}

v1::Dataset ImportingDataset(int64_t bytes_read) {
  v1::Dataset dataset;
  dataset.set_name("datasets/zinc");
  dataset.set_state(v1::Dataset::STATE_IMPORTING);
  dataset.mutable_create_time()->set_seconds(kCreated);
  dataset.mutable_import_options()->set_source_path("/data/zinc");
  dataset.mutable_import_progress()->set_current_file("raw/edge.csv.gz");
  dataset.mutable_import_progress()->set_bytes_read(bytes_read);
  dataset.mutable_import_progress()->set_bytes_total(1'000'000);
  return dataset;
}

v1::Dataset ReadyDataset() {
  v1::Dataset dataset = ImportingDataset(0);
  dataset.clear_import_progress();
  dataset.set_state(v1::Dataset::STATE_READY);
  v1::GraphSetSummary& summary = *dataset.mutable_graph_set();
  SetSizes(12'000, *summary.mutable_all());
  SetSizes(10'000, *summary.mutable_train());
  SetSizes(1'000, *summary.mutable_valid());
  SetSizes(1'000, *summary.mutable_test());
  summary.mutable_node_features()->set_data_type(v1::FeatureSummary::DATA_TYPE_INT32);
  summary.mutable_node_features()->set_width(1);
  summary.set_num_targets(1);
  summary.set_store_bytes(9'876'543);
  summary.set_split("scaffold");
  summary.set_inverse_edges_added(true);
  return dataset;
}

v1::Dataset ReadyGraph() {
  v1::Dataset dataset = ImportingDataset(0);
  dataset.clear_import_progress();
  dataset.set_name("datasets/git");
  dataset.set_state(v1::Dataset::STATE_READY);
  v1::GraphSummary& summary = *dataset.mutable_graph();
  summary.set_num_nodes(37'700);
  summary.set_num_edges(578'006);
  summary.set_symmetric(true);
  summary.set_inverse_edges_added(true);
  summary.set_num_isolated_nodes(12);
  summary.set_num_self_loops(3);
  summary.set_max_degree(9'458);
  summary.mutable_node_features()->set_data_type(v1::FeatureSummary::DATA_TYPE_SPARSE);
  summary.mutable_node_features()->set_width(4'005);
  summary.set_node_feature_nonzeros(690'374);
  summary.set_num_targets(1);
  summary.set_min_label(0);
  summary.set_max_label(1);
  summary.set_integer_labels(true);
  summary.set_split("random");
  summary.set_num_train_nodes(30'160);
  summary.set_num_valid_nodes(3'770);
  summary.set_num_test_nodes(3'770);
  summary.set_adjacency_bytes(2'613'632);
  summary.set_store_bytes(6'000'000);
  return dataset;
}

v1::Job NodeLevelJob() {
  v1::Job job = RunningJob(2);
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_dataset("datasets/git");
  spec.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
  spec.mutable_model()->set_num_layers(2);
  spec.set_loss(v1::JobSpec::LOSS_CROSS_ENTROPY);
  spec.add_class_weights(0.5);
  spec.add_class_weights(2);
  v1::NeighborSampling& sampling = *spec.mutable_neighbor_sampling();
  sampling.add_fan_outs(15);
  sampling.add_fan_outs(-1);
  sampling.set_look_ahead(8);
  v1::LookAhead& ahead = *job.mutable_progress()->mutable_look_ahead();
  ahead.set_depth(8);
  ahead.set_ready(3);
  ahead.set_stalls(12);
  ahead.set_sampled_edges(1'234'567);
  ahead.set_wanted_pages(90'000);
  ahead.set_sampled_pages(1'000);
  ahead.set_resident_pages(975);
  ahead.set_advised_bytes(3'200'000'000);
  ahead.set_major_faults(1);
  return job;
}

}  // namespace permafrost::client
