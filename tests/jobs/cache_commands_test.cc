// Tests the graph caches of jobs: what is reported about them, and the commands to them, across runs and servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "jobs/job_store.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using graphcache::Command;
using graphcache::CommandKind;
using graphcache::PolicyUpdate;
using graphcache::Snapshot;
using spec::Policy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The answer to one command.
class Answer {
 public:
  Answer(Server& server, const std::string& id, const Command& command) {
    server->CommandGraphCache(JobId(id), command, "", [state = state_](absl::StatusOr<Snapshot> answer) {
      absl::MutexLock lock(&state->mu);
      EXPECT_FALSE(state->answer) << "answered twice";
      state->answer = std::move(answer);
    });
  }
  bool is_there() const {
    absl::MutexLock lock(&state_->mu);
    return state_->answer.has_value();
  }
  absl::StatusOr<Snapshot> Await() const {
    absl::MutexLock lock(&state_->mu);
    if (!state_->mu.AwaitWithTimeout(absl::Condition(state_.get(), &State::IsThere), absl::Seconds(60))) {
      return absl::DeadlineExceededError("no answer in a minute");
    }
    return *state_->answer;
  }

 private:
  // Shared with the callback, because a server that ends later still answers open commands.
  struct State {
    bool IsThere() { return answer.has_value(); }
    absl::Mutex mu;
    std::optional<absl::StatusOr<Snapshot>> answer;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

Command Freeze() { return {.kind = CommandKind::kFreeze}; }
Command Update(const PolicyUpdate& update) { return {.kind = CommandKind::kUpdatePolicy, .update = update}; }

class CacheCommandsTest : public testing::Test {
 protected:
  // Copies the state directory as SIGKILL would leave it now, and returns the copy. The runner is held, so that
  // nobody writes meanwhile.
  std::filesystem::path Crash(const Server& server) {
    const std::filesystem::path copy = dir_.path() / ("after-crash-" + std::to_string(++crashes_));
    std::filesystem::copy(server.state_dir(), copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  // Runs a job of `epochs` epochs up to its step boundary `boundary`, and holds it there.
  void RunTo(Server& server, int64_t boundary, int64_t epochs = 3) {
    server.runner().Hold();
    server->Start();
    server.Create("job-a", epochs);
    server.runner().Permit(boundary);
    server.runner().AwaitHeld();
  }
  const TempDir dir_;
  const std::filesystem::path state_ = dir_.path() / "state";
  int crashes_ = 0;
};

TEST_F(CacheCommandsTest, BeforeItsFirstStepAJobHasItsOptionsAndNothingElse) {
  Server server(state_);
  CreateRequest request = Server::Request("job-a");
  request.spec.train.graph_cache = {.policy = Policy::kAlways, .freeze_at = 9};
  ASSERT_TRUE(server->Create(request).ok());
  Snapshot want;
  want.options = request.spec.train.graph_cache;
  EXPECT_EQ(server->GetGraphCache(JobId("job-a")).value(), want);
  EXPECT_THAT(server->GraphCacheEntries(JobId("job-a")).value(), IsEmpty());
}

TEST_F(CacheCommandsTest, ARunningJobsCacheIsOfThisMoment) {
  Server server(state_);
  RunTo(server, 2);
  const Snapshot snapshot = server->GetGraphCache(JobId("job-a")).value();
  EXPECT_EQ(snapshot.of(Mode::kTrain).hits, 1);
  EXPECT_EQ(snapshot.shared_bytes, 5000);
  EXPECT_EQ(server->GraphCacheEntries(JobId("job-a")).value().size(), 1u);
}

TEST_F(CacheCommandsTest, TheLastStatisticsOutliveTheJobAndTheServer) {
  {
    Server server(state_);
    server->Start();
    server.Create("job-a", 2);
    server.AwaitEnd("job-a");
  }
  Server later(state_);
  EXPECT_EQ(later->GetGraphCache(JobId("job-a")).value().of(Mode::kTrain).hits, 5);
  const auto entries = later->GraphCacheEntries(JobId("job-a")).value();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].hits, 5) << "as told at the end";
}

TEST_F(CacheCommandsTest, WhatIsToldLastIsStoredHoweverTheRunEnds) {
  for (const bool fails : {false, true}) {
    const std::string id = fails ? "job-fails" : "job-succeeds";
    Server server(state_);
    server.runner().SetScript(
        [&](const train::RunRequest&, train::RunContext& context) -> absl::StatusOr<train::RunOutcome> {
          Snapshot snapshot;
          snapshot.of(Mode::kTrain).hits = 42;
          context.OnGraphCache(snapshot, std::make_shared<const std::vector<graphcache::EntryInfo>>(3));
          if (fails) return absl::ResourceExhaustedError("no memory");
          return train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()};
        });
    server->Start();
    server.Create(id);
    server.AwaitEnd(id);
    EXPECT_EQ(server->GetGraphCache(JobId(id)).value().of(Mode::kTrain).hits, 42) << id;
    EXPECT_EQ(server->GraphCacheEntries(JobId(id)).value().size(), 3u) << id;
  }
}

TEST_F(CacheCommandsTest, ACommandToARunningJobAnswersWhenItTookEffect) {
  Server server(state_);
  RunTo(server, 2);
  Answer freeze(server, "job-a", Freeze());
  Answer update(server, "job-a", Update({.policy = Policy::kAlways}));
  EXPECT_FALSE(freeze.is_there()) << "no step boundary came yet";
  server.runner().Permit(1);
  const auto first = freeze.Await();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->command_step, 2);
  EXPECT_EQ(update.Await()->options.policy, Policy::kAlways);
  EXPECT_THAT(server.runner().applied(), ElementsAre("job-a 1@2", "job-a 2@2"));
  server.runner().AwaitHeld();
  Answer next(server, "job-a", Freeze());
  server.runner().Release();
  EXPECT_EQ(next.Await()->command_sequence, 3);
  server.AwaitEnd("job-a");
  EXPECT_THAT(server.runner().applied(), ElementsAre("job-a 1@2", "job-a 2@2", "job-a 3@3"));
}

