// A sweep whose jobs are spread over several scripted servers.
#include <map>
#include <string>
#include <vector>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
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

// A server on which every job succeeds.
class Host {
 public:
  Host() {
    info_.set_device("cpu");
    info_.set_version("1.0");
    fake_.server.info = [this](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
      info = info_;
      info.set_state_dir(fake_.address());
      return grpc::Status::OK;
    };
    fake_.datasets.get = [this](const v1::GetDatasetRequest& request, v1::Dataset& dataset) {
      if (checksum_.empty()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no dataset " + request.name());
      dataset.set_name(request.name());
      dataset.set_state(v1::Dataset::STATE_READY);
      dataset.set_content_checksum(checksum_);
      return grpc::Status::OK;
    };
    fake_.programs.get = [this](const v1::GetProgramRequest&, v1::Program& program) {
      program.set_xxh3(program_);
      return grpc::Status::OK;
    };
    fake_.jobs.get = [this](const v1::GetJobRequest& request, v1::Job& job) {
      absl::MutexLock lock(&mu_);
      if (!jobs_.contains(request.name())) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
      job = jobs_.at(request.name());
      return grpc::Status::OK;
    };
    fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      job = QueuedJob();
      job.set_name("jobs/" + request.job_id());
      absl::MutexLock lock(&mu_);
      if (!request.validate_only()) jobs_[job.name()] = job;
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
  // That were made.
  std::vector<std::string> Jobs() const {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> names;
    for (const auto& [name, job] : jobs_) names.push_back(name);
    return names;
  }
  void AddJob(const std::string& name) {
    absl::MutexLock lock(&mu_);
    jobs_[name].set_name(name);
  }

  // Set before anything runs.
  v1::ServerInfo info_;
  std::string checksum_ = "00000000000000aa", program_ = "00000000000000bb";

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, v1::Job> jobs_ ABSL_GUARDED_BY(mu_);
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

TEST_F(SpreadTest, EachJobGoesWhereTheFewestWait) {
  a_.info_.set_queued_jobs(1);
  a_.info_.set_running_jobs(1);
  const ProgramResult swept = Sweep(both());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(a_.Jobs(), ElementsAre("jobs/s-2"));
  EXPECT_THAT(b_.Jobs(), ElementsAre("jobs/s-0", "jobs/s-1", "jobs/s-3"));
  EXPECT_THAT(swept.out, HasSubstr("4 jobs submitted (1 on " + a_.address() + ", 3 on " + b_.address() + ")"));
  EXPECT_THAT(swept.out, HasSubstr("SERVER"));
  const ProgramResult again = Sweep(both(), {"--output", "json"});
  EXPECT_EQ(json::parse(again.out).at("jobs")[2].at("server"), a_.address());
}

TEST_F(SpreadTest, JobsOfAnEarlierCommandAreFoundWhereTheyAre) {
  a_.AddJob("jobs/s-1");
  b_.AddJob("jobs/s-0");
  EXPECT_EQ(Sweep(both()).exit_code, 0);
  EXPECT_THAT(a_.Jobs(), ElementsAre("jobs/s-1", "jobs/s-2"));
  EXPECT_THAT(b_.Jobs(), ElementsAre("jobs/s-0", "jobs/s-3"));
}

TEST_F(SpreadTest, ContextsNameServers) {
  const std::map<std::string, std::string> home = {{"XDG_CONFIG_HOME", config_.path().string()}};
  EXPECT_EQ(RunProgram({"context", "set", "lab-1", a_.address()}, home).exit_code, 0);
  const ProgramResult swept = Sweep("lab-1," + b_.address());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(swept.out, HasSubstr("2 on lab-1, 2 on " + b_.address()));
  const struct {
    std::string servers, says;
  } kBad[] = {{"lab-1,lab-2", "--on: 'lab-2' is neither HOST:PORT nor a context; known: lab-1"},
              {"lab-1," + a_.address(), "--on: " + a_.address() + " is the server of lab-1; each is accepted once"}};
  for (const auto& [servers, says] : kBad) {
    const ProgramResult refused = Sweep(servers);
    EXPECT_EQ(refused.exit_code, 2) << servers;
    EXPECT_THAT(refused.err, HasSubstr(says));
  }
}

TEST_F(SpreadTest, NothingIsMadeWhereServersDiffer) {
  const auto refused = [&](int exit_code, const std::string& says, const std::vector<std::string>& more = {}) {
    const ProgramResult result = Sweep(both(), more);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(a_.Jobs(), IsEmpty());
    EXPECT_THAT(b_.Jobs(), IsEmpty());
  };
  b_.checksum_ = "00000000000000ff";
  refused(4, b_.address() + ": datasets/zinc: holds something else than on " + a_.address());
  b_.checksum_ = "";
  refused(4, b_.address() + ": no dataset datasets/zinc");
  b_.checksum_ = a_.checksum_;
  b_.program_ = "00000000000000ff";
  refused(4, b_.address() + ": programs/net: holds something else", {"--program", "net"});
  b_.info_.set_draining(true);
  refused(4, b_.address() + ": the server is draining and takes no jobs");
}

TEST_F(SpreadTest, TwoNamesOfOneServerAreTold) {
  const std::string port = a_.address().substr(a_.address().find(':'));
  const ProgramResult refused = Sweep(a_.address() + ",localhost" + port);
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("localhost" + port + ": is the server of " + a_.address()));
}

TEST_F(SpreadTest, ServersOfOtherKindsAreTold) {
  b_.info_.set_device("cuda");
  const ProgramResult swept = Sweep(both());
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_THAT(swept.err, HasSubstr("warning: the servers have different devices (" + a_.address() + " cpu, " +
                                   b_.address() + " cuda): results of equal jobs may differ by rounding"));
}

TEST_F(SpreadTest, AServerThatIsNotThereIsNamed) {
  const ProgramResult swept = Sweep(a_.address() + ",127.0.0.1:1");
  EXPECT_EQ(swept.exit_code, 3);
  EXPECT_THAT(swept.err, HasSubstr("no server at 127.0.0.1:1"));
  EXPECT_THAT(a_.Jobs(), IsEmpty());
  const ProgramResult named =
      RunProgram({"--server", a_.address(), "job", "sweep", "--on", both(), "--dataset", "zinc", "--vary", "seed=0,1"});
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.err, HasSubstr("accepted: without --server and --context"));
}

}  // namespace
}  // namespace permafrost::client
