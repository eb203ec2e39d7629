// Tests jobs on one large graph whose edges have features, and compares layer-wise evaluation with that of the whole
// graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph_runner.h"
#include "nn/models/model.h"
#include "nn/tensor_set.h"
#include "recorder.h"
#include "step_cases.h"
#include "train/loop/artifacts.h"
#include "train/tasks/layer_wise.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

struct EdgeCase {
  const char* why;
  TinyGraphOptions graph;
  spec::Architecture architecture;
  spec::EdgeInputs inputs = spec::EdgeInputs::kAuto;
};
const EdgeCase kEdgeCases[] = {
    {"gine, floats", {.edge_floats = 3}, spec::Architecture::kGine},
    {"gine, floats, sparse nodes", {.sparse = true, .edge_floats = 3}, spec::Architecture::kGine},
    {"gine, few categories", {.edge_categories = 4}, spec::Architecture::kGine},
    {"gine, many categories", {.edge_categories = 40}, spec::Architecture::kGine},
    {"gine, weights", {.weighted = true}, spec::Architecture::kGine, spec::EdgeInputs::kWeights},
    {"gatv2, floats", {.edge_floats = 3}, spec::Architecture::kGatv2},
    {"gatv2, categories", {.edge_categories = 4}, spec::Architecture::kGatv2},
};

class EdgeInputsRunTest : public testing::Test {
 protected:
  std::shared_ptr<const data::Graph> Graph(const TinyGraphOptions& options) {
    return WriteTinyGraph(dir_.path() / ("graph-" + std::to_string(graphs_++)), options);
  }
  static spec::TrainOptions Job(const EdgeCase& c) {
    spec::TrainOptions options = NodeJob(c.architecture);
    options.model.edge_inputs = c.inputs;
    options.epochs = 2;
    return options;
  }
  static std::unique_ptr<Task> TaskOf(const spec::TrainOptions& options,
                                      const std::shared_ptr<const data::Graph>& graph) {
    auto task = Task::Create(options, graph, at::kCPU, 2, [] { return true; });
    EXPECT_TRUE(task.ok()) << task.status();
    return *std::move(task);
  }
  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::shared_ptr<const data::Graph>& graph,
                                 const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graph, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  const TempDir dir_;
  int graphs_ = 0;
  const std::unique_ptr<Runner> runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
};

TEST_F(EdgeInputsRunTest, AChunkOfLayerWiseEvaluationIsBoundedByWhatIsWidest) {
  const auto graph = Graph({.edge_floats = 3});
  const spec::TrainOptions options = Job({"", {}, spec::Architecture::kGine});
  const auto model = nn::MakeNodeModel(*NodeModelFor(options, graph->summary(), kNoLimits, ""), 1, at::kCPU);
  const struct {
    const char* why;
    data::EdgeInputs edges;
    data::DataType type;
    int64_t width;
    uint64_t want;
  } kCases[] = {
      {"no rows of edges", data::EdgeInputs::kNone, data::DataType::kFloat32, 3, kChunkEdges},
      {"the layers are wider", data::EdgeInputs::kFeatures, data::DataType::kFloat32, 3, kChunkEdgeValues / 1024},
      {"the edges are", data::EdgeInputs::kFeatures, data::DataType::kFloat32, 4096, kChunkEdgeValues / 4096},
      {"categories take twice as much", data::EdgeInputs::kFeatures, data::DataType::kUint8, 4096,
       kChunkEdgeValues / 8192},
      {"a weight is one column", data::EdgeInputs::kWeights, data::DataType::kFloat32, 4096, kChunkEdgeValues / 1024},
  };
  for (const auto& c : kCases) {
    data::GraphSummary summary = graph->summary();
    summary.edge_features.type = c.type;
    summary.edge_features.width = c.width;
    EXPECT_EQ(MostChunkEdges(summary, *model, {.num_layers = 2, .hidden_channels = 1024, .edges = c.edges}), c.want)
        << c.why;
  }
}

TEST_F(EdgeInputsRunTest, SampledRunsStoppedAnywhereEndBitEqual) {
  for (const EdgeCase& c : kEdgeCases) {
    const auto graph = Graph(c.graph);
    spec::TrainOptions options = Job(c);
    options.model.dropout = 0.2;
    Recorder undisturbed;
    const std::string whole = std::string(c.why) + " whole";
    ASSERT_TRUE(Run(options, graph, whole, undisturbed).ok()) << c.why;
    for (const int64_t stop_step : {1, 6}) {
      const std::string job = std::string(c.why) + std::to_string(stop_step);
      Recorder first, second;
      first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
      ASSERT_TRUE(Run(options, graph, job, first).ok());
      ASSERT_TRUE(Run(options, graph, job, second).ok());
      EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact(whole, kLastWeightsFile)) << c.why << stop_step;
      EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact(whole, kTestPredictionsFile)) << c.why << stop_step;
    }
  }
}