TEST_F(CacheCommandsTest, ACommandIsOnRecordBeforeItTakesEffect) {
  Server server(state_);
  RunTo(server, 4);
  Answer freeze(server, "job-a", Freeze());
  Server later(Crash(server));
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 1@3")) << "where the job went on";
}

TEST_F(CacheCommandsTest, AResumedRunAppliesCommandsWhereTheyTookEffect) {
  Server server(state_);
  RunTo(server, 4);  // the checkpoint is at step 3
  Answer at_4(server, "job-a", Freeze());
  server.runner().Permit(1);
  ASSERT_TRUE(at_4.Await().ok());
  server.runner().AwaitHeld();
  Answer pending(server, "job-a", Update({.freeze_at = 7}));
  Server later(Crash(server));
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 1@4", "job-a 2@4"))
      << "not at step 3, and the one that had no step after it";
  EXPECT_EQ(later->GetGraphCache(JobId("job-a")).value().options.freeze_at, 7);
}

TEST_F(CacheCommandsTest, WhatACheckpointHasIsNotAppliedAgain) {
  {
    Server server(state_);
    RunTo(server, 2);
    Answer freeze(server, "job-a", Freeze());
    server.runner().Permit(2);
    ASSERT_TRUE(freeze.Await().ok());
    server.runner().AwaitHeld();
  }
  Server later(state_);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), IsEmpty());
  EXPECT_TRUE(later->GetGraphCache(JobId("job-a")).value().frozen);
}

TEST_F(CacheCommandsTest, ACommandToAQueuedJobAnswersAtOnce) {
  Server server(state_);
  server.Create("job-a");
  const auto answer = Answer(server, "job-a", Update({.policy = Policy::kAlways})).Await();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->options.policy, Policy::kAlways);
  EXPECT_EQ(answer->command_step, 0);
  EXPECT_EQ(server->GetGraphCache(JobId("job-a")).value(), *answer);
  Server later(Crash(server));
  EXPECT_EQ(later->GetGraphCache(JobId("job-a")).value(), *answer);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 1@0"));
}

