// Tests link prediction as a user works with it: import a graph, predict its links, read their ranks, and kill the
// server meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "e2e/ogb_nodes.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// So many that a kill in the third epoch comes long before the end, even on a slow machine.
constexpr char kManyEpochs[] = "40";

class LinkPrediction : public testing::Test {
 protected:
  void SetUp() override {
    WriteOgbNodes(dir_.path() / "source", 2000);
    daemon_ = std::make_unique<Daemon>(dir_.path() / "state", dir_.path() / "source");
    ASSERT_TRUE(daemon_->ready());
    daemon_->Import("kinds", dir_.path() / "source");
  }
  Output Submit(const std::string& id, const std::string& epochs, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"job",    "submit", "--hidden",     "16",   "--epochs",
                                   epochs,   "--lr",   "0.01",         "--id", id,
                                   "--seed", "3",      "--batch-size", "512",  "--link-prediction"};
    words.insert(words.end(), flags.begin(), flags.end());
    if (std::ranges::count(flags, "--dataset") == 0) words.insert(words.end(), {"--dataset", "kinds"});
    return daemon_->Client(words);
  }
  TempDir dir_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(LinkPrediction, TrainsBySamplesAndOnTheWholeGraph) {
  for (const bool sampled : {true, false}) {
    std::vector<std::string> flags{"--metrics", "mrr,hits-at-50,roc-auc", "--decoder", "mlp"};
    if (sampled) flags.insert(flags.end(), {"--fan-out", "8,4", "--negative-sampling", "degree"});
    const std::string job = sampled ? "sampled" : "whole";
    const Output submitted = Submit(job, sampled ? "5" : "40", flags);
    ASSERT_EQ(submitted.code, 0) << submitted.err;
    const v1::Job ended = daemon_->AwaitEnd(job);
    ASSERT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.error();
    EXPECT_GT(ended.result().best_test_metrics(2).value(), 0.55) << "ROC-AUC of kinds that rather link to their own";
    EXPECT_EQ(ended.result().metric(), v1::METRIC_MRR);
    const std::string file = (dir_.path() / job).string();
    ASSERT_EQ(daemon_->Client({"job", "export", job, "--artifact", "test-predictions", "--to", file}).code, 0);
    std::string header;
    std::ifstream stream(file);
    std::getline(stream, header);
    EXPECT_EQ(header, "source,target,score,rank");
    const Output shown = daemon_->Client({"job", "show", job});
    EXPECT_THAT(shown.out,
                AllOf(HasSubstr("5 % validate, 10 % test"), HasSubstr("decoder mlp"), HasSubstr(" links, ")));
    EXPECT_THAT(shown.out, HasSubstr(sampled ? "negatives, degree" : "negatives, uniform"));
    const Output logs = daemon_->Client({"job", "logs", job});
    EXPECT_THAT(logs.out, AllOf(HasSubstr("valid MRR"), HasSubstr("hits@50"), HasSubstr("links/s")));
  }
}

TEST_F(LinkPrediction, AKilledServerGoesOnToTheBit) {
  ASSERT_EQ(Submit("undisturbed", kManyEpochs, {"--fan-out", "8,4"}).code, 0);
  ASSERT_EQ(daemon_->AwaitEnd("undisturbed").state(), v1::Job::STATE_SUCCEEDED);
  ASSERT_EQ(Submit("killed", kManyEpochs, {"--fan-out", "8,4"}).code, 0);
  ASSERT_NO_FATAL_FAILURE(daemon_->AwaitEpoch("killed", 3));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(daemon_, dir_.path() / "state", dir_.path() / "source"));
  const v1::Job killed = daemon_->AwaitEnd("killed");
  ASSERT_EQ(killed.state(), v1::Job::STATE_SUCCEEDED) << killed.error();
  EXPECT_EQ(killed.resumes(), 1);
  const auto weights = [&](const std::string& job) { return daemon_->LastWeights(job, dir_.path() / job); };
  EXPECT_EQ(weights("killed"), weights("undisturbed"));
}

TEST_F(LinkPrediction, WhatDoesNotGoIsRefusedInALine) {
  const struct {
    const char* why;
    std::vector<std::string> flags;
    const char* line;
  } kCases[] = {
      {"a loss of values", {"--loss", "l1"}, "spec.loss: l1 is no loss of links; accepted: bce"},
      {"a metric of classes",
       {"--metrics", "accuracy"},
       "spec.metrics[0]: accuracy does not measure links; accepted: "},
      {"nothing to train on",
       {"--link-valid", "0.5", "--link-test", "0.5"},
       "spec.link_prediction.test_part: 0.5 and valid_part 0.5 leave nothing to train on; accepted: a sum below 1"},
  };
  for (const auto& c : kCases) {
    const Output out = Submit("refused", "2", c.flags);
    EXPECT_NE(out.code, 0) << c.why;
    EXPECT_THAT(out.err, HasSubstr(c.line)) << c.why;
  }
}

