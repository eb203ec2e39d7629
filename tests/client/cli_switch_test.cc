// Tests boolean flags over a job file that sets them all to true.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

constexpr char kAllOn[] = R"(dataset: cora
model: {residual: true, virtual_node: true, normalize_features: true}
optimizer: {nesterov: true}
init_from: {job: a, by_name: true}
neighbor_sampling: {fan_outs: [5], replace: true, weighted: true, disjoint: true, layer_wise_evaluation: true, no_page_advice: true}
link_prediction: {decoder: mlp}
graph_cache: {strict: true}
)";

class SwitchCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      requests_.Add(request);
      job = QueuedJob();
      return grpc::Status::OK;
    };
    fake_.Start();
    std::ofstream(file_) << kAllOn;
  }
  // Returns the spec that the client sends for the job that the flags describe.
  v1::JobSpec Submit(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {"--server", fake_.address(), "job", "submit"};
    command.insert(command.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return requests_.seen().empty() ? v1::JobSpec() : requests_.seen().back().spec();
  }

  const TempDir dir_;
  const std::string file_ = dir_.path() / "job.yaml";
  Recorder<v1::CreateJobRequest> requests_;
  FakeServer fake_;
};

TEST_F(SwitchCommandTest, EachOverridesTheFileEitherWay) {
  const std::vector<std::pair<std::string, bool (*)(const v1::JobSpec&)>> switches = {
      {"residual", [](const v1::JobSpec& spec) { return spec.model().residual(); }},
      {"virtual-node", [](const v1::JobSpec& spec) { return spec.model().virtual_node(); }},
      {"normalize-features", [](const v1::JobSpec& spec) { return spec.model().normalize_features(); }},
      {"nesterov", [](const v1::JobSpec& spec) { return spec.optimizer().nesterov(); }},
      {"init-by-name", [](const v1::JobSpec& spec) { return spec.init_from().by_name(); }},
      {"replace", [](const v1::JobSpec& spec) { return spec.neighbor_sampling().replace(); }},
      {"weighted", [](const v1::JobSpec& spec) { return spec.neighbor_sampling().weighted(); }},
      {"disjoint", [](const v1::JobSpec& spec) { return spec.neighbor_sampling().disjoint(); }},
      {"layer-wise-eval", [](const v1::JobSpec& spec) { return spec.neighbor_sampling().layer_wise_evaluation(); }},
      {"no-page-advice", [](const v1::JobSpec& spec) { return spec.neighbor_sampling().no_page_advice(); }},
      {"link-prediction", [](const v1::JobSpec& spec) { return spec.has_link_prediction(); }},
      {"strict", [](const v1::JobSpec& spec) { return spec.graph_cache().strict(); }},
  };
  std::vector<std::string> off = {"--file", file_};
  std::vector<std::string> last = {"--dataset", "cora"};
  for (const auto& [name, value] : switches) {
    off.push_back("--" + name + "=false");
    last.insert(last.end(), {"--" + name + "=false", "--" + name});
  }
  const v1::JobSpec untouched = Submit({"--file", file_}), none = Submit(off), all = Submit(last);
  for (const auto& [name, value] : switches) {
    EXPECT_TRUE(value(untouched)) << name;
    EXPECT_FALSE(value(none)) << name;
    EXPECT_TRUE(value(all)) << name << ": the last one counts";
  }
  EXPECT_EQ(none.neighbor_sampling().fan_outs_size(), 1);
  EXPECT_EQ(none.init_from().job(), "jobs/a");
}

TEST_F(SwitchCommandTest, WhatIsOffAsksForNothing) {
  const v1::JobSpec spec = Submit({"--dataset", "cora", "--replace=false", "--layer-wise-eval=false",
                                   "--init-by-name=false", "--link-prediction=false"});
  EXPECT_FALSE(spec.has_neighbor_sampling());
  EXPECT_FALSE(spec.has_init_from());
  EXPECT_FALSE(spec.has_link_prediction());
  EXPECT_EQ(Submit({"--dataset", "cora", "--link-prediction=false", "--link-seed", "3"}).link_prediction().split_seed(),
            3u)
      << "each flag of links says that they are predicted";
}

TEST_F(SwitchCommandTest, ASwitchOfAPolicyIsSaidEitherWay) {
  const v1::JobSpec spec = Submit({"--dataset", "cora", "--no-strict"});
  EXPECT_TRUE(spec.graph_cache().has_strict()) << "the server's own may be true";
  EXPECT_FALSE(spec.graph_cache().strict());
}

}  // namespace
}  // namespace permafrost::client