TEST_F(CacheCommandsTest, AnUpdateOfAQueuedJobThawsItsCacheAsARunningOnes) {
  const struct {
    const char* why;
    PolicyUpdate update;
    bool thaws;
  } kCases[] = {
      {"the policy", {.policy = Policy::kAlways}, true},
      {"the freeze point", {.freeze_at = 3}, true},
      {"the shapes", {.shapes = spec::Shapes::kLadder}, true},
      {"the rungs", {.rungs = 3}, true},
      {"what a miss means", {.on_miss = spec::OnMiss::kEager}, false},
  };
  Server(state_).Create("job-a");
  for (const auto& c : kCases) {
    Snapshot frozen;
    frozen.frozen = true;
    frozen.armed = false;
    ASSERT_TRUE((*JobStore::Open(state_ / "permafrost.db"))->PutGraphCache(JobId("job-a"), frozen, nullptr).ok());
    Server server(state_);
    const auto answer = Answer(server, "job-a", Update(c.update)).Await();
    ASSERT_TRUE(answer.ok()) << c.why << ": " << answer.status();
    EXPECT_EQ(answer->frozen, !c.thaws) << c.why;
    EXPECT_EQ(answer->armed, c.thaws) << c.why;
  }
}

TEST_F(CacheCommandsTest, AQueuedJobsCommandsAreCheckedAgainstThoseBefore) {
  Server server(state_);
  server.Create("job-a");
  ASSERT_TRUE(Answer(server, "job-a", Update({.policy = Policy::kNever})).Await().ok());
  EXPECT_EQ(ReasonOf(Answer(server, "job-a", Freeze()).Await().status()), "GRAPH_CACHE_KEEPS_NOTHING");
  ASSERT_TRUE(Answer(server, "job-a", Update({.policy = Policy::kFreeze})).Await().ok());
  EXPECT_TRUE(Answer(server, "job-a", Freeze()).Await().ok());
  server->Start();
  server.AwaitEnd("job-a");
  EXPECT_THAT(server.runner().applied(), ElementsAre("job-a 1@0", "job-a 2@0", "job-a 3@0"))
      << "what was refused took no number";
}

TEST_F(CacheCommandsTest, ARunningJobsCommandsAreCheckedAgainstThosePending) {
  Server server(state_);
  RunTo(server, 1);
  Answer never(server, "job-a", Update({.policy = Policy::kNever}));
  Answer refused(server, "job-a", Freeze());
  ASSERT_TRUE(refused.is_there());
  EXPECT_EQ(ReasonOf(refused.Await().status()), "GRAPH_CACHE_KEEPS_NOTHING");
  Answer bad(server, "job-a", Update({.freeze_at = -1}));
  EXPECT_THAT(FieldsOf(bad.Await().status()), ElementsAre("policy.freeze_at"));
  server.runner().Release();
  EXPECT_TRUE(never.Await().ok());
}

TEST_F(CacheCommandsTest, AQueuedJobGoesOnWhereItsCheckpointIsButNotBeforeEarlierCommands) {
  Server server(state_);
  RunTo(server, 5);  // the checkpoint is at step 3
  {
    Server later(Crash(server));
    EXPECT_EQ(Answer(later, "job-a", Freeze()).Await()->command_step, 3);
  }
  Answer at_5(server, "job-a", Freeze());
  server.runner().Permit(1);
  ASSERT_EQ(at_5.Await()->command_step, 5);
  server.runner().AwaitHeld();  // step 6 and its checkpoint are done; the next lines simulate a crash before that
  Answer pending(server, "job-a", Freeze());
  Server later(Crash(server));
  EXPECT_EQ(Answer(later, "job-a", Update({.policy = Policy::kAlways})).Await()->command_step, 6);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 2@6", "job-a 3@6"));
}