// Samples of all neighbours, layer-wise evaluation, and the whole graph in one step give the same result.
TEST_F(EdgeInputsRunTest, EveryWayToEvaluateSeesTheSameEdges) {
  for (const EdgeCase& c : kEdgeCases) {
    const auto graph = Graph(c.graph);
    spec::TrainOptions sampled = Job(c);
    sampled.epochs = 1;
    sampled.nodes.fan_outs = {-1, -1};
    spec::TrainOptions layer_wise = sampled, whole = sampled;
    layer_wise.nodes.layer_wise_evaluation = true;
    Recorder one, other;
    ASSERT_TRUE(Run(sampled, graph, std::string(c.why) + " sampled", one).ok()) << c.why;
    ASSERT_TRUE(Run(layer_wise, graph, std::string(c.why) + " layer-wise", other).ok()) << c.why;
    EXPECT_NEAR(one.epochs[0].valid_loss, other.epochs[0].valid_loss, 1e-5) << c.why;
    whole.nodes = {};
    // Both models have equal weights, because these depend only on the seed.
    const auto a = TaskOf(layer_wise, graph), b = TaskOf(whole, graph);
    const auto rows = a->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    ASSERT_TRUE(rows.ok() && rows->has_value()) << rows.status();
    const auto stream = b->EvalBatches(data::Split::kTest);
    HostBatch* const batch = *stream->Next();
    const at::Tensor all = b->Forward(*batch->TakeInputs(0), Mode::kEval).prediction;
    const auto outputs = static_cast<size_t>(all.size(1));
    ASSERT_EQ((*rows)->predictions.size(), (*rows)->ids.size() * outputs);
    for (size_t i = 0; i < (*rows)->predictions.size(); ++i) {
      const auto row = static_cast<int64_t>((*rows)->ids[i / outputs]), column = static_cast<int64_t>(i % outputs);
      ASSERT_NEAR((*rows)->predictions[i], all[row][column].item<float>(), 1e-5) << c.why;
    }
  }
}

// A model that reads edge features differs from one that does not.
TEST_F(EdgeInputsRunTest, GatV2MayLeaveThemAside) {
  const auto with = Graph({.edge_floats = 3}), without = Graph({});
  spec::TrainOptions options = NodeJob(spec::Architecture::kGatv2);
  const auto names = [](Task& task) {
    std::string all;
    for (const nn::NamedTensor& t : task.tensors().All()) all += t.name + " ";
    return all;
  };
  EXPECT_THAT(names(*TaskOf(options, with)), HasSubstr("convs.0.lin_edge.weight"));
  EXPECT_THAT(names(*TaskOf(options, without)), testing::Not(HasSubstr("lin_edge")));
  options.model.edge_inputs = spec::EdgeInputs::kNone;
  EXPECT_EQ(names(*TaskOf(options, with)), names(*TaskOf(options, without)));
}

struct Parts {
  const char* why;
  bool residual;
  spec::JumpingKnowledge joined;
};
constexpr Parts kParts[] = {{"residual", true, spec::JumpingKnowledge::kLast},
                            {"cat", false, spec::JumpingKnowledge::kCat},
                            {"max, residual", true, spec::JumpingKnowledge::kMax}};

// Residuals and jumping knowledge, for nodes and for links. Sampled jobs are evaluated layer by layer.
TEST_F(EdgeInputsRunTest, LayerByLayerIsTheWholeGraphWithResidualsAndJumpingKnowledge) {
  for (const spec::ModelTraits& model : spec::kOwnModels) {
    if (model.walks) continue;
    const auto graph = Graph(GraphFor(model));
    for (const Parts& parts : kParts) {
      for (const bool links : {false, true}) {
        SCOPED_TRACE(testing::Message() << model.name << ", " << parts.why << ", links " << links);
        spec::TrainOptions sampled = NodeJob(model.architecture);
        sampled.model.num_layers = 3;
        sampled.model.norm = spec::Norm::kBatch;
        sampled.model.residual = parts.residual;
        sampled.model.jumping_knowledge = parts.joined;
        sampled.nodes.fan_outs = {3, 3, 3};
        sampled.nodes.layer_wise_evaluation = !links;
        sampled.links.enabled = links;
        sampled.links.eval_negatives = 10;
        if (links) sampled.loss = spec::Loss::kBce;
        spec::TrainOptions whole = sampled;
        whole.nodes = {};
        Recorder context;
        sampled.epochs = 1;
        const std::string job = std::string(model.name) + parts.why + std::to_string(links);
        ASSERT_TRUE(Run(sampled, graph, job, context).ok());
        const auto a = TaskOf(sampled, graph), b = TaskOf(whole, graph);
        const auto rows = a->EvaluateWhole(data::Split::kTest, true, [] { return true; });
        ASSERT_TRUE(rows.ok() && rows->has_value()) << rows.status();
        if (links) {
          const auto want = b->EvaluateWhole(data::Split::kTest, true, [] { return true; });
          ASSERT_TRUE(want.ok() && want->has_value()) << want.status();
          ASSERT_EQ((*want)->predictions.size(), (*rows)->predictions.size());
          // Compares scores only, because the ranks of two nearly equal scores may differ.
          for (size_t i = 0; i < (*want)->predictions.size(); i += 2) {
            ASSERT_NEAR((*want)->predictions[i], (*rows)->predictions[i], 1e-4);
          }
          continue;
        }
        const auto stream = b->EvalBatches(data::Split::kTest);
        const at::Tensor all = b->Forward(*(*stream->Next())->TakeInputs(0), Mode::kEval).prediction;
        const auto outputs = static_cast<size_t>(all.size(1));
        for (size_t i = 0; i < (*rows)->predictions.size(); ++i) {
          const auto row = static_cast<int64_t>((*rows)->ids[i / outputs]), column = static_cast<int64_t>(i % outputs);
          ASSERT_NEAR((*rows)->predictions[i], all[row][column].item<float>(), 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::train
