// Tests weights on datasets that number their categories differently: the source's values identify categories.
#include "train/tasks/categories.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "data/source/import_options.h"
#include "evaluation_fixture.h"
#include "nn/safetensors.h"
#include "recorder.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CategoriesTest : public SetEvaluationTest {
 protected:
  // Imports the set `name` from the folder of trials, or from `from`.
  std::shared_ptr<const data::GraphSet> Imported(const std::string& name, const data::TuOptions& tu = {},
                                                 const fs::path& from = fs::path(PERMAFROST_SOURCE_DIR) /
                                                                        "tests/trials/tu-labels") {
    const fs::path store = dir_.path() / "sets" / (name + (tu.one_hot ? "-hot" : ""));
    fs::create_directories(store);
    data::ImportOptions options;
    options.source = from / name;
    options.format = data::ImportFormat::kTu;
    options.tu = tu;
    const auto summary = data::Import(options, store, [](const auto&) {}, {});
    EXPECT_TRUE(summary.ok()) << summary.status();
    return *data::GraphSet::Open(store);
  }
  static void Write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    ASSERT_TRUE(WriteFileAtomic(file, text).ok());
  }
  // Returns graphs of one edge. Both nodes of graph i have the label labels[i], and the graph has the class
  // classes[i].
  std::shared_ptr<const data::GraphSet> Pairs(const std::string& name, const std::vector<int>& labels,
                                              const std::vector<int>& classes, const data::TuOptions& tu = {}) {
    std::ostringstream edges, indicator, nodes, graphs;
    for (size_t g = 0; g < labels.size(); ++g) {
      edges << 2 * g + 1 << ", " << 2 * g + 2 << "\n" << 2 * g + 2 << ", " << 2 * g + 1 << "\n";
      indicator << g + 1 << "\n" << g + 1 << "\n";
      nodes << labels[g] << "\n" << labels[g] << "\n";
      if (g < classes.size()) graphs << classes[g] << "\n";
    }
    const fs::path source = dir_.path() / "sources" / name;
    Write(source / (name + "_A.txt"), edges.str());
    Write(source / (name + "_graph_indicator.txt"), indicator.str());
    Write(source / (name + "_node_labels.txt"), nodes.str());
    if (!classes.empty()) Write(source / (name + "_graph_labels.txt"), graphs.str());
    return Imported(name, tu, dir_.path() / "sources");
  }
  static spec::TrainOptions Classifying() {
    spec::TrainOptions options = Options();
    options.loss = spec::Loss::kCrossEntropy;
    options.metrics = {spec::Metric::kAccuracy};
    options.epochs = 100;
    options.model.dropout = 0;
    return options;
  }
  std::string WeightsOf(const spec::TrainOptions& options, const data::OpenedDataset& dataset, const std::string& job) {
    Recorder context;
    const auto run =
        runner_->Run({.options = options, .dataset = dataset, .job_directory = dir_.path() / job}, context);
    EXPECT_TRUE(run.ok() && run->result) << run.status();
    log_ = context.log;
    return Artifact(job, kLastWeightsFile);
  }
  EvaluateRequest Other(const spec::TrainOptions& options, data::OpenedDataset dataset, std::string weights,
                        const data::OpenedDataset& trained) {
    EvaluateRequest request = PassOf(options, std::move(dataset), std::move(weights), EvaluatedRows::kAll);
    request.trained_on = data::SummaryOf(trained);
    request.other_dataset = true;
    return request;
  }
  // Returns the numbers in the first `rows` rows of the CSV.
  static std::vector<double> Numbers(const std::string& csv, size_t rows) {
    std::vector<double> numbers;
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    for (size_t row = 0; row < rows && std::getline(lines, line); ++row) {
      std::istringstream cells(line.substr(line.find(',') + 1));
      for (std::string cell; std::getline(cells, cell, ',');) numbers.push_back(std::stod(cell));
    }
    return numbers;
  }
  static at::Tensor TensorOf(const std::string& file, const std::string& name) {
    const auto decoded = nn::DecodeSafetensors(file);
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    const auto found = std::ranges::find(decoded->tensors, name, &nn::NamedTensor::name);
    EXPECT_NE(found, decoded->tensors.end()) << name;
    return found == decoded->tensors.end() ? at::Tensor() : found->value;
  }
  std::string WithoutCategories(const std::string& file) {
    auto decoded = nn::DecodeSafetensors(file);
    EXPECT_EQ(decoded->metadata.erase(kCategoriesKey), 1U);
    return nn::EncodeSafetensors(decoded->tensors, decoded->metadata);
  }

  std::string log_;  // the log of the last run
};