TEST_F(CacheCommandsTest, AQueuedCommandComesAfterThoseThatALostRunHadApplied) {
  Server server(state_);
  RunTo(server, 4);  // the checkpoint is at step 3
  Answer at_4(server, "job-a", Freeze());
  server.runner().Permit(1);
  ASSERT_EQ(at_4.Await()->command_step, 4);
  server.runner().AwaitHeld();
  Server later(Crash(server));
  EXPECT_EQ(Answer(later, "job-a", Update({.policy = Policy::kAlways})).Await()->command_step, 4);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 1@4", "job-a 2@4"));
}

TEST_F(CacheCommandsTest, AJobThatHasEndedTakesNone) {
  Server server(state_);
  server->Start();
  server.Create("job-a");
  server.AwaitEnd("job-a");
  const absl::Status status = Answer(server, "job-a", Freeze()).Await().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(ReasonOf(status), "JOB_ENDED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("succeeded"));
}

TEST_F(CacheCommandsTest, AJobThatIsNotThereIsNotFound) {
  Server server(state_);
  EXPECT_EQ(ReasonOf(Answer(server, "job-x", Freeze()).Await().status()), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(server->GetGraphCache(JobId("job-x")).status()), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(server->GraphCacheEntries(JobId("job-x")).status()), "JOB_NOT_FOUND");
}

TEST_F(CacheCommandsTest, ACommandThatFoundNoStepBoundaryIsToldSo) {
  Server server(state_);
  RunTo(server, 2);
  Answer freeze(server, "job-a", Freeze());
  ASSERT_TRUE(server->Cancel(JobId("job-a")).ok());
  EXPECT_FALSE(freeze.is_there());
  server.runner().Release();
  const absl::Status status = freeze.Await().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(ReasonOf(status), "JOB_ENDED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("before its next step boundary"));
}

TEST_F(CacheCommandsTest, ACommandThatADrainCutsOffTakesEffectInTheNextServer) {
  {
    Server server(state_);
    RunTo(server, 4);
    Answer freeze(server, "job-a", Freeze());
    server->Drain();
    server.runner().Release();
    const absl::Status status = freeze.Await().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(ReasonOf(status), "SERVER_DRAINING");
    server->Join();
    EXPECT_THAT(server.runner().applied(), IsEmpty());
  }
  Server later(state_);
  EXPECT_EQ(Answer(later, "job-a", Update({.freeze_at = 5})).Await()->command_step, 4);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_THAT(later.runner().applied(), ElementsAre("job-a 1@4", "job-a 2@4"));
}

TEST_F(CacheCommandsTest, MetricsCountThisProcessAndShowTheRunningJob) {
  const MetricLabels train{{"mode", "train"}};
  {
    Server server(state_);
    RunTo(server, 4);
    EXPECT_EQ(server.Metric("permafrost_graph_cache_hits_total", train), 3);
    EXPECT_EQ(server.Metric("permafrost_graph_cache_captures_total", train), 1);
    EXPECT_EQ(server.Metric("permafrost_graph_cache_bytes"), 6000);
    EXPECT_EQ(server.Metric("permafrost_graph_cache_entries", train), 1);
  }
  Server later(state_);
  later->Start();
  later.AwaitEnd("job-a");
  EXPECT_EQ(later.Metric("permafrost_graph_cache_hits_total", train), 9 - 4 - 1)
      << "the first of the five is what counting begins from";
  EXPECT_EQ(later.Metric("permafrost_graph_cache_captures_total", train), 0);
  later->Drain();
  later->Join();
  EXPECT_EQ(later.Metric("permafrost_graph_cache_bytes"), -1) << "none runs: it is absent";
}

TEST_F(CacheCommandsTest, TheLastOneOfAJobSaysWhatToDo) {
  const std::filesystem::path state = dir_.path() / "state";
  {
    Server before(state);
    before.Create("job-a");
  }
  {
    Command last = Freeze();
    last.sequence = 100'000;
    ASSERT_TRUE((*JobStore::Open(state / "permafrost.db"))->PutCacheCommands(JobId("job-a"), {last}, nullptr).ok());
  }
  Server server(state);
  const absl::Status refused = Answer(server, "job-a", Freeze()).Await().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetReason(refused).reason, "TOO_MANY_COMMANDS");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 100000 a job: submit another job"));
}

}  // namespace
}  // namespace permafrost::jobs
