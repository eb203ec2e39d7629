#include "client/dataset_view.h"
#include "client/job_view.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

// Five minutes after the sample jobs were created.
const ViewTime kTime{absl::FromUnixSeconds(1'773'144'300), absl::UTCTimeZone()};

TEST(JobView, ListSaysWhatEachJobHasReached) {
  v1::Job failed = RunningJob(2);
  failed.set_name("jobs/broken");
  failed.set_state(v1::Job::STATE_FAILED);
  failed.mutable_end_time()->set_seconds(failed.start_time().seconds() + 7);
  EXPECT_EQ(RenderJobList({QueuedJob(), RunningJob(2), SucceededJob(), failed}, kTime, {}),
            "JOB     STATE      DATASET  EPOCH  VALID METRIC  PRIORITY  CREATED    TIME\n"
            "zinc-1  queued     zinc       -/3             -         0   5m ago       -\n"
            "zinc-1  running    zinc       2/3             -         0   5m ago  4m 59s\n"
            "zinc-1  succeeded  zinc       3/3    MAE 0.2333         0   5m ago  1m 52s\n"
            "broken  failed     zinc       2/3             -         0   5m ago  7.00 s\n");
}

TEST(JobView, ShowOfARunningJob) {
  v1::Job job = RunningJob(2);
  AddEpoch(1, job);
  job.set_resumes(1);
  job.mutable_spec()->mutable_checkpoint()->set_every_steps(50);
  EXPECT_EQ(RenderJob(job, kTime, {}),
            "job zinc-1\n"
            "  state          running\n"
            "  dataset        zinc\n"
            "  model          gine, 64 channels, 4 layers, mean pooling\n"
            "  optimizer      adam, learning rate 0.001, weight decay 0\n"
            "  loss           l1\n"
            "  metrics        MAE\n"
            "  batch size     32\n"
            "  seed           0\n"
            "  priority       0\n"
            "  checkpoints    every 60 s and every 50 steps, 2 kept; the newest at step 100\n"
            "  graph cache    freeze after a number of training shapes derived from the dataset, on a miss: pad\n"
            "  created        2026-03-10 12:00:00 (5m ago)\n"
            "  started        2026-03-10 12:00:01 (4m ago)\n"
            "  resumes        1\n"
            "  epoch          2/3\n"
            "  steps          150 of 300\n"
            "  trained on     4,800 graphs, 105,000 nodes, 225,000 edges\n"
            "  padding        150 nodes, 300 edges\n"
            "  time by phase  batch 0.00 s, forward 1.50 s, backward 0.00 s, optimizer 0.00 s\n"
            "  speed          21.4k graphs/s\n"
            "  ETA            1m 12s\n"
            "\n"
            "epoch  train loss  valid loss  valid MAE  graphs/s     time\n"
            "  1/3      0.9000      0.8000     0.7000     20.0k   0.52 s\n");
}

TEST(JobView, LabelsAndPausesAreTold) {
  v1::Job job = RunningJob(2);
  job.set_pausing(true);
  (*job.mutable_labels())["team"] = "gnn";
  (*job.mutable_labels())["note"] = "a\nb";
  const std::string shown = RenderJob(job, kTime, {});
  EXPECT_THAT(shown, testing::HasSubstr("  state          running, pauses at its next step\n"));
  EXPECT_THAT(shown, testing::HasSubstr("  labels         note=a b, team=gnn\n"));
  job.set_pausing(false);
  job.set_state(v1::Job::STATE_PAUSED);
  EXPECT_THAT(RenderJob(job, kTime, {}), testing::HasSubstr("  state          paused\n"));
}

TEST(JobView, EveryMetricIsTold) {
  v1::Job job = SucceededJob();
  AddEpoch(1, job);
  job.mutable_spec()->set_loss(v1::JobSpec::LOSS_CROSS_ENTROPY);
  job.mutable_spec()->mutable_cross_validation()->set_folds(10);
  job.mutable_spec()->mutable_cross_validation()->set_fold(3);
  v1::JobResult& result = *job.mutable_result();
  double value = 0.1;
  for (const v1::Metric metric : {v1::METRIC_F1_MACRO, v1::METRIC_AVERAGE_PRECISION}) {
    job.mutable_spec()->add_metrics(metric);
    for (v1::MetricValue* told : {job.mutable_epochs(0)->add_valid_metrics(), result.add_best_valid_metrics(),
                                  result.add_best_test_metrics(), result.add_final_test_metrics()}) {
      told->set_metric(metric);
      told->set_value(value += 0.1);
    }
  }
  const std::string text = RenderJob(job, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("  fold           3 of 10, seed 0\n"));
  EXPECT_THAT(text,
              testing::HasSubstr("epoch  train loss  valid loss  valid macro F1  avg. precision  graphs/s     time\n"
                                 "  1/3      0.9000      0.8000          0.7000          0.6000     20.0k   0.52 s\n"));
  EXPECT_THAT(text, testing::HasSubstr("  validation macro F1              0.2333\n"
                                       "  test macro F1, best epoch        0.2400\n"
                                       "  test macro F1, last epoch        0.2500\n"
                                       "  validation avg. precision        0.7000\n"
                                       "  test avg. precision, best epoch  0.8000\n"
                                       "  test avg. precision, last epoch  0.9000\n"));
}

TEST(JobView, ShowOfAJobThatWaitsToRunAgain) {
  v1::Job job = RunningJob(2);
  job.set_state(v1::Job::STATE_QUEUED);
  job.set_last_error("/state/jobs/zinc-1/checkpoints/.tmp-7/model.safetensors: cannot write: No space left on device");
  job.mutable_retry_time()->set_seconds(job.create_time().seconds() + 3600);
  const std::string text = RenderJob(job, kTime, {});
  EXPECT_THAT(text,
              testing::HasSubstr("  last error     /state/jobs/zinc-1/checkpoints/.tmp-7/model.safetensors: cannot "
                                 "write: No space left on device\n"));
  EXPECT_THAT(text, testing::HasSubstr("  runs again     2026-03-10 13:00:00\n"));
}

TEST(JobView, ShowOfAJobWhoseBlocksHaveABudget) {
  v1::Job job = NodeLevelJob();
  job.mutable_spec()->mutable_batching()->set_kind(v1::Batching::KIND_BUDGET);
  job.mutable_spec()->mutable_batching()->set_max_edges(9000);
  job.mutable_spec()->set_batch_size(65'536);
  job.mutable_progress()->mutable_look_ahead()->set_cut_batches(1234);
  const std::string text = RenderJob(job, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("budget, at most 9,000 edges a batch\n"));
  EXPECT_THAT(text, testing::HasSubstr("1,234,567 edges sampled, 1,234 batches cut to the budget\n"));
  EXPECT_THAT(text, testing::HasSubstr("65,536")) << "seeds, which the budget does not say";
}

TEST(JobView, ShowOfANodeLevelJob) {
  v1::Job job = NodeLevelJob();
  AddEpoch(1, job);
  const std::string text = RenderJob(job, kTime, {});
  constexpr char kEpochs[] =
      "epoch  train loss  valid loss  valid accuracy   nodes/s     time\n"
      "  1/3      0.9000      0.8000          0.7000     20.0k   0.52 s\n";
  for (const char* line :
       {"  model          sage, 64 channels, 2 layers\n", "  loss           cross-entropy, class weights 0.5,2\n",
        "  sampling       fan-out 15,all; evaluation the same; up to 8 batches ahead\n",
        "  trained on     4,800 seed nodes, 105,000 nodes, 225,000 edges\n",
        "  look-ahead     3 of 8 batches ready, 12 stalls, 1,234,567 edges sampled\n",
        "  pages          90,000 wanted, 97.5 % in memory already, 3.20 GB advised, 1 major fault\n",
        "  speed          21.4k nodes/s\n", kEpochs}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

TEST(JobView, OfNode2VecEntriesOfWalksAndTheirPairsAreCounted) {
  v1::Job job = NodeLevelJob();
  job.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_NODE2VEC);
  v1::Node2Vec& walks = *job.mutable_spec()->mutable_node2vec();
  walks.set_walk_length(20);
  walks.set_num_negative_samples(3);
  const std::string text = RenderJob(job, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("  trained on     4,800 seed nodes, 105,000 entries of walks, 225,000 pairs\n"));
  EXPECT_THAT(text, testing::ContainsRegex("  padding        [0-9,]+ entries of walks, [0-9,]+ pairs\n"));
  EXPECT_THAT(text, testing::HasSubstr(" of 20 nodes from each node"));
}

TEST(JobView, WhatWeightsBeginWithAndHowTheyChangeIsTold) {
  v1::Job job = RunningJob(2);
  v1::JobSpec& spec = *job.mutable_spec();
  v1::OptimizerSpec& optimizer = *spec.mutable_optimizer();
  optimizer.set_weight_decay(0.5);
  optimizer.set_weight_decay_of(v1::OptimizerSpec::WEIGHT_DECAY_OF_FIRST_LAYER);
  optimizer.set_schedule(v1::OptimizerSpec::SCHEDULE_PLATEAU);
  optimizer.set_decay_factor(0.25);
  optimizer.set_plateau_patience(3);
  optimizer.set_plateau_threshold(0.02);
  optimizer.set_min_learning_rate(0.001);
  optimizer.set_accumulate_steps(4);
  optimizer.set_ema_decay(0.999);
  spec.mutable_init_from()->set_job("jobs/first");
  spec.mutable_init_from()->set_weights(v1::InitFrom::WEIGHTS_BEST);
  spec.add_fixed_parameters("convs.0");
  spec.add_fixed_parameters("head");
  std::string text = RenderJob(job, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("weight decay 0.5 of first-layer, plateau schedule (times 0.25 after more than "
                                       "3 epochs without a validation that is better by 2 %, not below 0.001), 4 "
                                       "batches an update, averages of the weights with decay 0.999\n"));
  EXPECT_THAT(text, testing::HasSubstr("  begins with    the best weights of job first\n"));
  EXPECT_THAT(text, testing::HasSubstr("  not trained    convs.0, head\n"));
  *spec.mutable_init_from() = {};
  spec.mutable_init_from()->set_file("/data/w.safetensors");
  spec.mutable_init_from()->set_by_name(true);
  text = RenderJob(job, kTime, {});
  EXPECT_THAT(text,
              testing::HasSubstr("  begins with    the weights of /data/w.safetensors, those that fit by name\n"));
}

TEST(JobView, SamplingIsToldAsItIs) {
  v1::Job job = NodeLevelJob();
  v1::NeighborSampling& sampling = *job.mutable_spec()->mutable_neighbor_sampling();
  sampling.add_eval_fan_outs(20);
  sampling.add_eval_fan_outs(10);
  sampling.set_replace(true);
  sampling.set_weighted(true);
  sampling.set_look_ahead(1);
  sampling.set_no_page_advice(true);
  EXPECT_THAT(RenderJob(job, kTime, {}),
              testing::HasSubstr("fan-out 15,all, with replacement, by edge weight; evaluation 20,10; up to 1 batch "
                                 "ahead, no page advice\n"));
  sampling.set_replace(false);
  sampling.set_weighted(false);
  sampling.set_disjoint(true);
  sampling.set_temporal(v1::TEMPORAL_SAMPLING_LAST);
  sampling.set_seed_time(-3);
  EXPECT_THAT(RenderJob(job, kTime, {}),
              testing::HasSubstr("fan-out 15,all, disjoint, temporal (last, before -3); evaluation 20,10;"));
  sampling.clear_eval_fan_outs();
  sampling.set_layer_wise_evaluation(true);
  EXPECT_THAT(RenderJob(job, kTime, {}), testing::HasSubstr("; evaluation layer by layer;"));
  sampling.clear_fan_outs();
  EXPECT_THAT(RenderJob(job, kTime, {}), testing::HasSubstr("sampling       none: the whole graph in every step\n"));
}

TEST(JobView, TheResultNamesItsMetric) {
  v1::Job job = SucceededJob();
  job.mutable_spec()->set_loss(v1::JobSpec::LOSS_BCE);
  EXPECT_THAT(RenderResult(job, {}), testing::HasSubstr("  validation ROC-AUC        0.2333\n"
                                                        "  test ROC-AUC, best epoch  0.2400\n"
                                                        "  test ROC-AUC, last epoch  0.2500\n"));
}

TEST(JobView, ShowTellsWhatIsSetBeyondTheDefaults) {
  v1::Job job = QueuedJob();
  v1::JobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_dropout(0.1);
  spec.mutable_optimizer()->set_schedule(v1::OptimizerSpec::SCHEDULE_COSINE);
  spec.mutable_optimizer()->set_warmup_steps(1'000);
  spec.mutable_optimizer()->set_max_grad_norm(2.5);
  spec.mutable_graph_cache()->set_policy(v1::GraphCachePolicy::POLICY_NEVER);
  const std::string text = RenderJob(job, kTime, {});
  for (const char* line : {
           "  model        gine, 64 channels, 4 layers, mean pooling, dropout 0.1\n",
           "  optimizer    adam, learning rate 0.001, weight decay 0, cosine schedule, 1,000 steps of warm-up, "
           "gradients clipped to norm 2.5\n",
           "  graph cache  never\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(JobView, ShowOfAFailedJobNamesTheError) {
  v1::Job job = QueuedJob();
  job.set_state(v1::Job::STATE_FAILED);
  job.set_error("loss: nan at step 7;\nexpected a finite number");
  EXPECT_NE(RenderJob(job, kTime, {}).find("  error        loss: nan at step 7; expected a finite number\n"),
            std::string::npos)
      << RenderJob(job, kTime, {});
}

TEST(JobView, TellsNotesAndLinksWithoutARank) {
  v1::Job job = SucceededJob();
  job.add_notes("3 of the 9 links to test on are not ranked");
  job.mutable_result()->set_unranked_test_links(3);
  EXPECT_THAT(RenderResult(job, {}), testing::HasSubstr("links without a rank  0 to validate on, 3 to test on\n"));
  EXPECT_THAT(RenderJob(job, kTime, {}), testing::HasSubstr("3 of the 9 links to test on are not ranked\n"));
}

TEST(JobView, Result) {
  EXPECT_EQ(RenderResult(SucceededJob(), {}),
            "job zinc-1 succeeded\n"
            "  best epoch            3 of 3\n"
            "  validation MAE        0.2333\n"
            "  test MAE, best epoch  0.2400\n"
            "  test MAE, last epoch  0.2500\n"
            "  parameters            103,425\n"
            "  step                  3.21 ms\n"
            "  train time            1m 41s\n");
}

TEST(JobView, SnapshotHasNoLossBeforeTheFirstStepOfAnEpoch) {
  v1::Job job = RunningJob(2);
  EXPECT_EQ(ToSnapshot(job, 0.7).loss, 0.25);
  job.mutable_progress()->set_step_in_epoch(0);
  EXPECT_EQ(ToSnapshot(job, 0.7).loss, std::nullopt);
  EXPECT_EQ(ToSnapshot(job, 0.7).steps_total, 300);
  EXPECT_EQ(ToSnapshot(QueuedJob(), std::nullopt).eta, std::nullopt);
}

TEST(DatasetView, List) {
  EXPECT_EQ(RenderDatasetList({ImportingDataset(1), ReadyDataset(), ReadyGraph()}, kTime, {}),
            "DATASET  KIND       STATE      GRAPHS    NODES    EDGES  TARGETS     SIZE  CREATED\n"
            "zinc     -          importing       -        -        -        -        -   5m ago\n"
            "zinc     graph set  ready      12,000  276,000  600,000        1  9.88 MB   5m ago\n"
            "git      graph      ready           1   37,700  578,006        1  6.00 MB   5m ago\n");
}

TEST(DatasetView, ShowOfAReadySet) {
  EXPECT_EQ(RenderDataset(ReadyDataset(), kTime, {}),
            "dataset zinc\n"
            "  state          ready\n"
            "  source         /data/zinc\n"
            "  created        2026-03-10 12:00:00\n"
            "  split          scaffold\n"
            "  inverse edges  added\n"
            "  node features  1 column of int32\n"
            "  edge features  none\n"
            "  targets        1 a graph, 0 labels missing\n"
            "  store          9.88 MB\n"
            "\n"
            "SPLIT  GRAPHS    NODES    EDGES   NODES/GRAPH    EDGES/GRAPH  MAX NODES  MAX EDGES  CORRELATION\n"
            "all    12,000  276,000  600,000  23.09 ± 4.49  49.65 ± 10.53         38         88        0.992\n"
            "train  10,000  230,000  500,000  23.09 ± 4.49  49.65 ± 10.53         38         88        0.992\n"
            "valid   1,000   23,000   50,000  23.09 ± 4.49  49.65 ± 10.53         38         88        0.992\n"
            "test    1,000   23,000   50,000  23.09 ± 4.49  49.65 ± 10.53         38         88        0.992\n");
}

TEST(DatasetView, ShowOfALargeGraph) {
  EXPECT_EQ(RenderDataset(ReadyGraph(), kTime, {}),
            "dataset git\n"
            "  state          ready\n"
            "  source         /data/zinc\n"
            "  created        2026-03-10 12:00:00\n"
            "  nodes          37,700, 12 of them isolated, at most 9,458 edges into one\n"
            "  edges          578,006, symmetric (inverse edges added), 3 self-loops\n"
            "  node features  4,005 columns of sparse, 690,374 values\n"
            "  edge features  none\n"
            "  targets        1 a node, 0 labels missing, whole numbers 0 to 1\n"
            "  split          random: train 30,160, valid 3,770, test 3,770 nodes\n"
            "  store          6.00 MB, 2.61 MB of it edges (4.52 bytes an edge)\n");
}

TEST(DatasetView, ALargeGraphSaysWhatItsEdgesCarry) {
  v1::Dataset dataset = ReadyGraph();
  v1::GraphSummary& summary = *dataset.mutable_graph();
  summary.set_symmetric(false);
  summary.set_inverse_edges_added(false);
  summary.set_num_self_loops(0);
  summary.set_num_duplicate_edges(1'000);
  summary.set_weighted(true);
  summary.set_timestamped(true);
  summary.set_named(true);
  summary.set_position_columns(1);
  summary.set_num_targets(0);
  const std::string text = RenderDataset(dataset, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("578,006, directed, 1,000 duplicates dropped, weights, timestamps\n"));
  EXPECT_THAT(text, testing::HasSubstr("edges into one; the source's names kept\n"));
  EXPECT_THAT(text, testing::HasSubstr("  positions      1 column\n"
                                       "  targets        none\n"));
}

TEST(DatasetView, WhichDirectionsEdgesHaveAndHowManyAreEqual) {
  v1::Dataset dataset = ReadyGraph();
  v1::GraphSummary& graph = *dataset.mutable_graph();
  graph.set_num_self_loops(0);
  graph.set_inverse_edges_added(false);
  graph.set_directions(v1::EDGE_DIRECTIONS_LISTED);
  graph.set_num_equal_edges(1'002);
  EXPECT_THAT(
      RenderDataset(dataset, kTime, {}),
      testing::HasSubstr("edges          578,006, symmetric (both directions listed), 1,002 equal to another\n"));
  graph.set_symmetric(false);
  graph.set_directions(v1::EDGE_DIRECTIONS_KEPT);
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::HasSubstr("578,006, directed (as listed), 1,002 equal"));
  v1::Dataset of_set = ReadyDataset();
  v1::GraphSetSummary& set = *of_set.mutable_graph_set();
  set.set_inverse_edges_added(false);
  EXPECT_THAT(RenderDataset(of_set, kTime, {}), testing::HasSubstr("inverse edges  as imported\n"));
  set.set_directions(v1::EDGE_DIRECTIONS_LISTED);
  EXPECT_THAT(RenderDataset(of_set, kTime, {}), testing::HasSubstr("inverse edges  not added, both directions listed"));
}

TEST(DatasetView, TheNotesOfTheImportComeLast) {
  v1::Dataset dataset = ReadyGraph();
  dataset.add_import_notes("column 3 is a weight");
  dataset.add_import_notes("not read: read\nme.txt");
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::EndsWith("  note           column 3 is a weight\n"
                                                                   "  note           not read: read me.txt\n"));
}

TEST(DatasetView, LabelsHaveTheDigitsOfTheirType) {
  v1::Dataset dataset = ReadyDataset();
  v1::GraphSetSummary& summary = *dataset.mutable_graph_set();
  summary.set_min_label(-27.2959F);
  summary.set_max_label(4.5199F);
  summary.set_integer_labels(false);
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::HasSubstr("0 labels missing, -27.2959 to 4.5199\n"));
}

TEST(DatasetView, ASetSaysWhatItsClassesWereAndWhatItsFeaturesAreMadeOf) {
  v1::Dataset dataset = ReadyDataset();
  v1::GraphSetSummary& summary = *dataset.mutable_graph_set();
  summary.set_min_label(0);
  summary.set_max_label(1);
  summary.set_integer_labels(true);
  EXPECT_THAT(RenderDataset(dataset, kTime, {}),
              testing::HasSubstr("targets        1 a graph, 0 labels missing, whole numbers 0 to 1\n"));
  summary.add_class_values(-1);
  summary.add_class_values(1);
  summary.set_node_feature_origin("labels from 3");
  summary.set_num_duplicate_edges(12);
  summary.set_position_columns(3);
  EXPECT_THAT(
      RenderDataset(dataset, kTime, {}),
      testing::HasSubstr("  equal edges    12 beyond the first, kept\n"
                         "  node features  1 column of int32: labels from 3\n"
                         "  edge features  none\n"
                         "  positions      3 columns\n"
                         "  targets        1 a graph, 0 labels missing, 2 classes: 0 is -1, 1 is 1 in the source\n"));
  dataset.mutable_import_options()->set_coalesce(true);
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::HasSubstr("12 beyond the first, dropped\n"));
  for (int value = 2; value < 30; ++value) summary.add_class_values(value);
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::HasSubstr("30 classes: 0 is -1, 1 is 1, 2 is 2, "));
  EXPECT_THAT(RenderDataset(dataset, kTime, {}), testing::HasSubstr("15 is 15, ... in the source\n"));
}

TEST(DatasetView, ALargeGraphSaysHowItsRowsLie) {
  v1::Dataset dataset = ReadyGraph();
  v1::GraphSummary& summary = *dataset.mutable_graph();
  summary.set_order(v1::ImportOptions::ORDER_NONE);
  EXPECT_EQ(RenderDataset(dataset, kTime, {}), RenderDataset(ReadyGraph(), kTime, {}));
  summary.set_order(v1::ImportOptions::ORDER_COMMUNITY);
  v1::FeatureSummary& features = *summary.mutable_node_features();
  features.set_data_type(v1::FeatureSummary::DATA_TYPE_INT8);
  features.set_converted_from(v1::FeatureSummary::DATA_TYPE_FLOAT32);
  features.set_largest_error(1.0 / 254);
  features.set_rms_error(0.0022);
  const std::string text = RenderDataset(dataset, kTime, {});
  EXPECT_THAT(text, testing::HasSubstr("  order          community\n"));
  EXPECT_THAT(text, testing::HasSubstr("  node features  4,005 columns of int8, converted from float32 (error at most "
                                       "0.0039, 0.0022 rms, of the column's largest)\n"));
}

TEST(DatasetView, ShowOfAnImport) {
  EXPECT_EQ(RenderDataset(ImportingDataset(500'000), kTime, {}),
            "dataset zinc\n"
            "  state    importing\n"
            "  source   /data/zinc\n"
            "  created  2026-03-10 12:00:00\n"
            "  read     500 kB of 1.00 MB  raw/edge.csv.gz\n");
  v1::Dataset waits = ImportingDataset(0);
  waits.set_last_error("/state/datasets/.tmp-zinc/graphs.pfg: cannot write: No space left on device");
  *waits.mutable_retry_time() = waits.create_time();
  EXPECT_THAT(RenderDataset(waits, kTime, {}),
              testing::HasSubstr("  last error   /state/datasets/.tmp-zinc/graphs.pfg: cannot write: No space left on "
                                 "device\n"
                                 "  tries again  2026-03-10 12:00:00\n"));
}

}  // namespace
}  // namespace permafrost::client
