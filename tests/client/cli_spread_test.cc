// Tests a sweep whose jobs are spread over several scripted servers.
#include <algorithm>
#include <map>
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

class SpreadTest : public testing::Test {
 protected:
  ProgramResult Sweep(const std::string& servers, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"job",  "sweep",  "--on",      servers, "--dataset",
                                          "zinc", "--vary", "seed=0..3", "--id",  "s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {{"XDG_CONFIG_HOME", config_.path().string()}});
  }
  std::string both() const { return a_.address() + "," + b_.address(); }

  const TempDir config_;
  Host a_, b_;
};

TEST_F(SpreadTest, EachJobGoesToTheServerThatBeginsItFirst) {
  Host::Facts busy = a_.facts();
  busy.AddOther(0);
  busy.AddOther(3);
  busy.AddOther(-1);
  a_.Set(busy);
  const ProgramResult swept = Sweep(both());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(a_.Jobs(), ElementsAre("jobs/s-2"));
  EXPECT_THAT(b_.Jobs(), ElementsAre("jobs/s-0", "jobs/s-1", "jobs/s-3"));
  EXPECT_THAT(swept.out, HasSubstr("4 jobs submitted (1 on " + a_.address() + ", 3 on " + b_.address() + ")"));
  EXPECT_THAT(swept.out, HasSubstr("SERVER"));
  const json again = json::parse(Sweep(both(), {"--output", "json"}).out);
  EXPECT_EQ(again.at("jobs")[2].at("server"), a_.address());
  EXPECT_FALSE(again.contains("warnings"));
}

TEST_F(SpreadTest, NamesASingleServer) {
  const json told = json::parse(Sweep(a_.address(), {"--output", "json"}).out);
  EXPECT_EQ(told.at("jobs")[0].at("server"), a_.address());
  EXPECT_EQ(a_.Jobs().size(), 4u);
}

TEST_F(SpreadTest, JobsOfAnEarlierCommandAreFoundWhereTheyAre) {
  a_.AddJob("jobs/s-1");
  b_.AddJob("jobs/s-0");
  EXPECT_EQ(Sweep(both()).exit_code, 0);
  EXPECT_THAT(a_.Jobs(), ElementsAre("jobs/s-1", "jobs/s-2"));
  EXPECT_THAT(b_.Jobs(), ElementsAre("jobs/s-0", "jobs/s-3"));
  // All jobs exist, so the servers' data and states no longer matter.
  Host::Facts drained = b_.facts();
  drained.info.set_draining(true);
  drained.checksum = "00000000000000ff";
  b_.Set(drained);
  EXPECT_EQ(Sweep(both()).exit_code, 0);
}

TEST_F(SpreadTest, WarnsOfAJobOnTwoServers) {
  a_.AddJob("jobs/s-1");
  b_.AddJob("jobs/s-1");
  const ProgramResult swept = Sweep(both(), {"--output", "json"});
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(json::parse(swept.out).at("warnings")[0].get<std::string>(),
              HasSubstr("jobs/s-1 is on several servers (" + a_.address() + ", " + b_.address() + ")"));
}

TEST_F(SpreadTest, AServerThatIsAwayKeepsItsJobsFromBeingMadeTwice) {
  b_.AddJob("jobs/s-1");
  b_.Stop();
  const ProgramResult swept = Sweep(both());
  EXPECT_EQ(swept.exit_code, 3);
  EXPECT_THAT(swept.err, HasSubstr(b_.address() + " may hold jobs of sweep s. Start it"));
  EXPECT_THAT(swept.err, HasSubstr("no server at " + b_.address() + " (start permafrostd there, or leave "));
  EXPECT_THAT(a_.Jobs(), IsEmpty());
}

TEST_F(SpreadTest, ContextsNameServers) {
  const std::map<std::string, std::string> home = {{"XDG_CONFIG_HOME", config_.path().string()}};
  EXPECT_EQ(RunProgram({"context", "set", "lab-1", a_.address()}, home).exit_code, 0);
  const ProgramResult swept = Sweep("lab-1," + b_.address());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(swept.out, HasSubstr("2 on lab-1, 2 on " + b_.address()));
  const struct {
    std::string servers, says;
  } kBad[] = {
      {"lab-1,lab-2", "--on: 'lab-2' is no context, no HOST:PORT and no unix:PATH; known: lab-1"},
      {"lab-1," + a_.address(), "--on: " + a_.address() + " and lab-1 are the same server; name each server once"},
      {"lab-1,lab-1", "--on: lab-1 is named twice; name each server once"},
      {a_.address() + ",localhost" + a_.address().substr(a_.address().find(':')), " are the same server"}};
  for (const auto& [servers, says] : kBad) {
    const ProgramResult refused = Sweep(servers);
    EXPECT_EQ(refused.exit_code, 2) << servers;
    EXPECT_THAT(refused.err, HasSubstr(says));
  }
}

