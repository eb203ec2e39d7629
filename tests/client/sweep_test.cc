// Tests `permafrost job sweep`: the jobs that it makes, what it prints about them, and what a scripted server
// receives.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/fake_server.h"
#include "client/job_flags.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "client/spec_rows.h"
#include "client/sweep.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SweepPlan, FieldsGoByPathByLastNameAndByFlag) {
  const struct {
    const char* name;
    const char* want;
  } kNames[] = {
      {"model.hidden_channels", "model.hidden_channels"},
      {"hidden-channels", "model.hidden_channels"},
      {"hidden", "model.hidden_channels"},
      {"lr", "optimizer.learning_rate"},
      {"seed", "seed"},  // not cross_validation.seed, which is nested deeper
      {"fold", "cross_validation.fold"},
      {"fold-seed", "cross_validation.seed"},
      {"model", "model.architecture"},
      {"dataset", "dataset"},
      {"policy", "graph_cache.policy"},
      {"negatives", "link_prediction.negatives"},
      {"num-negative-samples", "node2vec.num_negative_samples"},
  };
  for (const auto& c : kNames) {
    const auto path = FindSpecField(c.name);
    ASSERT_TRUE(path.ok()) << c.name << path.status();
    EXPECT_EQ(PathName(*path), c.want) << c.name;
  }
  EXPECT_THAT(std::string(FindSpecField("channels").status().message()), HasSubstr("'channels' is no field of a job"));
  EXPECT_THAT(std::string(FindSpecField("max_nodes").status().message()), testing::IsEmpty());
}

TEST(SweepPlan, AGridChangesItsLastAxisFirstAndAListGoesSideBySide) {
  v1::JobSpec base;
  base.set_dataset("mutag");
  base.set_epochs(5);
  const std::vector<SweepAxis> axes = {*ParseAxis("hidden=32,64"), *ParseAxis("seed=0..2")};
  EXPECT_THAT(axes[1].values, ElementsAre("0", "1", "2"));
  const auto grid = PlanSweep(base, axes, /*side_by_side=*/false, 6);
  ASSERT_TRUE(grid.ok()) << grid.status();
  ASSERT_EQ(grid->size(), 6U);
  EXPECT_THAT((*grid)[1].values, ElementsAre("32", "1"));
  EXPECT_THAT((*grid)[3].values, ElementsAre("64", "0"));
  EXPECT_EQ((*grid)[5].spec.model().hidden_channels(), 64);
  EXPECT_EQ((*grid)[5].spec.seed(), 2U);
  EXPECT_EQ((*grid)[5].spec.epochs(), 5);
  EXPECT_EQ((*grid)[5].spec.dataset(), "datasets/mutag");
  const auto list = PlanSweep(base, {*ParseAxis("hidden=32,64"), *ParseAxis("seed=7,9")}, /*side_by_side=*/true, 2);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 2U);
  EXPECT_THAT((*list)[1].values, ElementsAre("64", "9"));
  EXPECT_THAT(std::string(PlanSweep(base, axes, false, 5).status().message()),
              HasSubstr("--vary makes 6 jobs; --max-jobs accepts 5"));
  EXPECT_THAT(std::string(PlanSweep(base, axes, true, 100).status().message()),
              HasSubstr("--side-by-side: hidden has 2 values and seed has 3"));
  EXPECT_THAT(std::string(PlanSweep(base, {axes[0], axes[0]}, false, 100).status().message()),
              HasSubstr("model.hidden_channels stands twice"));
}

