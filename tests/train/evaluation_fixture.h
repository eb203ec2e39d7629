// Passes of weights over sets and graphs, and the jobs that train such weights.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph_runner.h"
#include "runner_fixture.h"
#include "tiny_graphs.h"

namespace permafrost::train {

inline constexpr auto kGoOn = [](int64_t /*done*/, int64_t /*total*/) { return true; };

inline EvaluateRequest PassOf(const spec::TrainOptions& options, data::OpenedDataset dataset, std::string weights,
                              EvaluatedRows rows = EvaluatedRows::kTest) {
  return {.options = options,
          .dataset = std::move(dataset),
          .trained_on = std::nullopt,
          .rows = rows,
          .weights = std::move(weights),
          .source = "jobs/made",
          .predictions = true};
}

inline std::string Refusal(const absl::StatusOr<RowsEvaluation>& pass) {
  EXPECT_EQ(pass.status().code(), absl::StatusCode::kInvalidArgument) << pass.status();
  return std::string(pass.status().message());
}

// Returns twenty path graphs. One node has the category `category`, which may lie outside the usual range 0 to 2.
inline std::vector<TinyGraph> TwentyPaths(unsigned category) {
  std::vector<TinyGraph> graphs;
  for (unsigned g = 0; g < 20; ++g) {
    graphs.push_back({.categories = {g % 2, 0, 1}, .edges = {{0, 1}, {1, 2}}, .edge_categories = {}, .label = 0.5});
  }
  graphs[7].categories[2] = category;
  return graphs;
}

class SetEvaluationTest : public RunnerTest {
 protected:
  absl::StatusOr<RowsEvaluation> Evaluate(const EvaluateRequest& request) {
    return runner_->EvaluateWeights(request, kGoOn);
  }
};

class GraphEvaluationTest : public GraphRunnerTest {
 protected:
  GraphEvaluationTest() : GraphRunnerTest({.named = true}) {}
  // Jobs on the whole graph, jobs that sample and are evaluated by samples or layer by layer, and jobs that predict
  // links.
  static std::vector<spec::TrainOptions> Jobs() {
    spec::TrainOptions whole = DefaultOptions(spec::ModelLevel::kNode);
    whole.model.hidden_channels = 16;
    whole.optimizer.learning_rate = 1e-2;
    whole.batch_size = 50;
    whole.epochs = 3;
    whole.checkpoint.every_seconds = 0;
    spec::TrainOptions sampled = whole;
    sampled.nodes.fan_outs = {4, 3};
    spec::TrainOptions layer_wise = sampled;
    layer_wise.nodes.layer_wise_evaluation = true;
    spec::TrainOptions links = whole;
    links.loss = spec::Loss::kBce;
    links.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2, .seed = 4}, .eval_negatives = 20};
    spec::TrainOptions sampled_links = links;
    sampled_links.nodes.fan_outs = {4, 3};
    return {whole, sampled, layer_wise, links, sampled_links};
  }
};

}  // namespace permafrost::train
