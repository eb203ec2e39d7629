// Jobs on one large graph: one of every kind that samples, and one that does not sample.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "data/store/graph.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "spec/train_options.h"
#include "temp_dir.h"
#include "tiny_graph.h"

namespace permafrost::train {

struct NodeCase {
  const char* why;
  TinyGraphOptions graph;
  spec::TrainOptions options;
};

inline spec::TrainOptions SampledJob(spec::Architecture architecture) {
  spec::TrainOptions options;
  options.model = DefaultOptions(spec::ModelLevel::kNode).model;
  options.model.architecture = architecture;
  options.model.hidden_channels = 16;
  options.optimizer.learning_rate = 1e-2;
  options.loss = spec::Loss::kCrossEntropy;
  options.nodes.fan_outs = {4, 3};
  options.batch_size = 50;  // 240 training nodes: four full batches and one of 40
  options.epochs = 4;
  options.seed = 3;
  return options;
}

inline std::vector<NodeCase> NodeCases() {
  using enum spec::Architecture;
  spec::TrainOptions dropout = SampledJob(kSage);
  dropout.model.dropout = 0.4;
  dropout.class_weights = {1, 2, 0.5};
  dropout.optimizer.max_grad_norm = 0.1;
  spec::TrainOptions deep = SampledJob(kSage);
  deep.model.num_layers = 3;
  deep.nodes.fan_outs = {3, -1, 2};
  deep.nodes.replace = true;
  spec::TrainOptions many = SampledJob(kGcn);
  many.loss = spec::Loss::kBce;
  many.nodes.weighted = true;
  // The last batch has few seeds, and one of its hops finds more nodes than a full batch leaves. Evaluation has a
  // batch with a single seed.
  spec::TrainOptions wide = SampledJob(kSage);
  wide.nodes.fan_outs = {200, 200};
  wide.nodes.replace = true;
  wide.batch_size = 79;
  spec::TrainOptions disjoint = SampledJob(kGcn);
  disjoint.nodes.disjoint = true;
  spec::TrainOptions apart = SampledJob(kSage);
  apart.nodes.disjoint = true;
  spec::TrainOptions labor = SampledJob(kSage);
  labor.nodes.sampler = spec::SamplerKind::kLabor;
  spec::TrainOptions latest = SampledJob(kGatv2);
  latest.nodes.temporal = spec::TemporalSampling::kLast;
  spec::TrainOptions earlier = SampledJob(kSage);
  earlier.nodes.temporal = spec::TemporalSampling::kUniform;
  earlier.nodes.seed_time = 40;
  spec::TrainOptions own_times = earlier;
  own_times.nodes.seed_time.reset();
  spec::TrainOptions whole = SampledJob(kGcn);
  whole.nodes.fan_outs = {};
  whole.model.dropout = 0.5;
  return {{"SAGE", {}, SampledJob(kSage)},
          {"GCN, weighted edges", {.weighted = true}, SampledJob(kGcn)},
          {"SAGE, sparse features, dropout, class weights, clipping", {.sparse = true}, dropout},
          {"SAGE of three layers, all neighbours in the second, with replacement", {}, deep},
          {"GCN, sparse features, several targets, drawn by weight",
           {.sparse = true, .weighted = true, .targets = 3},
           many},
          {"SAGE, more drawn than there is, odd batches", {}, wide},
          {"GCN, each seed apart, sparse features", {.sparse = true, .weighted = true}, disjoint},
          {"SAGE, each seed apart", {}, apart},
          {"SAGE, drawn by LABOR", {}, labor},
          {"GATv2, the latest edges", {.timestamped = true}, latest},
          {"SAGE, edges before a time", {.timestamped = true}, earlier},
          {"SAGE, edges before each node's time", {.timestamped = true, .node_times = true}, own_times},
          {"GCN on the whole graph, dropout", {}, whole}};
}

class NodeTaskTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override { device::UseThreads(2); }
  std::shared_ptr<const data::Graph> Graph(const TinyGraphOptions& options) {
    return WriteTinyGraph(dir_.path() / std::to_string(++graphs_), options);
  }

  TempDir dir_;
  int graphs_ = 0;
};

}  // namespace permafrost::train
