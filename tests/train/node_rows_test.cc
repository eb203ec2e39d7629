// Tests per-node weights that go to the nodes of the same names in another dataset.
#include "train/loop/initial_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/status.h"
#include "data/import/import.h"
#include "data/store/graph.h"
#include "nn/safetensors.h"
#include "recorder.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/loop/torch_runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using GraphPtr = std::shared_ptr<const data::Graph>;

const fs::path kTrial = fs::path(PERMAFROST_SOURCE_DIR) / "tests/trials/node-names/e.csv";

class NodeRowsTest : public testing::Test {
 protected:
  GraphPtr Import(const fs::path& source, data::NodeOrder order, data::NodeIds ids = data::NodeIds::kRows) {
    const fs::path store = dir_.path() / std::to_string(++stores_);
    fs::create_directories(store);
    data::ImportOptions import;
    import.source = source;
    import.order = order;
    import.edge_list.node_ids = ids;
    const auto summary = data::Import(import, store, [](const auto&) {}, {});
    EXPECT_TRUE(summary.ok()) << summary.status();
    return *data::Graph::Open(store);
  }
  GraphPtr ImportText(const std::string& edges) {
    const fs::path file = dir_.path() / ("edges-" + std::to_string(stores_) + ".csv");
    std::ofstream(file) << edges;
    return Import(file, data::NodeOrder::kNone, data::NodeIds::kText);
  }
  std::string Train(const spec::TrainOptions& options, const GraphPtr& graph, const std::string& job) {
    Recorder context;
    const auto outcome =
        runner_->Run({.options = options, .dataset = graph, .job_directory = dir_.path() / job}, context);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    log_ = context.log;
    return *ReadFile(dir_.path() / job / "artifacts" / kLastWeightsFile);
  }
  absl::StatusOr<std::string> Map(spec::TrainOptions options, const GraphPtr& to, const std::optional<GraphPtr>& from,
                                  const std::string& weights, const std::string& file = "") {
    options.init_from = file.empty() ? spec::InitialWeights{.job = JobId("first")} : spec::InitialWeights{.file = file};
    NodeRowsRequest request{.options = options, .dataset = to, .trained = std::nullopt, .weights = weights};
    if (from) request.trained = *from;
    return runner_->MapNodeRows(std::move(request), "spec.");
  }
  // Returns the row of each node, keyed by its name.
  static std::map<std::string, at::Tensor> RowsOf(const at::Tensor& table, const data::Graph& graph) {
    std::map<std::string, at::Tensor> rows;
    for (int64_t row = 0; row < table.size(0); ++row) {
      rows[*data::NameOf(graph.names(), static_cast<data::NodeId>(row))] = table[row].detach().clone();
    }
    return rows;
  }
  static at::Tensor TableOf(const nn::TensorSet& tensors) {
    const auto all = tensors.All();
    return std::ranges::find(all, "embedding.weight", &nn::NamedTensor::name)->value;
  }
  static at::Tensor TableOf(const std::string& weights) {
    const auto file = *nn::DecodeSafetensors(weights);
    return std::ranges::find(file.tensors, "embedding.weight", &nn::NamedTensor::name)->value;
  }
  static spec::TrainOptions Learned() {
    spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
    options.model.node_inputs = spec::NodeInputs::kLearned;
    options.loss = spec::Loss::kBce;
    options.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.1}, .eval_negatives = 5};
    options.epochs = 2;
    return options;
  }

  const TempDir dir_;
  int stores_ = 0;
  std::string log_;
  const std::unique_ptr<Runner> runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
};

TEST_F(NodeRowsTest, EachNameKeepsItsRowInAnotherOrder) {
  const GraphPtr first = Import(kTrial, data::NodeOrder::kNone), second = Import(kTrial, data::NodeOrder::kDegree);
  ASSERT_NE(first->names_checksum(), second->names_checksum());
  for (const spec::TrainOptions& options : {WalkJob(), Learned()}) {
    const std::string job = Walks(options) ? "walks" : "learned";
    const std::string weights = Train(options, first, job);
    const auto mapped = Map(options, second, first, weights);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    // Meanwhile the job's dataset was replaced, so what the weights were trained on is no longer known.
    const auto again = Map(options, first, std::nullopt, *mapped);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(
        std::ranges::count(nn::DecodeSafetensors(*again)->tensors, "permafrost.node_rows", &nn::NamedTensor::name), 0);
    spec::TrainOptions next = options;
    next.init_from.job = JobId("first");
    next.seed = 77;
    EXPECT_EQ(runner_->CheckInitialWeights(next, second->summary(), *mapped, "spec."), absl::OkStatus());
    const auto task = *Task::Create(next, second, at::kCPU, 2, [] { return true; });
    const auto line = TakeWeights(*mapped, next.init_from, task->tensors());
    ASSERT_TRUE(line.ok()) << line.status();
    const auto nodes = std::to_string(first->summary().nodes);
    EXPECT_THAT(*line, HasSubstr("; " + nodes + " of " + nodes + " nodes begin with the row of the same name, 0 with"));
    const auto want = RowsOf(TableOf(weights), *first), got = RowsOf(TableOf(task->tensors()), *second);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, row] : want) EXPECT_TRUE(at::equal(got.at(name), row)) << job << ", node " << name;
    // If the nodes and their order are the same, the weights are returned unchanged.
    EXPECT_EQ(*Map(options, first, first, weights), weights);
    // Weights that were already mapped for this dataset stay as they are.
    EXPECT_EQ(*Map(options, second, first, *mapped), *mapped);
  }
}