// In the reported fault, labels 1 and 2 of a set without 0 were read as 0 and 1.
TEST_F(CategoriesTest, LabelsOfAnotherSetAreReadByTheirValues) {
  for (const bool one_hot : {false, true}) {
    SCOPED_TRACE(one_hot);
    const data::TuOptions tu{.one_hot = one_hot};
    const auto trained = Imported("TRAIN", tu), some = Imported("NEW", tu), full = Imported("NEWFULL", tu);
    ASSERT_NE(some->summary().node_features.width + some->summary().node_features.max[0],
              full->summary().node_features.width + full->summary().node_features.max[0]);
    const std::string weights = WeightsOf(Classifying(), trained, one_hot ? "hot" : "embedded");
    const auto of_some = Evaluate(Other(Classifying(), some, weights, trained));
    const auto of_full = Evaluate(Other(Classifying(), full, weights, trained));
    ASSERT_TRUE(of_some.ok() && of_full.ok()) << of_some.status() << of_full.status();
    EXPECT_EQ(of_some->metrics, (std::vector{1.0}));
    EXPECT_EQ(of_full->metrics, (std::vector{1.0}));
    const std::vector<double> first = Numbers(of_some->predictions, 4), second = Numbers(of_full->predictions, 4);
    ASSERT_EQ(first.size(), 8U);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(first[i], second[i], 1e-5) << i;
    // The result is the same if the training dataset is gone, because the weights contain its categories.
    EvaluateRequest gone = Other(Classifying(), some, weights, trained);
    gone.trained_on.reset();
    const auto without = Evaluate(gone);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(without->predictions, of_some->predictions);
  }
}

TEST_F(CategoriesTest, ValuesThatTrainingNeverSawAreRefusedOrContributeNothing) {
  for (const bool one_hot : {false, true}) {
    SCOPED_TRACE(one_hot);
    const data::TuOptions tu{.one_hot = one_hot};
    const auto aa = Imported("AA", tu), bb = Imported("BB", tu);
    ASSERT_EQ(aa->summary().node_features.max, bb->summary().node_features.max) << "the stored numbers are the same";
    const std::string weights = WeightsOf(Classifying(), aa, one_hot ? "hot" : "embedded");
    EvaluateRequest request = Other(Classifying(), bb, weights, aa);
    EXPECT_THAT(Refusal(Evaluate(request)),
                AllOf(HasSubstr("dataset: its node label 1 has the value 5 in 15 rows (and 1 other value in 15 rows)"),
                      HasSubstr("has nowhere; accepted: "), HasSubstr("allow_unknown_categories")));
    request.allow_unknown_categories = true;
    const auto pass = Evaluate(request);
    ASSERT_TRUE(pass.ok()) << pass.status();
    ASSERT_EQ(pass->notes.size(), 1U);
    EXPECT_THAT(pass->notes[0],
                AllOf(HasSubstr("node label 1 has the value 5 in 15 rows"), HasSubstr("it contributes nothing")));
    // Nodes of unknown labels are all alike. The ten graphs have the same structure, so they are alike too.
    const std::vector<double> numbers = Numbers(pass->predictions, 10);
    ASSERT_EQ(numbers.size(), 20U);
    for (size_t i = 2; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], numbers[i % 2], 1e-5);
    // A table of zeros gives the same predictions.
    if (one_hot) continue;
    auto zeroed = *nn::DecodeSafetensors(weights);
    const auto table = std::ranges::find(zeroed.tensors, "node_encoder.embeddings.0.weight", &nn::NamedTensor::name);
    table->value.zero_();
    const auto of_zeros = Evaluate(
        PassOf(Classifying(), aa, nn::EncodeSafetensors(zeroed.tensors, zeroed.metadata), EvaluatedRows::kAll));
    ASSERT_TRUE(of_zeros.ok()) << of_zeros.status();
    EXPECT_NEAR(Numbers(of_zeros->predictions, 1)[0], numbers[0], 1e-5);
  }
}

TEST_F(CategoriesTest, ClassesGoByTheSourcesValuesToo) {
  const auto trained = Pairs("TRAINED", {3, 4, 3, 4, 3, 4, 3, 4, 3, 4}, {-1, 7, -1, 7, -1, 7, -1, 7, -1, 7});
  const std::string weights = WeightsOf(Classifying(), trained, "job");
  EXPECT_THAT(Artifact("job", kTestPredictionsFile), testing::StartsWith("graph,prediction_-1,prediction_7\n"));
  // Its only class is class 0 of this set, and class 1 of the weights.
  const auto right = Evaluate(Other(Classifying(), Pairs("RIGHT", {4, 4, 4}, {7, 7, 7}), weights, trained));
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->metrics, (std::vector{1.0}));
  EXPECT_THAT(right->predictions, testing::StartsWith("graph,prediction_-1,prediction_7\n"));
  const auto other = Pairs("OTHER", {4, 4, 3}, {7, 8, 8});
  EvaluateRequest request = Other(Classifying(), other, weights, trained);
  request.predictions = false;
  EXPECT_THAT(Refusal(Evaluate(request)), HasSubstr("dataset: its labels have the class 8 in 2 rows"));
  request.allow_unknown_categories = true;
  EXPECT_THAT(Refusal(Evaluate(request)), HasSubstr("the class 8 in 2 rows")) << "nothing says that they are right";
  request.predictions = true;
  const auto pass = Evaluate(request);
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_EQ(pass->metrics, (std::vector{1.0})) << "of the graph whose class is known";
  EXPECT_THAT(pass->notes, ElementsAre(HasSubstr("labels have the class 8 in 2 rows")));
  // Predictions are named even if the set has no labels.
  const auto bare = Evaluate(Other(Classifying(), Pairs("BARE", {3, 4}, {}), weights, trained));
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_THAT(bare->predictions, testing::StartsWith("graph,prediction_-1,prediction_7\n"));
}

