// Tests runs on sets of graphs whose nodes have no features, or whose model does not read the features, and on sets
// without labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "nn/safetensors.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "train/loop/artifacts.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

class SetInputsTest : public RunnerTest {
 protected:
  // Returns rings and stars of 3 to 12 nodes, without node or edge features. The label says which of the two a graph
  // is, unless labels are left out.
  std::shared_ptr<const data::GraphSet> Bare(const std::string& name, bool labelled = true) {
    namespace fs = std::filesystem;
    const fs::path folder = dir_.path() / name;
    fs::create_directories(folder / "source/raw");
    fs::create_directories(folder / "store");
    std::ofstream nodes(folder / "source/raw/num-node-list.csv"), edges(folder / "source/raw/num-edge-list.csv");
    std::ofstream edge(folder / "source/raw/edge.csv"), labels(folder / "source/raw/graph-label.csv");
    for (int g = 0; g < kGraphs; ++g) {
      const int n = 3 + g / 2 % 10;
      const bool ring = g % 2 == 0;
      nodes << n << "\n";
      edges << (ring ? n : n - 1) << "\n";
      for (int v = ring ? 0 : 1; v < n; ++v) edge << v << "," << (ring ? (v + 1) % n : 0) << "\n";
      if (labelled) labels << (ring ? 1 : 0);
      labels << "\n";
    }
    for (std::ofstream* file : {&nodes, &edges, &edge, &labels}) file->close();
    const auto summary = data::Import({.source = folder / "source"}, folder / "store", [](const auto&) {}, {});
    EXPECT_TRUE(summary.ok()) << summary.status();
    return *data::GraphSet::Open(folder / "store");
  }
  static spec::TrainOptions Job(spec::Architecture architecture, spec::NodeInputs inputs) {
    spec::TrainOptions options = Options();
    options.model.architecture = architecture;
    options.model.node_inputs = inputs;
    options.epochs = 20;
    return options;
  }
  nlohmann::json Described(const std::string& job) {
    const auto weights = nn::DecodeSafetensors(Artifact(job, kBestWeightsFile));
    EXPECT_TRUE(weights.ok()) << weights.status();
    return nlohmann::json::parse(weights->metadata.at("permafrost.model"));
  }
};

TEST_F(SetInputsTest, NodesBeginWithTheirDegree) {
  graphs_ = Bare("bare");
  for (const spec::Architecture architecture : {spec::Architecture::kGin, spec::Architecture::kSage}) {
    const std::string job(spec::kArchitectureNames.Name(architecture));
    Recorder context;
    const auto outcome = Run(Job(architecture, spec::NodeInputs::kDegree), job, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_THAT(context.log, HasSubstr("nodes begin with weights of their number of in-edges, 0..255 (the set's nodes "
                                       "have no features)"));
    EXPECT_LT(context.epochs.back().valid_loss, 0.3) << job << ": a ring is told from a star";
    EXPECT_EQ(context.cache.of(Mode::kTrain).graph_breaks, 0) << context.log;
    EXPECT_EQ(Described(job)["node_inputs"], "degree");
    EXPECT_EQ(Described(job)["node"]["categories"], (nlohmann::json{256}));
  }
}

TEST_F(SetInputsTest, TheirOwnFeaturesMayBeLeftOut) {
  Recorder context;
  ASSERT_TRUE(Run(Job(spec::Architecture::kGine, spec::NodeInputs::kConstant), "constant", context).ok());
  EXPECT_THAT(context.log, HasSubstr("nodes begin with 1 (as asked for)"));
  EXPECT_EQ(Described("constant")["node"]["float_columns"], 1);
  Recorder own;
  ASSERT_TRUE(Run(Job(spec::Architecture::kGine, spec::NodeInputs::kFeatures), "own", own).ok());
  EXPECT_FALSE(Described("own").contains("node_inputs"));
  EXPECT_EQ(Described("own")["node"]["categories"], (nlohmann::json{3}));
}

TEST_F(SetInputsTest, RowsThatStayAlikeAreWarnedOf) {
  graphs_ = Bare("bare");
  for (const auto& [architecture, warned] :
       {std::pair(spec::Architecture::kSage, true), {spec::Architecture::kGin, false}}) {
    Recorder context;
    spec::TrainOptions options = Job(architecture, spec::NodeInputs::kConstant);
    options.epochs = 1;
    ASSERT_TRUE(Run(options, std::string(spec::kArchitectureNames.Name(architecture)), context).ok());
    EXPECT_EQ(context.log.find("warning: sage keeps equal rows nearly equal") != std::string::npos, warned)
        << context.log;
  }
}

TEST_F(SetInputsTest, WhatThereIsNotIsRefused) {
  graphs_ = Bare("bare");
  const auto always = [] { return true; };
  const auto told = [&](spec::NodeInputs inputs) {
    const spec::TrainOptions options = Job(spec::Architecture::kGin, inputs);
    return std::string(
        runner_->CheckFits({.options = options, .dataset = graphs_}, "spec.", always).status().message());
  };
  EXPECT_EQ(told(spec::NodeInputs::kDegree), "");
  EXPECT_EQ(told(spec::NodeInputs::kAuto), "") << "of a job of a server that knew no inputs of sets";
  EXPECT_THAT(
      told(spec::NodeInputs::kFeatures),
      HasSubstr("spec.model.node_inputs: features, and the dataset's nodes have none; accepted: degree, constant"));
  spec::TrainOptions learned = Job(spec::Architecture::kGin, spec::NodeInputs::kLearned);
  learned.dataset = DatasetId("set");
  Violations violations;
  Validate(learned, "spec.", violations);
  EXPECT_THAT(std::string(violations.ToStatus().message()),
              HasSubstr("spec.model.node_inputs: learned is given for a set of graphs; accepted: features, degree, "
                        "constant"));
}

TEST_F(SetInputsTest, ATrainSplitWithoutALabelIsRefused) {
  graphs_ = Bare("unlabelled", /*labelled=*/false);
  const auto fits =
      runner_
          ->CheckFits({.options = Job(spec::Architecture::kGin, spec::NodeInputs::kDegree), .dataset = graphs_},
                      "spec.", [] { return true; })
          .status();
  EXPECT_EQ(fits.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(fits.message()),
              HasSubstr("spec.dataset: none of the 80 graphs of its train split has a label; "
                        "at least one is needed"));
}

}  // namespace
}  // namespace permafrost::train