TEST(SweepPlan, NegativesAreThoseOfTheModel) {
  v1::JobSpec walks, links;
  walks.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_NODE2VEC);
  const auto plan = [](const std::vector<std::string>& vary, const v1::JobSpec& base) {
    std::vector<SweepAxis> axes;
    axes.reserve(vary.size());
    for (const std::string& text : vary) axes.push_back(*ParseAxis(text, base));
    return PlanSweep(base, axes, /*side_by_side=*/false, 10);
  };
  const auto of_walks = plan({"negatives=2,5"}, walks);
  ASSERT_TRUE(of_walks.ok()) << of_walks.status();
  EXPECT_EQ((*of_walks)[1].spec.node2vec().num_negative_samples(), 5);
  EXPECT_FALSE((*of_walks)[1].spec.has_link_prediction());
  const auto of_links = plan({"model=sage,gcn", "negatives=2,5"}, links);
  ASSERT_TRUE(of_links.ok()) << of_links.status();
  EXPECT_EQ((*of_links)[3].spec.link_prediction().negatives(), 5);
  EXPECT_FALSE((*of_links)[3].spec.has_node2vec());
  EXPECT_EQ(std::string(plan({"model=sage,node2vec", "negatives=2,5"}, links).status().message()),
            "--vary negatives: is another field of node2vec than of the other models; accepted beside --vary model: "
            "node2vec.num_negative_samples, link_prediction.negatives");
  EXPECT_TRUE(plan({"model=sage,node2vec", "hidden=2,5"}, links).ok());
}