// Writes an NPY file of shape [rows, 2].
void WritePairs(const std::filesystem::path& file, const std::vector<int64_t>& values) {
  std::filesystem::create_directories(file.parent_path());
  std::string header =
      absl::StrCat("{'descr': '<i8', 'fortran_order': False, 'shape': (", values.size() / 2, ", 2), }");
  header.resize(117, ' ');
  std::ofstream out(file, std::ios::binary);
  out << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n';
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(int64_t)));
}

// The source divides the links, and gives negatives that all links of the test split share.
TEST_F(LinkPrediction, TakesTheLinksThatTheSourceDivides) {
  std::vector<int64_t> train, valid, test, negatives;
  for (int64_t node = 0; node < 1990; ++node) {
    std::vector<int64_t>& split = node % 10 == 0 ? valid : node % 10 == 1 ? test : train;
    split.insert(split.end(), {node, node + 2});
    if (node % 4 == 0) negatives.insert(negatives.end(), {node, node + 9});
  }
  const std::filesystem::path folder = dir_.path() / "source" / "split" / "links";
  WritePairs(folder / "train.npy", train);
  WritePairs(folder / "valid.npy", valid);
  WritePairs(folder / "test.npy", test);
  WritePairs(folder / "test_negatives.npy", negatives);
  daemon_->Import("divided", dir_.path() / "source");
  EXPECT_THAT(daemon_->Client({"dataset", "show", "divided"}).out,
              HasSubstr("split by the source: train 1,592, valid 199, test 199 (498 negatives)"));

  const std::vector<std::string> flags{"--dataset", "divided", "--fan-out", "8,4", "--metrics", "mrr,hits-at-20"};
  ASSERT_EQ(Submit("undisturbed", kManyEpochs, flags).code, 0);
  const v1::Job undisturbed = daemon_->AwaitEnd("undisturbed");
  ASSERT_EQ(undisturbed.state(), v1::Job::STATE_SUCCEEDED) << undisturbed.error();
  const Output shown = daemon_->Client({"job", "show", "undisturbed"});
  EXPECT_THAT(shown.out, HasSubstr("split of the dataset"));
  const std::string file = (dir_.path() / "predictions").string();
  ASSERT_EQ(daemon_->Client({"job", "export", "undisturbed", "--artifact", "test-predictions", "--to", file}).code, 0);
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  std::getline(stream, line);
  EXPECT_THAT(line, testing::StartsWith("1,3,")) << "links keep the source's order";

  ASSERT_EQ(Submit("killed", kManyEpochs, flags).code, 0);
  ASSERT_NO_FATAL_FAILURE(daemon_->AwaitEpoch("killed", 3));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(daemon_, dir_.path() / "state", dir_.path() / "source"));
  const v1::Job killed = daemon_->AwaitEnd("killed");
  ASSERT_EQ(killed.state(), v1::Job::STATE_SUCCEEDED) << killed.error();
  EXPECT_EQ(killed.resumes(), 1);
  const auto weights = [&](const std::string& job) { return daemon_->LastWeights(job, dir_.path() / job); };
  EXPECT_EQ(weights("killed"), weights("undisturbed"));

  const Output refused = Submit("refused", "2", {"--dataset", "divided", "--link-valid", "0.2"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("spec.link_prediction.valid_part: is given, and the dataset divides the links; "
                                     "accepted: with split drawn"));
  EXPECT_EQ(Submit("drawn", "1", {"--dataset", "divided", "--link-split", "drawn", "--link-valid", "0.2"}).code, 0);

  // An unset split means the dataset's own. The request then asks for other links, so it is no repetition.
  v1::CreateJobRequest create;
  create.set_request_id("one");
  create.mutable_spec()->set_dataset("datasets/divided");
  create.mutable_spec()->set_epochs(1);
  v1::LinkPrediction& links = *create.mutable_spec()->mutable_link_prediction();
  links.set_split(v1::LinkPrediction::SPLIT_DRAWN);
  v1::Job made, again;
  grpc::ClientContext c1, c2, c3;
  ASSERT_TRUE(daemon_->jobs().CreateJob(&c1, create, &made).ok());
  links.set_negatives(made.spec().link_prediction().negatives());
  EXPECT_TRUE(daemon_->jobs().CreateJob(&c2, create, &again).ok());
  EXPECT_EQ(again.name(), made.name()) << "in other words";
  links.clear_split();
  EXPECT_EQ(daemon_->jobs().CreateJob(&c3, create, &again).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

}  // namespace
}  // namespace permafrost::e2e