TEST_F(CategoriesTest, DegreesAreNoLabels) {
  const auto labels = Pairs("LABELS", {0, 1, 0, 1}, {0, 1, 0, 1});
  const auto degrees = Pairs("DEGREES", {0, 1, 0, 1}, {0, 1, 0, 1}, {.node_features = data::TuNodeFeatures::kDegree});
  const std::string weights = WeightsOf(Classifying(), labels, "job");
  EXPECT_THAT(Refusal(Evaluate(Other(Classifying(), degrees, weights, labels))),
              HasSubstr("dataset: its node degree is a degree as one column, and that of the weights a label"));
}

TEST_F(CategoriesTest, OlderWeightsAndStoresAreOfTheirOwnDatasetOnly) {
  const auto trained = Imported("TRAIN"), other = Imported("NEW");
  const std::string weights = WithoutCategories(WeightsOf(Classifying(), trained, "job"));
  EXPECT_TRUE(Evaluate(PassOf(Classifying(), trained, weights, EvaluatedRows::kAll)).ok());
  EXPECT_THAT(Refusal(Evaluate(Other(Classifying(), other, weights, trained))),
              AllOf(HasSubstr("dataset: the weights are of an older version"), HasSubstr("import that dataset again")));
  const auto graph = WriteTinyGraph(dir_.path() / "graph", {.nodes = 200, .edge_categories = 3});
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.model.architecture = spec::Architecture::kGine;
  options.model.hidden_channels = 16;
  options.epochs = 1;
  const std::string of_graph = WeightsOf(options, graph, "graph-job");
  const auto older =
      WriteTinyGraph(dir_.path() / "older", {.nodes = 100, .edge_categories = 3, .says_categories = false});
  EXPECT_THAT(Refusal(Evaluate(Other(options, older, of_graph, graph))),
              AllOf(HasSubstr("dataset: it was imported by an older version"), HasSubstr("import it again")));
  EXPECT_TRUE(Evaluate(PassOf(options, older, WeightsOf(options, older, "older-job"))).ok());
}

TEST_F(CategoriesTest, EdgesOfOneGraphMayHaveValuesThatContributeNothing) {
  const auto trained = WriteTinyGraph(dir_.path() / "trained", {.nodes = 200, .edge_categories = 3});
  const auto other = WriteTinyGraph(dir_.path() / "other", {.nodes = 100, .edge_categories = 5});
  for (const bool sampled : {false, true}) {
    spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
    options.model.architecture = spec::Architecture::kGine;
    options.model.hidden_channels = 16;
    options.epochs = 1;
    options.batch_size = 50;
    if (sampled) options.nodes.fan_outs = {4, 3};
    const std::string weights = WeightsOf(options, trained, sampled ? "sampled" : "whole");
    EvaluateRequest request = Other(options, other, weights, trained);
    EXPECT_THAT(Refusal(Evaluate(request)), HasSubstr("dataset: its edge column 0 has the value 3 in "));
    request.allow_unknown_categories = true;
    const auto pass = Evaluate(request);
    ASSERT_TRUE(pass.ok()) << pass.status();
    EXPECT_EQ(pass->rows, 100);
    EXPECT_THAT(pass->notes, ElementsAre(HasSubstr("edge column 0 has the value 3 in "),
                                         HasSubstr("edge column 1 has the value 3 in ")));
  }
}