TEST(SweepPlan, BadAxesAreNamed) {
  const struct {
    const char* text;
    const char* says;
  } kCases[] = {
      {"hidden", "'hidden' is not FIELD=VALUE"},
      {"nothing=1",
       "'nothing' is no field of a job; accepted: a flag of `permafrost job submit` without its dashes, as hidden, or "
       "the "
       "path of a field, as model.hidden_channels"},
      {"hidden=32,x", "model.hidden_channels: 'x'; accepted: a whole number of 32 bits"},
      {"hidden=", "model.hidden_channels: ''"},
      {"loss=l1,l2", "loss: 'l2'; accepted: l1, mse, cross-entropy, bce"},
      {"seed=3..1", "'3..1' is no range"},
      {"seed=0..99999999", "is no range of 1 to 10000 rising numbers"},
      {"seed=1,1", "'1' stands twice"},
      {"class_weights=1:x,1:2", "class_weights: 'x'; accepted: a number; a list has ':' between its items"},
      {"fan-out=", "neighbor_sampling.fan_outs: ''; accepted: a whole number, or all; a list"},
      {"fixed-parameters=a::b", "fixed_parameters: ''; accepted: text; a list has ':' between its items"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(std::string(ParseAxis(c.text).status().message()), HasSubstr(c.says)) << c.text;
  }
}

v1::Job ResultOf(const std::string& id, double valid, double test) {
  v1::Job job = SucceededJob();
  job.set_name(absl::StrCat("jobs/", id));
  v1::MetricValue& v = *job.mutable_result()->add_best_valid_metrics();
  v.set_metric(v1::METRIC_ACCURACY);
  v.set_value(valid);
  v1::MetricValue& t = *job.mutable_result()->add_best_test_metrics();
  t.set_metric(v1::METRIC_ACCURACY);
  t.set_value(test);
  return job;
}

TEST(SweepView, MeansAreOverFoldsAndSeeds) {
  v1::JobSpec base;
  base.set_dataset("mutag");
  const std::vector<SweepAxis> axes = {*ParseAxis("fold=0,1"), *ParseAxis("hidden=32,64")};
  const std::vector<SweepJob> plan = *PlanSweep(base, axes, false, 10);
  std::vector<v1::Job> jobs = {ResultOf("s-0", 0.5, 0.8), ResultOf("s-1", 0.6, 0.7), ResultOf("s-2", 0.7, 0.9),
                               ResultOf("s-3", 0, 0)};
  jobs[3].set_state(v1::Job::STATE_FAILED);
  jobs[3].clear_result();
  const auto groups = GroupsOf(axes, plan, jobs);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_THAT(groups[0].values, ElementsAre("32"));
  EXPECT_NEAR(groups[0].test[0].mean, 0.85, 1e-12);
  EXPECT_NEAR(groups[0].test[0].deviation, 0.05, 1e-12);  // the population's deviation
  EXPECT_EQ(groups[1].test[0].jobs, 1);
  EXPECT_EQ(groups[1].jobs, 2);
  const std::string text = RenderSweep(axes, plan, jobs, {}, {});
  EXPECT_THAT(text, HasSubstr("fold  hidden  JOB  STATE      BEST EPOCH  VALID accuracy  TEST accuracy\n"));
  EXPECT_THAT(text, HasSubstr("hidden    JOBS"));
  EXPECT_THAT(text, HasSubstr("1 of 2"));
  const json parsed = json::parse(SweepToJson("s", axes, plan, jobs, {}, {}));
  EXPECT_EQ(parsed["jobs"][3]["state"], "failed");
  EXPECT_TRUE(parsed["jobs"][3]["test"]["accuracy"].is_null());
  EXPECT_EQ(parsed["jobs"][2]["values"]["cross_validation.fold"], "1");
  EXPECT_EQ(parsed["groups"][0]["values"], (json{{"model.hidden_channels", "32"}}));
  EXPECT_NEAR(parsed["groups"][0]["test"]["accuracy"]["mean"], 0.85, 1e-12);
}

TEST(SweepView, WhatNoJobToldIsNullInJson) {
  v1::JobSpec base;
  base.set_dataset("mutag");
  const std::vector<SweepAxis> axes = {*ParseAxis("hidden=32,64")};
  std::vector<v1::Job> jobs = {ResultOf("s-0", 0.5, 0.8), ResultOf("s-1", 0, 0)};
  jobs[1].clear_result();
  const json parsed = json::parse(SweepToJson("s", axes, *PlanSweep(base, axes, false, 10), jobs, {}, {}));
  EXPECT_EQ(parsed["groups"][1]["test"]["accuracy"], json::parse(R"({"jobs":0,"mean":null,"standardDeviation":null})"));
  EXPECT_EQ(parsed["groups"][0]["test"]["accuracy"], json::parse(R"({"jobs":1,"mean":0.8,"standardDeviation":0.0})"));
  EXPECT_TRUE(parsed["jobs"][1]["bestEpoch"].is_null());
  EXPECT_TRUE(parsed["jobs"][1]["trainSeconds"].is_null());
  EXPECT_TRUE(parsed["jobs"][0]["bestEpoch"].is_number());
  EXPECT_TRUE(parsed["jobs"][0]["trainSeconds"].is_number());
}

TEST(SweepView, MeansAreOverAnySeedAndFold) {
  v1::JobSpec base;
  base.set_dataset("cora");
  for (const char* repeated : {"seed", "fold", "fold-seed", "link-seed"}) {
    const std::vector<SweepAxis> axes = {*ParseAxis(absl::StrCat(repeated, "=1,2")), *ParseAxis("hidden=32,64")};
    const std::vector<SweepJob> plan = *PlanSweep(base, axes, false, 10);
    const std::vector<v1::Job> jobs = {ResultOf("s-0", 0.5, 0.8), ResultOf("s-1", 0.6, 0.7), ResultOf("s-2", 0.7, 0.9),
                                       ResultOf("s-3", 0.8, 0.6)};
    const auto groups = GroupsOf(axes, plan, jobs);
    ASSERT_EQ(groups.size(), 2U) << repeated;
    EXPECT_THAT(groups[1].values, ElementsAre("64")) << repeated;
    EXPECT_EQ(groups[1].test[0].jobs, 2) << repeated;
    EXPECT_NEAR(groups[1].test[0].mean, 0.65, 1e-12) << repeated;
  }
  const std::vector<SweepAxis> varied = {*ParseAxis("epochs=1,2")};
  const auto groups =
      GroupsOf(varied, *PlanSweep(base, varied, false, 10), {ResultOf("s-0", 0, 0), ResultOf("s-1", 0, 0)});
  EXPECT_EQ(groups.size(), 2U) << "epochs are no repetitions";
}

TEST(SweepView, SpreadsOfNothingAndOfOne) {
  EXPECT_EQ(SpreadOf({}).jobs, 0);
  EXPECT_EQ(SpreadOf({3}).mean, 3);
  EXPECT_EQ(SpreadOf({3}).deviation, 0);
}

class SweepCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      requests_.Add(request);
      if (request.spec().seed() == refused_) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such seed");
      job = QueuedJob();
      job.set_name(absl::StrCat("jobs/", request.job_id()));
      *job.mutable_spec() = request.spec();
      return grpc::Status::OK;
    };
    fake_.jobs.watch = [](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>& writer,
                          grpc::ServerContext&) {
      const std::string id = request.name().substr(5);
      v1::Job job = ResultOf(id, 0.5, id.back() == '0' ? 0.25 : 0.75);
      writer.Write(job);
      return grpc::Status::OK;
    };
    fake_.Start();
  }
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  FakeServer fake_;
  Recorder<v1::CreateJobRequest> requests_;
  uint64_t refused_ = 99;
};

