// Tests times as a user works with them: import events, look at those before one of them, predict the latest, and
// kill the server meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "e2e/process.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;

// Writes events of users 0 to 199. A user returns to one of two recent items, or moves on to another of 100.
void WriteEvents(const std::filesystem::path& path) {
  constexpr uint64_t kUsers = 200, kItems = 100;
  constexpr int kEvents = 6000;
  std::mt19937 random(7);
  std::vector<std::vector<uint64_t>> of_late(kUsers);
  std::ofstream file(path);
  file << "source,target,timestamp\n";
  for (int event = 0; event < kEvents; ++event) {
    const uint64_t user = random() % kUsers;
    std::vector<uint64_t>& items = of_late[user];
    if (items.size() < 2 || random() % 10 == 0) {
      items.push_back(kUsers + random() % kItems);
      if (items.size() > 2) items.erase(items.begin());
    }
    file << user << ',' << items[random() % items.size()] << ',' << 1'000'000 + event * 60 << '\n';
  }
}

class Temporal : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(files_);
    WriteEvents(files_ / "events.csv");
    daemon_ = std::make_unique<Daemon>(dir_.path() / "state", files_);
    ASSERT_TRUE(daemon_->ready());
    daemon_->Import("events", files_ / "events.csv");
  }
  Output SubmitJob(const std::string& id, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"job",    "submit",   "--dataset",    "events", "--hidden",
                                   "16",     "--epochs", "30",           "--lr",   "0.01",
                                   "--id",   id,         "--fan-out",    "4,3",    "--link-prediction",
                                   "--seed", "3",        "--batch-size", "256",    "--eval-negatives",
                                   "20"};
    words.insert(words.end(), flags.begin(), flags.end());
    return daemon_->Client(words);
  }
  TempDir dir_;
  const std::filesystem::path files_ = dir_.path() / "files";
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Temporal, TheLatestLinksArePredictedFromThoseBefore) {
  const Output looked = daemon_->Client({"dataset", "sample", "events", "--fan-out", "2", "--temporal", "last",
                                         "--seed-time", "1000060", "--nodes", "0,1,2", "--output", "json"});
  ASSERT_EQ(looked.code, 0) << looked.err;
  EXPECT_THAT(looked.out, testing::Not(HasSubstr("1000060"))) << "at most the first event is before the second";

  const std::vector<std::string> temporal{"--temporal", "last", "--metrics", "mrr,roc-auc"};
  ASSERT_EQ(SubmitJob("undisturbed", temporal).code, 0);
  const v1::Job ended = daemon_->AwaitEnd("undisturbed");
  ASSERT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.error();
  EXPECT_GT(ended.result().best_test_metrics(1).value(), 0.6) << "ROC-AUC of users who come back";
  EXPECT_THAT(daemon_->Client({"job", "show", "undisturbed"}).out, HasSubstr("fan-out 4,3, temporal (last)"));

  ASSERT_EQ(SubmitJob("killed", temporal).code, 0);
  ASSERT_NO_FATAL_FAILURE(daemon_->AwaitEpoch("killed", 3));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(daemon_, dir_.path() / "state", files_));
  const v1::Job killed = daemon_->AwaitEnd("killed");
  ASSERT_EQ(killed.state(), v1::Job::STATE_SUCCEEDED) << killed.error();
  EXPECT_EQ(killed.resumes(), 1);
  const auto weights = [&](const std::string& job) { return daemon_->LastWeights(job, dir_.path() / job); };
  EXPECT_EQ(weights("killed"), weights("undisturbed"));
}

TEST_F(Temporal, WhatMakesNoSenseIsRefusedInALine) {
  std::ofstream(files_ / "timeless.csv") << "0,1\n1,2\n";
  daemon_->Import("timeless", files_ / "timeless.csv");
  const struct {
    const char* why;
    std::vector<std::string> flags;
    const char* line;
  } kCases[] = {
      {"no timestamps",
       {"--dataset", "timeless", "--temporal", "last"},
       "spec.neighbor_sampling.temporal: the dataset's edges have no timestamps"},
      {"a time of links",
       {"--temporal", "uniform", "--seed-time", "5"},
       "spec.neighbor_sampling.seed_time: is given with link_prediction"},
      {"labor in time", {"--temporal", "uniform", "--sampler", "labor"}, "temporal: is given with sampler labor"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> words{"job", "submit", "--link-prediction", "--fan-out", "4,3"};
    if (c.flags.front() != "--dataset") words.insert(words.end(), {"--dataset", "events"});
    words.insert(words.end(), c.flags.begin(), c.flags.end());
    const Output out = daemon_->Client(words);
    EXPECT_NE(out.code, 0) << c.why;
    EXPECT_THAT(out.err, HasSubstr(c.line)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::e2e
