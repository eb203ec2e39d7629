// A sweep whose jobs are spread over several scripted servers.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A server on which every job succeeds.
class Host {
 public:
  // The answers of this server, which a test may change between commands.
  struct Facts {
    v1::ServerInfo info;
    v1::Dataset::State state = v1::Dataset::STATE_READY;
    std::string checksum = "00000000000000aa", program = "00000000000000bb";
    bool has_dataset = true, refuses = false;
  };

  Host() {
    facts_.info.set_device("cpu");
    facts_.info.set_version("1.0");
    fake_.server.info = [this](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
      info = facts().info;
      info.set_state_dir(fake_.address());
      return grpc::Status::OK;
    };
    fake_.datasets.get = [this](const v1::GetDatasetRequest& request, v1::Dataset& dataset) {
      const Facts told = facts();
      if (!told.has_dataset) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no dataset " + request.name());
      dataset.set_name(request.name());
      dataset.set_state(told.state);
      dataset.set_content_checksum(told.checksum);
      return grpc::Status::OK;
    };
    fake_.programs.get = [this](const v1::GetProgramRequest&, v1::Program& program) {
      program.set_xxh3(facts().program);
      return grpc::Status::OK;
    };
    fake_.jobs.list = [this](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
      EXPECT_EQ(request.filter(), "labels.sweep = \"s\"");  // which all jobs here have
      for (const std::string& name : Jobs()) response.add_jobs()->set_name(name);
      return grpc::Status::OK;
    };
    fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      if (facts().refuses) return TwoViolations();
      job = QueuedJob();
      job.set_name("jobs/" + request.job_id());
      if (!request.validate_only()) AddJob(job.name());
      return grpc::Status::OK;
    };
    fake_.jobs.watch = [](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>& writer,
                          grpc::ServerContext&) {
      v1::Job job = RunningJob(1);
      job.set_name(request.name());
      job.set_state(v1::Job::STATE_SUCCEEDED);
      writer.Write(job);
      return grpc::Status::OK;
    };
    fake_.Start();
  }

  std::string address() const { return fake_.address(); }
  void Stop() { fake_.Stop(); }
  // The names of the jobs that were made.
  std::vector<std::string> Jobs() const {
    absl::MutexLock lock(&mu_);
    return {jobs_.begin(), jobs_.end()};
  }
  void AddJob(const std::string& name) {
    absl::MutexLock lock(&mu_);
    jobs_.insert(name);
  }
  Facts facts() const {
    absl::MutexLock lock(&mu_);
    return facts_;
  }
  void Set(const Facts& facts) {
    absl::MutexLock lock(&mu_);
    facts_ = facts;
  }

 private:
  static grpc::Status TwoViolations() {
    google::rpc::BadRequest bad;
    for (const char* field : {"spec.seed", "spec.epochs"}) {
      auto* violation = bad.add_field_violations();
      violation->set_field(field);
      violation->set_description("is bad");
    }
    return WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "spec.seed: is bad; spec.epochs: is bad", {&bad});
  }

  mutable absl::Mutex mu_;
  Facts facts_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> jobs_ ABSL_GUARDED_BY(mu_);
  FakeServer fake_;
};

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

TEST_F(SpreadTest, EachJobGoesToTheServerWithTheFewestJobs) {
  Host::Facts busy = a_.facts();
  busy.info.set_queued_jobs(1);
  busy.info.set_paused_jobs(1);
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
  // All are there: neither the data nor the servers' state matter any more.
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
  EXPECT_THAT(swept.err,
              HasSubstr("no server at " + b_.address() + " (start permafrostd there; a sweep that has jobs there"));
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
  b_.Set(facts);
  const ProgramResult refused = Sweep(both());
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT: " + b_.address() + ": 2 fields are not valid"));
  const json told = json::parse(Sweep(both(), {"--output", "json"}).err);
  EXPECT_EQ(told.at("error").at("server"), b_.address());
  EXPECT_THAT(a_.Jobs(), IsEmpty());
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
