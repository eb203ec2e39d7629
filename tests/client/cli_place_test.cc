// Tests jobs that go to one of several scripted servers.
#include <algorithm>
#include <string>
#include <vector>

#include "client/host.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PlaceTest : public testing::Test {
 protected:
  ProgramResult Submit(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"job",       "submit", "--on", a_.address() + "," + b_.address(),
                                          "--dataset", "zinc"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {{"XDG_CONFIG_HOME", config_.path().string()}});
  }
  static void SetOthers(Host& host, const std::vector<int32_t>& queued) {
    Host::Facts facts;
    for (const int32_t priority : queued) facts.AddOther(priority);
    host.Set(facts);
  }

  const TempDir config_;
  Host a_, b_;
};

TEST_F(PlaceTest, AJobGoesWhereItBeginsFirst) {
  const struct {
    const char* why;
    std::vector<int32_t> a, b;  // priorities of the jobs already on each server
    std::string priority;
    bool to_a;
    std::string says;
  } kCases[] = {
      {"both are idle: the first named", {}, {}, "0", true, "it is idle"},
      {"an idle one comes before one that a job of lower priority leaves", {-1}, {}, "0", false, "it is idle"},
      {"the fewest jobs ahead", {0, 0}, {0}, "0", false, "1 job ahead of it"},
      {"as many are ahead: the first named", {0, 0}, {0, 0}, "0", true, "2 jobs ahead of it"},
      {"jobs of lower priority are not ahead", {0, 0, 0}, {5}, "5", true, "no job there comes before it"},
      {"jobs of higher priority are", {9, 9}, {0}, "0", false, "1 job ahead of it"},
  };
  for (const auto& c : kCases) {
    SetOthers(a_, c.a);
    SetOthers(b_, c.b);
    const ProgramResult told = Submit({"--priority", c.priority, "--output", "json"});
    ASSERT_EQ(told.exit_code, 0) << told.err;
    const json job = json::parse(told.out);
    EXPECT_EQ(job.at("server"), c.to_a ? a_.address() : b_.address()) << c.why;
    EXPECT_EQ(job.at("serverReason"), c.says) << c.why;
    EXPECT_FALSE(job.contains("warnings")) << c.why;
  }
  EXPECT_EQ(a_.created().size(), 3u);
  EXPECT_EQ(b_.created().size(), 3u);
  EXPECT_NE(a_.created()[0].request_id(), a_.created()[1].request_id());
}

TEST_F(PlaceTest, PausedJobsAreNotAhead) {
  Host::Facts facts = a_.facts();
  facts.AddOther(0, v1::Job::STATE_PAUSED);
  facts.AddOther(0, v1::Job::STATE_PAUSED);
  facts.AddOther(-5);
  a_.Set(facts);
  SetOthers(b_, {0});
  const ProgramResult told = Submit();
  EXPECT_EQ(told.out, "job made queued on " + a_.address() +
                          " (no job there comes before it); watch it with: permafrost --server " + a_.address() +
                          " job watch made\n");
}

TEST_F(PlaceTest, AServerThatRefusesTheJobIsPassedOver) {
  Host::Facts facts = a_.facts();
  facts.most_channels = 32;
  a_.Set(facts);
  const ProgramResult checked = Submit({"--hidden", "64", "--validate-only"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_EQ(checked.out, "the job is valid on " + b_.address() + " (it is idle); nothing was created\n");
  EXPECT_THAT(b_.created(), IsEmpty());
  const std::string says = a_.address() + " is passed over: spec.model: needs about 99 GB; this process may use 8 GB";
  EXPECT_EQ(checked.err, "warning: " + says + "\n");
  const json placed = json::parse(Submit({"--hidden", "64", "--output", "json"}).out);
  EXPECT_EQ(placed.at("server"), b_.address());
  EXPECT_THAT(placed.at("warnings"), ElementsAre(says));
  facts.refuses = true;
  b_.Set(facts);
  const ProgramResult refused = Submit({"--hidden", "64"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT: " + a_.address() + ": spec.model: needs about 99 GB"));
  EXPECT_THAT(refused.err, HasSubstr("warning: " + b_.address() + " is passed over: spec.seed: is bad"))
      << "it has another reason";
}

TEST_F(PlaceTest, TheSameIdComesBackToItsJob) {
  SetOthers(a_, {0});
  const ProgramResult first = Submit({"--id", "x"});
  EXPECT_THAT(first.out, HasSubstr("job x queued on " + b_.address() + " (it is idle)"));
  // Now the other server would start the job first, and the data on this one has changed. Neither matters, because
  // the job already exists.
  SetOthers(a_, {});
  Host::Facts facts = b_.facts();
  facts.AddOther(0);
  facts.checksum = "00000000000000ff";
  b_.Set(facts);
  const ProgramResult again = Submit({"--id", "x", "--deadline", "12h"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("job x queued on " + b_.address() + " (it was there already)"));
  EXPECT_THAT(a_.created(), IsEmpty());
  ASSERT_EQ(b_.created().size(), 2u);
  EXPECT_EQ(b_.created()[0].request_id(), b_.created()[1].request_id()) << "the server finds the first one by it";
  Submit({"--id", "x", "--seed", "7"});
  ASSERT_EQ(b_.created().size(), 3u);
  EXPECT_NE(b_.created()[2].request_id(), b_.created()[0].request_id()) << "another job";
  a_.AddJob("jobs/x");
  EXPECT_THAT(Submit({"--id", "x"}).err, HasSubstr("jobs/x is on several servers"));
}

TEST_F(PlaceTest, AServerThatIsAwayKeepsAJobFromBeingMadeTwice) {
  b_.Stop();
  const ProgramResult refused = Submit({"--id", "x"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr(b_.address() + " may hold job x. Start it and repeat the command"));
  EXPECT_THAT(a_.created(), IsEmpty());
}

TEST_F(PlaceTest, WatchesTheJobWhereItIs) {
  SetOthers(a_, {0});
  const ProgramResult watched = Submit({"--watch"});
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr("job made submitted on " + b_.address() + " (it is idle)\n"));
}

TEST_F(PlaceTest, RefusesWhatASweepRefuses) {
  const auto refused = [&](const std::vector<std::string>& more, int code, const std::string& says) {
    const ProgramResult result = Submit(more);
    EXPECT_EQ(result.exit_code, code) << says;
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(a_.created(), IsEmpty());
    EXPECT_THAT(b_.created(), IsEmpty());
  };
  refused({"--init-from", "jobs/first"}, 2, "--init-from cannot be combined with --on");
  refused({"--server", a_.address()}, 2, "--on cannot be combined with --server or --context");
  refused({"--on", "lab-9"}, 2, "--on: 'lab-9' is no context");
  Host::Facts facts = b_.facts();
  facts.program = "00000000000000ff";
  b_.Set(facts);
  refused({"--program", "net"}, 4, b_.address() + ": programs/net: differs from that on");
  facts.checksum = "00000000000000ff";
  b_.Set(facts);
  refused({}, 4, b_.address() + ": datasets/zinc: differs from that on");
  facts = Host::Facts();
  facts.info.set_draining(true);
  b_.Set(facts);
  refused({}, 4, "the server is draining and takes no jobs");
}

}  // namespace
}  // namespace permafrost::client