// The set could consist of one molecule with one atom. Without edges, it has no edge columns that could differ.
TEST_F(CategoriesTest, WhatIsEmptyHasNoColumnsToCompare) {
  Recorder context;
  ASSERT_TRUE(Run(Options(), "job", context).ok());
  std::vector<TinyGraph> lone(3, {.categories = {1}, .edges = {}, .edge_categories = {}, .label = 0.5});
  const auto set = ImportGraphs(dir_.path() / "lone", lone);
  ASSERT_EQ(set->summary().edge_features.width, 0);
  const std::string weights = Artifact("job", kBestWeightsFile);
  for (const bool older : {false, true}) {
    const auto pass = Evaluate(Other(Options(), set, older ? WithoutCategories(weights) : weights, graphs_));
    if (older) {
      EXPECT_THAT(Refusal(pass), HasSubstr("older version")) << "of its nodes' categories";
      continue;
    }
    ASSERT_TRUE(pass.ok()) << pass.status();
    EXPECT_EQ(pass->rows, 3);
    EXPECT_TRUE(std::isfinite(Numbers(pass->predictions, 1)[0]));
  }
  lone.assign(3, {.categories = {}, .edges = {}, .edge_categories = {}, .label = 0.5});
  const auto empty = Evaluate(Other(Options(), ImportGraphs(dir_.path() / "empty", lone), weights, graphs_));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->rows, 3);
}

TEST_F(CategoriesTest, AJobBeginsWithTheRowsOfItsOwnValues) {
  for (const bool one_hot : {false, true}) {
    SCOPED_TRACE(one_hot);
    const data::TuOptions tu{.one_hot = one_hot};
    const auto first = Pairs("FIRST", {3, 4, 3, 4, 3, 4, 3, 4}, {-1, 7, -1, 7, -1, 7, -1, 7}, tu);
    // Label 2 is new, and label 4 is the third here. Class 5 is new, and class 7 is the third.
    const auto second = Pairs("SECOND", {2, 3, 4, 2, 3, 4, 2, 3, 4}, {-1, 5, 7, -1, 5, 7, -1, 5, 7}, tu);
    const std::string weights = WeightsOf(Classifying(), first, one_hot ? "first-hot" : "first");
    spec::TrainOptions options = Classifying();
    options.seed = 8;
    options.epochs = 1;
    options.optimizer.learning_rate = 1e-30;
    const std::string job = one_hot ? "second-hot" : "second";
    const std::string fresh = WeightsOf(options, second, job + "-fresh");
    options.init_from = {.job = JobId("first")};
    const auto categories = second->categories();
    ASSERT_TRUE(categories.ok());
    EXPECT_EQ(runner_->CheckInitialWeights(options, second->summary(), weights, "spec.",
                                           {.categories = *categories, .other_dataset = true}),
              absl::OkStatus());
    Write(dir_.path() / job / std::string(kInitialWeightsFile), weights);
    const std::string begun = WeightsOf(options, second, job);
    EXPECT_THAT(log_,
                HasSubstr("; categories by their values in the source: 4 taken, 2 new ones begin as in a new job"));
    const auto rows = [&](const std::string& file) {
      return one_hot ? TensorOf(file, "node_encoder.linear.weight").t()
                     : TensorOf(file, "node_encoder.embeddings.0.weight");
    };
    EXPECT_TRUE(at::allclose(rows(begun)[0], rows(fresh)[0])) << "2 is new";
    EXPECT_TRUE(at::allclose(rows(begun)[1], rows(weights)[0])) << "3";
    EXPECT_TRUE(at::allclose(rows(begun)[2], rows(weights)[1])) << "4";
    for (const char* name : {"head.2.weight", "head.2.bias"}) {
      EXPECT_TRUE(at::allclose(TensorOf(begun, name)[0], TensorOf(weights, name)[0])) << "-1";
      EXPECT_TRUE(at::allclose(TensorOf(begun, name)[1], TensorOf(fresh, name)[1])) << "5 is new";
      EXPECT_TRUE(at::allclose(TensorOf(begun, name)[2], TensorOf(weights, name)[1])) << "7";
    }
    // Weights of an older version do not say to which categories their rows belong.
    const std::string older = WithoutCategories(weights);
    const WeightsTarget target{.categories = *categories, .other_dataset = true};
    EXPECT_THAT(std::string(runner_->CheckInitialWeights(options, second->summary(), older, "spec.", target).message()),
                AllOf(HasSubstr("spec.init_from: the weights of jobs/first were trained by an older version"),
                      HasSubstr("import the dataset of that job again")));
    EXPECT_THAT(
        std::string(runner_->CheckInitialWeights(options, second->summary(), weights, "spec.", {.other_dataset = true})
                        .message()),
        HasSubstr("the job's dataset was imported by an older version"));
  }
}

TEST_F(CategoriesTest, WhatAModelDoesNotReadIsNotCompared) {
  spec::TrainOptions options = Classifying();
  options.model.node_inputs = spec::NodeInputs::kConstant;
  const auto aa = Imported("AA"), bb = Imported("BB");
  const std::string weights = WeightsOf(options, aa, "job");
  const auto pass = Evaluate(Other(options, bb, weights, aa));
  ASSERT_TRUE(pass.ok()) << pass.status();
  EXPECT_TRUE(pass->notes.empty());
}

}  // namespace
}  // namespace permafrost::train