TEST_F(SweepCommandTest, ChecksAllThenCreatesAllAndShowsATable) {
  const std::vector<std::string> command = {"job",       "sweep",   "--dataset", "mutag", "--vary",
                                            "seed=0..1", "--folds", "10",        "--id",  "try"};
  const ProgramResult result = Run(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto sent = requests_.seen();
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_TRUE(sent[0].validate_only() && sent[1].validate_only());
  EXPECT_FALSE(sent[2].validate_only() || sent[3].validate_only());
  EXPECT_EQ(sent[2].job_id(), "try-0");
  EXPECT_EQ(sent[3].spec().seed(), 1U);
  EXPECT_EQ(sent[3].spec().cross_validation().folds(), 10);
  EXPECT_NE(sent[2].request_id(), sent[3].request_id());
  EXPECT_THAT(result.out, HasSubstr("sweep try: 2 jobs submitted\n"));
  EXPECT_THAT(result.out, HasSubstr("2/2  seed=1  succeeded"));
  EXPECT_THAT(result.out, HasSubstr("0.5000 ± 0.2500"));
  // A repeated command finds the jobs that the first one made.
  EXPECT_EQ(Run(command).exit_code, 0);
  EXPECT_EQ(requests_.seen()[6].request_id(), sent[2].request_id());
}

TEST_F(SweepCommandTest, JsonIsOneObject) {
  const ProgramResult result =
      Run({"--output", "json", "job", "sweep", "--dataset", "mutag", "--vary", "seed=0,1", "--id", "try"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json parsed = json::parse(result.out);
  EXPECT_EQ(parsed["sweep"], "try");
  EXPECT_EQ(parsed["jobs"].size(), 2U);
  EXPECT_EQ(parsed["groups"][0]["test"]["accuracy"]["mean"], 0.5);
}

TEST_F(SweepCommandTest, NothingIsCreatedUnlessAllCanBe) {
  refused_ = 1;
  const ProgramResult result = Run({"job", "sweep", "--dataset", "mutag", "--vary", "seed=0..3"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("job 2 of 4 (seed=1) is refused; nothing was created"));
  EXPECT_THAT(result.err, HasSubstr("no such seed"));
  const auto sent = requests_.seen();
  EXPECT_TRUE(std::ranges::all_of(sent, [](const auto& request) { return request.validate_only(); }));
}

TEST_F(SweepCommandTest, WhatNoServerAnsweredIsNotCalledRefused) {
  fake_.jobs.create = [](const v1::CreateJobRequest& request, v1::Job&) {
    return request.validate_only() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
  };
  const std::vector<std::string> command = {"--timeout", "1",      "job",      "sweep", "--dataset",
                                            "mutag",     "--vary", "seed=0,1", "--id",  "try"};
  const ProgramResult lost = Run(command);
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.err, HasSubstr("permafrost: job 1 of 2 (seed=0) could not be made; the same command with --id try "
                                  "comes back to those that were made\n"));
  fake_.Stop();
  const ProgramResult gone = Run(command);
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_THAT(gone.err, HasSubstr("permafrost: job 1 of 2 (seed=0) could not be made; nothing was created\n"));
}

TEST_F(SweepCommandTest, ARefusalInJsonIsOneObject) {
  refused_ = 1;
  const ProgramResult result =
      Run({"--output", "json", "job", "sweep", "--dataset", "mutag", "--vary", "seed=0,1", "--id", "try"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(json::parse(result.err)["error"]["code"], "INVALID_ARGUMENT");
}

// Every flag of `job submit` names a field to vary, and accepts the same values there.
TEST_F(SweepCommandTest, EveryFlagIsAField) {
  // The values of those flags for which `accepted` finds no valid value.
  const std::map<std::string, std::string> values = {{"dataset", "cora"},
                                                     {"dropout", "0.5"},
                                                     {"lr", "0.5"},
                                                     {"input-dropout", "0.5"},
                                                     {"weight-decay", "0.5"},
                                                     {"class-weights", "1:2.5"},
                                                     {"metrics", "mae:rmse"},
                                                     {"fan-out", "5:all"},
                                                     {"eval-fan-out", "all:10"},
                                                     {"init-from", "a-job"},
                                                     {"init-weights", "last"},
                                                     {"init-file", "dir/w.st"},
                                                     {"fixed-parameters", "convs.0:head"},
                                                     {"max-runtime", "1h"},
                                                     {"deadline", "2030-01-31T13:00:00Z"},
                                                     {"freeze-at", "derived"}};
  // These are no fields to vary. `link-prediction` is a message, and `no-strict` means strict=false.
  const std::set<std::string> no_fields = {"file", "link-prediction", "no-strict", "help"};
  CLI::App app;
  JobFlags flags;
  AddJobFlags(app, flags);
  const auto accepted = [](const CLI::Option& option) {
    // A type "a|b|c" lists named values. Every other type accepts a number.
    const std::string type = option.get_type_name();
    return type.find('|') != std::string::npos && type != "N|derived" ? type.substr(type.rfind('|') + 1) : "3";
  };
  int fields = 0;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : option->get_lnames()) {
      if (no_fields.contains(flag)) continue;
      const bool is_switch = option->get_expected_max() == 0;
      const auto given = values.find(flag);
      const std::string value = is_switch ? "true" : given != values.end() ? given->second : accepted(*option);
      const size_t before = requests_.seen().size();
      std::vector<std::string> submit = {"job", "submit", "--id", "x"}, sweep = {"job", "sweep", "--id", "x"};
      if (flag != "dataset") {
        for (auto* command : {&submit, &sweep}) command->insert(command->end(), {"--dataset", "d"});
      }
      submit.push_back("--" + flag);
      // A flag's list has commas between its items.
      if (!is_switch) submit.push_back(flag == "deadline" ? value : absl::StrReplaceAll(value, {{":", ","}}));
      sweep.insert(sweep.end(), {"--vary", absl::StrCat(flag, "=", value)});
      const ProgramResult submitted = Run(submit), swept = Run(sweep);
      ASSERT_EQ(submitted.exit_code, 0) << flag << ": " << submitted.err;
      ASSERT_EQ(swept.exit_code, 0) << flag << ": " << swept.err;
      const auto sent = requests_.seen();
      ASSERT_EQ(sent.size(), before + 3) << flag;
      EXPECT_EQ(sent.back().spec().ShortDebugString(), sent[before].spec().ShortDebugString()) << flag;
      ++fields;
    }
  }
  EXPECT_GT(fields, 60);
}

TEST_F(SweepCommandTest, DatasetsMayBeVariedAlone) {
  const ProgramResult result = Run({"job", "sweep", "--vary", "dataset=cora,citeseer", "--id", "try"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto sent = requests_.seen();
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[2].spec().dataset(), "datasets/cora");
  EXPECT_EQ(sent[3].spec().dataset(), "datasets/citeseer");
  EXPECT_THAT(Run({"job", "sweep", "--vary", "seed=0,1"}).err, HasSubstr("--dataset is missing"));
}

TEST_F(SweepCommandTest, BadAxesAreUsageErrors) {
  const ProgramResult result = Run({"job", "sweep", "--dataset", "mutag", "--vary", "nothing=1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--vary: 'nothing' is no field of a job"));
  EXPECT_TRUE(requests_.seen().empty());
}

}  // namespace
}  // namespace permafrost::client