TEST_F(NodeRowsTest, NodesThatWereNotTrainedBeginWithDrawnRows) {
  const GraphPtr first = ImportText("a,b\nb,c\nc,a\n"), second = ImportText("d,c\nc,b\nb,e\n");
  spec::TrainOptions options = WalkJob();
  const std::string weights = Train(options, first, "first");
  const auto mapped = Map(options, second, first, weights);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  options.init_from.job = JobId("first");
  options.seed = 5;
  options.optimizer.learning_rate = 1e-30;
  fs::create_directories(dir_.path() / "second");
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "second" / kInitialWeightsFile, *mapped).ok());
  const auto got = RowsOf(TableOf(Train(options, second, "second")), *second);
  EXPECT_THAT(log_, HasSubstr("begins with the weights of jobs/first: 1 tensors taken; 2 of 4 nodes begin with the row "
                              "of the same name, 2 with rows of their own"));
  options.init_from = {};
  const auto drawn = RowsOf(TableOf(Train(options, second, "drawn")), *second), old = RowsOf(TableOf(weights), *first);
  for (const char* name : {"b", "c"}) EXPECT_TRUE(at::allclose(got.at(name), old.at(name))) << name;
  for (const char* name : {"d", "e"}) EXPECT_TRUE(at::allclose(got.at(name), drawn.at(name))) << name;
}

TEST_F(NodeRowsTest, RowsOfNobodyKnownAreRefused) {
  const GraphPtr first = ImportText("a,b\nb,c\nc,a\n"), other = ImportText("x,y\ny,z\nz,x\n"),
                 turned = ImportText("c,b\nb,a\na,c\n"), same = ImportText("a,b\nb,c\nc,a\na,b\n");
  const spec::TrainOptions options = WalkJob();
  const std::string weights = Train(options, first, "first");
  const auto told = [&](const GraphPtr& to, const std::optional<GraphPtr>& from, const std::string& given,
                        const std::string& file = "") {
    const auto mapped = Map(options, to, from, given, file);
    if (mapped.ok()) return std::string();
    EXPECT_EQ(GetViolations(mapped.status()).at(0).field, "spec.init_from");
    return GetViolations(mapped.status())[0].description;
  };
  EXPECT_THAT(told(other, first, weights), HasSubstr("none of the dataset's 3 nodes has the name of one of the 3 that "
                                                     "jobs/first was trained on"));
  // The job's dataset is gone, but the weights say to which nodes their rows belong.
  EXPECT_EQ(told(same, std::nullopt, weights), "");
  EXPECT_THAT(told(turned, std::nullopt, weights), HasSubstr("are of other nodes, or of these in another order"));
  EXPECT_THAT(told(turned, std::nullopt, weights, "w.safetensors"), HasSubstr("those of w.safetensors are of other"));
  // Weights of an older version do not say this.
  const std::string old = nn::EncodeSafetensors(nn::DecodeSafetensors(weights)->tensors, {});
  EXPECT_THAT(told(same, std::nullopt, old), HasSubstr("nobody can tell which node a row is of"));
  EXPECT_EQ(told(same, std::nullopt, old, "w.safetensors"), "") << "rows of a file are the dataset's, in its order";
  // An evaluation on a dataset of another order is refused too.
  const auto evaluated = runner_->EvaluateWeights({.options = options,
                                                   .dataset = turned,
                                                   .trained_on = std::nullopt,
                                                   .rows = EvaluatedRows::kAll,
                                                   .weights = weights,
                                                   .source = "jobs/first",
                                                   .predictions = true},
                                                  [](int64_t, int64_t) { return true; });
  EXPECT_THAT(std::string(evaluated.status().message()), HasSubstr("rows would be other nodes"));
}

TEST_F(NodeRowsTest, WeightsWithoutRowsOfNodesAreLeftAsTheyAre) {
  const GraphPtr graph = WriteTinyGraph(dir_.path() / "tiny"),
                 other = WriteTinyGraph(dir_.path() / "named", {.named = true});
  const spec::TrainOptions options = NodeJob(spec::Architecture::kGcn);
  EXPECT_EQ(*Map(options, other, graph, "whatever it is"), "whatever it is");
  EXPECT_TRUE(NodeNamesMetadata(options, graph).empty());
}

}  // namespace
}  // namespace permafrost::train