TEST_F(SpreadTest, NothingIsMadeWhereServersDiffer) {
  const Host::Facts whole = b_.facts();
  const auto refused = [&](const Host::Facts& facts, const std::string& says,
                           const std::vector<std::string>& more = {}) {
    b_.Set(facts);
    const ProgramResult result = Sweep(both(), more);
    EXPECT_EQ(result.exit_code, 4) << says;
    EXPECT_THAT(result.err, HasSubstr(b_.address() + ": " + says));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(a_.Jobs(), IsEmpty());
    EXPECT_THAT(b_.Jobs(), IsEmpty());
  };
  Host::Facts facts = whole;
  facts.checksum = "00000000000000ff";
  refused(facts, "datasets/zinc: differs from that on " + a_.address());
  facts.checksum = "";
  refused(facts, "datasets/zinc: the server gives no checksum for it");
  facts.state = v1::Dataset::STATE_IMPORTING;
  refused(facts, "datasets/zinc: is importing; accepted: ready");
  facts.has_dataset = false;
  refused(facts, "no dataset datasets/zinc");
  facts = whole;
  facts.program = "00000000000000ff";
  refused(facts, "programs/net: differs from that on", {"--program", "net"});
  facts = whole;
  facts.info.set_draining(true);
  refused(facts, "the server is draining and takes no jobs");
}

TEST_F(SpreadTest, ARefusalOfSeveralFieldsNamesTheServer) {
  Host::Facts facts = b_.facts();
  facts.refuses = true;
  a_.Set(facts);
  b_.Set(facts);
  const ProgramResult refused = Sweep(both());
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT: " + a_.address() + ": 2 fields are not valid"));
  EXPECT_THAT(refused.err, HasSubstr("job 1 of 4 (seed=0) is refused; nothing was created"));
  const json told = json::parse(Sweep(both(), {"--output", "json"}).err);
  EXPECT_EQ(told.at("error").at("server"), a_.address());
  EXPECT_THAT(b_.Jobs(), IsEmpty());
}

TEST_F(SpreadTest, AServerThatRefusesJobsIsPassedOverForThese) {
  Host::Facts small = a_.facts();
  small.most_channels = 32;
  a_.Set(small);
  const ProgramResult swept =
      RunProgram({"job", "sweep", "--on", both(), "--dataset", "zinc", "--vary", "hidden=16,32,64,128", "--id", "s"},
                 {{"XDG_CONFIG_HOME", config_.path().string()}});
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(a_.Jobs(), ElementsAre("jobs/s-0"));
  EXPECT_THAT(b_.Jobs(), ElementsAre("jobs/s-1", "jobs/s-2", "jobs/s-3"));
  EXPECT_THAT(swept.err, HasSubstr("warning: " + a_.address() + " is passed over for 2 of 4 jobs: spec.model: needs"));
}

TEST_F(SpreadTest, WarnsOfDifferentDevices) {
  Host::Facts facts = b_.facts();
  facts.info.set_device("cuda");
  b_.Set(facts);
  const std::string says = "the servers have different devices (" + a_.address() + " cpu, " + b_.address() +
                           " cuda): results of equal jobs may differ";
  const ProgramResult swept = Sweep(both());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(swept.err, HasSubstr("warning: " + says));
}

TEST_F(SpreadTest, RefusesInitFromAndServer) {
  const ProgramResult weights = Sweep(both(), {"--init-from", "jobs/first"});
  EXPECT_EQ(weights.exit_code, 2);
  EXPECT_THAT(weights.err, HasSubstr("--init-from cannot be combined with --on"));
  const ProgramResult named =
      RunProgram({"--server", a_.address(), "job", "sweep", "--on", both(), "--dataset", "zinc", "--vary", "seed=0,1"});
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.err, HasSubstr("--on cannot be combined with --server or --context"));
}

}  // namespace
}  // namespace permafrost::client
