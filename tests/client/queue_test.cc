// Tests `permafrost queue`: its text, and its run over scripted servers.
#include "client/queue.h"

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
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kQueueNow = 1'773'144'300;

v1::Job JobIn(const std::string& id, v1::Job::State state, const std::string& reason, int32_t priority, int64_t age) {
  v1::Job job = QueuedJob();
  job.set_name("jobs/" + id);
  job.set_state(state);
  job.mutable_spec()->set_priority(priority);
  job.mutable_create_time()->set_seconds(kQueueNow - age);
  job.clear_state_changes();
  v1::StateChange& change = *job.add_state_changes();
  change.set_state(state);
  change.set_reason(reason);
  change.mutable_time()->set_seconds(kQueueNow - age);
  return job;
}

// Returns one server with a job in each kind of state, and one server that drains and has no jobs.
std::vector<ServerQueue> SampleQueues() {
  ServerQueue lab{.name = "lab-1", .info = {}, .jobs = {}};
  lab.info.set_device("cuda");
  lab.info.set_running_jobs(1);
  lab.info.set_queued_jobs(3);
  lab.info.set_paused_jobs(1);
  lab.info.mutable_device_state()->mutable_memory()->set_driver_bytes(18'200'000'000);
  lab.info.mutable_device_state()->mutable_memory()->set_recommended_max_bytes(139'000'000'000);
  lab.jobs.push_back(JobIn("newest", v1::Job::STATE_QUEUED, "SUBMITTED", 0, 5));
  lab.jobs.push_back(JobIn("paused", v1::Job::STATE_PAUSED, "PAUSE_REQUESTED", 9, 40));
  lab.jobs.push_back(JobIn("peers", v1::Job::STATE_QUEUED, "TOO_FEW_PEERS", 0, 60));
  lab.jobs.back().set_last_error("the job wants 1 other daemon, and 0 join");
  lab.jobs.back().mutable_retry_time()->set_seconds(kQueueNow + 4);
  lab.jobs.push_back(JobIn("urgent", v1::Job::STATE_QUEUED, "SUBMITTED", 5, 1));
  lab.jobs.push_back(JobIn("on-device", v1::Job::STATE_RUNNING, "STEPPED", -3, 125));
  lab.jobs.back().mutable_progress()->set_epoch(2);
  lab.jobs.back().mutable_spec()->mutable_model()->set_program("programs/net");
  SortQueue(lab.jobs);
  ServerQueue other{.name = "lab-2", .info = {}, .jobs = {}};
  other.info.set_device("cpu");
  other.info.set_draining(true);
  other.info.mutable_device_state()->mutable_memory()->set_resident_bytes(178'000'000);
  return {lab, other};
}

TEST(QueueView, JobsStandInTheOrderInWhichTheyRun) {
  const ViewTime time{absl::FromUnixSeconds(kQueueNow), absl::UTCTimeZone()};
  EXPECT_EQ(RenderQueues(SampleQueues(), time, {}),
            R"(SERVER  STATE     DEVICE  RUNNING  QUEUED  PAUSED             MEMORY
lab-1   serving   cuda          1       3       1  18.2 GB of 139 GB
lab-2   draining  cpu           0       0       0             178 MB

SERVER  JOB        STATE    PLACE  PRIORITY  DATASET  MODEL  EPOCH     FOR  WHY
lab-1   on-device  running      -        -3  zinc     net      2/3  2m 05s  -
lab-1   urgent     queued       1         5  zinc     gine     -/3      1s  -
lab-1   peers      queued       2         0  zinc     gine     -/3  1m 00s  TOO_FEW_PEERS: the job wants 1 other daemon, and 0 join; again in 4s
lab-1   newest     queued       3         0  zinc     gine     -/3      5s  -
lab-1   paused     paused       -         9  zinc     gine     -/3     40s  PAUSE_REQUESTED
)");
}

TEST(QueueView, JsonHasWholeMessages) {
  const json told = json::parse(QueuesToJson(SampleQueues()));
  ASSERT_EQ(told.at("servers").size(), 2u);
  EXPECT_EQ(told.at("servers")[1].at("server"), "lab-2");
  EXPECT_EQ(told.at("servers")[1].at("info").at("draining"), true);
  ASSERT_EQ(told.at("jobs").size(), 5u);
  EXPECT_EQ(told.at("jobs")[1].at("job").at("name"), "jobs/urgent");
  EXPECT_EQ(told.at("jobs")[1].at("place"), 1);
  EXPECT_TRUE(told.at("jobs")[0].at("place").is_null());
}

TEST(QueueCommand, ShowsTheServersThatAnswer) {
  Host a, b;
  Host::Facts facts = a.facts();
  facts.AddOther(2);
  a.Set(facts);
  b.Stop();
  const TempDir config;
  const std::map<std::string, std::string> home = {{"XDG_CONFIG_HOME", config.path().string()}};
  const ProgramResult both = RunProgram({"queue", "--on", b.address() + "," + a.address()}, home);
  EXPECT_EQ(both.exit_code, 3);
  EXPECT_THAT(both.err, HasSubstr("no server at " + b.address()));
  EXPECT_EQ(std::count(both.err.begin(), both.err.end(), '\n'), 1) << both.err;
  EXPECT_THAT(both.out, HasSubstr(a.address() + "  other-1  queued      1         2"));
  EXPECT_THAT(both.out, Not(HasSubstr(b.address())));
  const ProgramResult one = RunProgram({"queue", "--server", a.address(), "--output", "json"}, home);
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(json::parse(one.out).at("jobs")[0].at("server"), a.address());
  a.Set({});
  EXPECT_THAT(RunProgram({"queue", "--server", a.address()}, home).out, HasSubstr("no unfinished jobs\n"));
}

}  // namespace
}  // namespace permafrost::client
