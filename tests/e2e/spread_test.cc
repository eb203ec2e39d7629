// Tests a sweep, single jobs and the queue over two real daemons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "e2e/ogb_nodes.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class SpreadTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(ShippedSample(), data_ / "zinc", fs::copy_options::recursive);
    a_ = std::make_unique<Daemon>(dir_.path() / "a", data_);
    b_ = std::make_unique<Daemon>(dir_.path() / "b", data_);
    ASSERT_TRUE(a_->ready() && b_->ready());
    a_->Import("zinc", data_ / "zinc");
    b_->Import("zinc", data_ / "zinc");
  }
  static std::vector<std::string> Command(const std::string& id, const std::string& epochs,
                                          const std::string& dataset = "zinc") {
    return {PERMAFROST, "--output", "json",      "job",      "sweep", "--id",     id,    "--dataset",
            dataset,    "--vary",   "seed=0..3", "--hidden", "16",    "--epochs", epochs};
  }
  std::vector<std::string> Spread(const std::string& id, const std::string& epochs,
                                  const std::string& dataset = "zinc") const {
    std::vector<std::string> command = Command(id, epochs, dataset);
    command.insert(command.end(), {"--on", a_->grpc() + "," + b_->grpc()});
    return command;
  }
  static size_t CountJobs(const Daemon& daemon) {
    return json::parse(daemon.Client({"job", "list", "--output", "json"}).out).value("jobs", json::array()).size();
  }

  const TempDir dir_, more_;
  const fs::path data_ = more_.path();
  std::unique_ptr<Daemon> a_, b_;
};

TEST_F(SpreadTest, ResultsAreThoseOfOneDaemonsJobs) {
  const Output spread = RunCommand(Spread("both", "2"));
  ASSERT_EQ(spread.code, 0) << spread.err;
  EXPECT_EQ(CountJobs(*a_), 2u);
  EXPECT_EQ(CountJobs(*b_), 2u);
  std::vector<std::string> command = Command("one", "2");
  command.insert(command.end(), {"--server", a_->grpc()});
  const Output alone = RunCommand(command);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const json found = json::parse(spread.out), wanted = json::parse(alone.out);
  ASSERT_EQ(found.at("jobs").size(), 4u);
  std::set<std::string> servers;
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_EQ(found.at("jobs")[j].at("valid"), wanted.at("jobs")[j].at("valid")) << j;
    EXPECT_EQ(found.at("jobs")[j].at("test"), wanted.at("jobs")[j].at("test")) << j;
    servers.insert(found.at("jobs")[j].at("server"));
  }
  EXPECT_EQ(servers, (std::set<std::string>{a_->grpc(), b_->grpc()}));
}

TEST_F(SpreadTest, TheSameCommandComesBackAfterClientAndServerWereKilled) {
  {
    Process client(Spread("again", "40"), "");
    ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return CountJobs(*b_) == 2; }));
    b_->AwaitEpoch("again-1", 2);
    client.Signal(SIGKILL);
    EXPECT_EQ(client.Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  KillAndRestart(b_, dir_.path() / "b", data_);
  const Output back = RunCommand(Spread("again", "40"));
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(CountJobs(*a_), 2u);
  EXPECT_EQ(CountJobs(*b_), 2u);
  EXPECT_GE(b_->Get("again-1").resumes(), 1);
  for (const json& job : json::parse(back.out).at("jobs")) EXPECT_EQ(job.at("state"), "SUCCEEDED");
}

TEST_F(SpreadTest, RefusesDifferentDataOfOneName) {
  WriteOgbNodes(data_ / "small", 60);
  WriteOgbNodes(data_ / "large", 80);
  const v1::Dataset first = a_->Import("graph", data_ / "small");
  EXPECT_EQ(first.content_checksum().size(), 16u);
  EXPECT_EQ(a_->Import("twin", data_ / "small").content_checksum(), first.content_checksum());
  EXPECT_NE(b_->Import("graph", data_ / "large").content_checksum(), first.content_checksum());
  const Output refused = RunCommand(Spread("differs", "1", "graph"));
  EXPECT_EQ(refused.code, 4);
  const json error = json::parse(refused.err).at("error");
  EXPECT_EQ(error.at("server"), b_->grpc());
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("datasets/graph: differs from that on " + a_->grpc()));
  EXPECT_EQ(CountJobs(*a_) + CountJobs(*b_), 0u);
  // The dataset is the same after a restart.
  KillAndRestart(a_, dir_.path() / "a", data_);
  v1::GetDatasetRequest request;
  request.set_name("datasets/graph");
  grpc::ClientContext context;
  v1::Dataset again;
  ASSERT_TRUE(a_->datasets().GetDataset(&context, request, &again).ok());
  EXPECT_EQ(again.content_checksum(), first.content_checksum());
}

TEST_F(SpreadTest, JobsGoWhereTheyBeginFirstAndTheQueueShowsBothDaemons) {
  const auto both = [&] { return a_->grpc() + "," + b_->grpc(); };
  const auto submit = [&](const std::string& id, const std::string& priority) {
    const Output placed =
        RunCommand({PERMAFROST, "--timeout", "60", "--output", "json", "job", "submit", "--on", both(), "--dataset",
                    "zinc", "--hidden", "16", "--epochs", "20000", "--id", id, "--priority", priority});
    EXPECT_EQ(placed.code, 0) << placed.err;
    return json::parse(placed.out);
  };
  const auto queue = [&](int code) {
    const Output told = RunCommand({PERMAFROST, "--timeout", "60", "--output", "json", "queue", "--on", both()});
    EXPECT_EQ(told.code, code) << told.err;
    return json::parse(told.out);
  };
  EXPECT_EQ(submit("one", "0").at("server"), a_->grpc()) << "both are idle";
  EXPECT_EQ(submit("two", "0").at("server"), b_->grpc()) << "it is idle";
  const json urgent = submit("urgent", "5");
  EXPECT_EQ(urgent.at("server"), a_->grpc());
  EXPECT_EQ(urgent.at("serverReason"), "no job there comes before it");
  EXPECT_EQ(submit("last", "0").at("server"), b_->grpc()) << "two are ahead on the other one";
  // The daemon still has its job after a kill and restart, so the repeated command finds it there.
  KillAndRestart(b_, dir_.path() / "b", data_);
  const json again = submit("two", "0");
  EXPECT_EQ(again.at("serverReason"), "it was there already");
  EXPECT_EQ(CountJobs(*a_), 2u);
  EXPECT_EQ(CountJobs(*b_), 2u);

  json told;
  ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] {
    told = queue(0);
    const json& first = told.at("jobs")[0];
    return first.at("job").at("name") == "jobs/urgent" && first.at("place").is_null();
  }));
  ASSERT_EQ(told.at("servers").size(), 2u);
  ASSERT_EQ(told.at("jobs").size(), 4u);
  EXPECT_EQ(told.at("jobs")[1].at("job").at("name"), "jobs/one");
  EXPECT_EQ(told.at("jobs")[1].at("place"), 1);
  EXPECT_EQ(told.at("jobs")[1].at("server"), a_->grpc());
  b_->process().Signal(SIGKILL);
  b_->process().Wait(absl::Seconds(30));
  EXPECT_EQ(queue(3).at("jobs").size(), 2u);
}

}  // namespace
}  // namespace permafrost::e2e
