// Tests labels, filters, pause, resume, retry, update, checkpoints, wait and compare against a scripted server.
#include <atomic>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

class VerbCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "job"});
    return RunProgram(arguments);
  }
  // Makes each watched job end in the way that its name says.
  void ScriptWatches() {
    fake_.jobs.watch = [](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>& writer,
                          grpc::ServerContext& context) {
      v1::Job job = RunningJob(1);
      job.set_name(request.name());
      writer.Write(job);
      if (request.name() == "jobs/lost") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
      if (request.name() == "jobs/endless") {
        while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
        return grpc::Status::CANCELLED;
      }
      job.set_state(request.name() == "jobs/fails"       ? v1::Job::STATE_FAILED
                    : request.name() == "jobs/cancelled" ? v1::Job::STATE_CANCELLED
                                                         : v1::Job::STATE_SUCCEEDED);
      if (job.state() == v1::Job::STATE_FAILED) job.set_error("out of memory");
      writer.Write(job);
      return grpc::Status::OK;
    };
  }

  FakeServer fake_;
};

TEST_F(VerbCommandTest, LabelsGoWithTheJob) {
  Recorder<v1::CreateJobRequest> requests;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  ASSERT_EQ(Run({"submit", "--dataset", "zinc", "--label", "team=gnn", "--label", "note=a=b, c"}).exit_code, 0);
  EXPECT_THAT(requests.seen().at(0).labels(), UnorderedElementsAre(Pair("team", "gnn"), Pair("note", "a=b, c")));
  for (const auto& [label, says] :
       {std::pair("team", "KEY=VALUE"), std::pair("=x", "KEY=VALUE"), std::pair("a=1", "a is given twice")}) {
    const ProgramResult bad = Run({"submit", "--dataset", "zinc", "--label", "a=0", "--label", label});
    EXPECT_EQ(bad.exit_code, 2) << label;
    EXPECT_THAT(bad.err, HasSubstr(says));
  }
  EXPECT_EQ(requests.seen().size(), 1u);
}

TEST_F(VerbCommandTest, JobsOfASweepAreLabelledWithIt) {
  Recorder<v1::CreateJobRequest> requests;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = QueuedJob();
    job.set_name("jobs/" + request.job_id());
    return grpc::Status::OK;
  };
  ScriptWatches();
  fake_.Start();
  const ProgramResult swept =
      Run({"sweep", "--dataset", "zinc", "--vary", "seed=1,2", "--id", "s1", "--label", "team=gnn"});
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
  ASSERT_EQ(requests.seen().size(), 4u);
  for (const v1::CreateJobRequest& request : requests.seen()) {
    EXPECT_THAT(request.labels(), UnorderedElementsAre(Pair("sweep", "s1"), Pair("team", "gnn")));
  }
}

TEST_F(VerbCommandTest, ListSendsTheFilterAndShowsLabels) {
  Recorder<std::string> filters;
  std::atomic<bool> empty = false;
  fake_.jobs.list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
    filters.Add(request.filter());
    if (empty) return grpc::Status::OK;
    *response.add_jobs() = QueuedJob();
    *response.add_jobs() = RunningJob(2);
    (*response.mutable_jobs(1)->mutable_labels())["team"] = "gnn";
    (*response.mutable_jobs(1)->mutable_labels())["note"] = "x";
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult list = Run({"list", "--filter", "labels.team = \"gnn\""});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("TIME  LABELS\n"));
  EXPECT_THAT(list.out, HasSubstr("note=x, team=gnn\n"));
  empty = true;
  EXPECT_EQ(Run({"list", "--filter", "priority > 3"}).out, "no jobs for which the filter holds\n");
  EXPECT_THAT(filters.seen(), ElementsAre("labels.team = \"gnn\"", "priority > 3"));
}

TEST_F(VerbCommandTest, PauseResumeAndRetrySayWhatBecameOfTheJob) {
  fake_.jobs.pause = [](const v1::PauseJobRequest& request, v1::Job& job) {
    job = RunningJob(1);
    job.set_pausing(request.name() == "jobs/runs");
    if (!job.pausing()) job.set_state(v1::Job::STATE_PAUSED);
    return grpc::Status::OK;
  };
  fake_.jobs.resume = [](const v1::ResumeJobRequest&, v1::Job& job) {
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.jobs.retry = [](const v1::RetryJobRequest&, v1::Job&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "job a has succeeded");
  };
  fake_.Start();
  EXPECT_EQ(Run({"pause", "runs"}).out, "job runs is running; it pauses at its next step\n");
  EXPECT_EQ(Run({"pause", "jobs/waits"}).out, "job waits paused\n");
  EXPECT_EQ(Run({"resume", "waits"}).out, "job waits queued\n");
  EXPECT_EQ(json::parse(Run({"pause", "waits", "--output", "json"}).out)["state"], "STATE_PAUSED");
  const ProgramResult refused = Run({"retry", "a"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_EQ(refused.err, "permafrost: FAILED_PRECONDITION: job a has succeeded\n");
}

TEST_F(VerbCommandTest, WhatFindsNothingToDoSaysSo) {
  fake_.jobs.get = [](const v1::GetJobRequest& request, v1::Job& job) {
    job = RunningJob(1);
    if (request.name() == "jobs/waits") job = QueuedJob();
    if (request.name() == "jobs/paused") job.set_state(v1::Job::STATE_PAUSED);
    job.set_pausing(request.name() == "jobs/stops");
    return grpc::Status::OK;
  };
  fake_.jobs.resume = [](const v1::ResumeJobRequest& request, v1::Job& job) {
    job = request.name() == "jobs/stops" ? RunningJob(1) : QueuedJob();
    return grpc::Status::OK;
  };
  fake_.jobs.retry = [](const v1::RetryJobRequest&, v1::Job& job) {
    job = RunningJob(1);
    return grpc::Status::OK;
  };
  fake_.jobs.pause = [](const v1::PauseJobRequest&, v1::Job& job) {
    job.set_state(v1::Job::STATE_PAUSED);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult retried = Run({"retry", "runs"});
  EXPECT_EQ(retried.out, "job runs is running already; nothing was done\n");
  EXPECT_EQ(retried.exit_code, 0);
  EXPECT_EQ(Run({"resume", "waits"}).out, "job waits is queued already; nothing was done\n");
  EXPECT_EQ(Run({"resume", "paused"}).out, "job paused queued\n");
  EXPECT_EQ(Run({"resume", "stops"}).out, "job stops running\n") << "its pause was withdrawn";
  EXPECT_EQ(Run({"pause", "paused"}).out, "job paused is paused already; nothing was done\n");
}

TEST_F(VerbCommandTest, UpdateNamesWhatItChanges) {
  Recorder<v1::UpdateJobRequest> requests;
  fake_.jobs.update = [&](const v1::UpdateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = request.job();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult updated =
      Run({"update", "a", "--priority", "-3", "--label", "team=gnn", "--remove-label", "old", "--etag", "e1"});
  EXPECT_EQ(updated.exit_code, 0) << updated.err;
  EXPECT_EQ(updated.out, "job a: priority -3, labels team=gnn\n");
  EXPECT_EQ(Run({"update", "b", "--max-runtime", "2m"}).out, "job b: priority 0, max runtime 2m 00s, labels none\n");
  EXPECT_THAT(Run({"update", "b", "--deadline", "2033-01-02T12:00:00Z"}).out, HasSubstr(", deadline 2033-01-0"));
  EXPECT_THAT(Run({"update", "b", "--deadline", "soon"}).err, HasSubstr("--deadline: 'soon'; accepted: a time"));
  const v1::UpdateJobRequest request = requests.seen().at(0);
  EXPECT_EQ(request.job().name(), "jobs/a");
  EXPECT_EQ(request.job().etag(), "e1");
  EXPECT_EQ(request.job().spec().priority(), -3);
  EXPECT_THAT(request.update_mask().paths(), ElementsAre("spec.priority", "labels.team", "labels.old"));
  EXPECT_EQ(Run({"update", "a"}).exit_code, 2) << "nothing to update";
  EXPECT_EQ(Run({"update", "a", "--label", "x=1", "--remove-label", "x"}).exit_code, 2);
}

TEST_F(VerbCommandTest, CheckpointsInOneTable) {
  Recorder<bool> verified;
  fake_.jobs.checkpoints = [&](const v1::ListCheckpointsRequest& request, v1::ListCheckpointsResponse& response) {
    verified.Add(request.verify());
    if (request.parent() == "jobs/none") return grpc::Status::OK;
    v1::Checkpoint& whole = *response.add_checkpoints();
    whole.set_step(1500);
    whole.set_epoch(3);
    whole.set_best_epoch(2);
    whole.set_state(v1::Checkpoint::STATE_COMPLETE);
    whole.set_total_bytes(1'234'000);
    v1::Checkpoint& damaged = *response.add_checkpoints();
    damaged.set_step(90);
    damaged.set_epoch(1);
    damaged.set_state(v1::Checkpoint::STATE_DAMAGED);
    damaged.set_error("state.json: is missing");
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_EQ(Run({"checkpoints", "a"}).out,
            " STEP  EPOCH  BEST EPOCH  STATE        SIZE  WRITTEN  ERROR\n"
            "1,500      3           2  complete  1.23 MB        -  -\n"
            "   90      1           -  damaged       0 B        -  state.json: is missing\n");
  EXPECT_EQ(Run({"checkpoints", "none", "--verify"}).out, "job none has no checkpoint\n");
  EXPECT_THAT(verified.seen(), ElementsAre(false, true));
}

TEST_F(VerbCommandTest, WaitsExitCodeTellsHowTheJobsEnded) {
  ScriptWatches();
  fake_.Start();
  const ProgramResult good = Run({"wait", "a", "jobs/b"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.out, "job a succeeded\njob b succeeded\n");
  const ProgramResult failed = Run({"wait", "fails"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(failed.err, "permafrost: job fails failed: out of memory\n");
  const ProgramResult some = Run({"wait", "a", "fails", "cancelled"});
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_EQ(some.err,
            "permafrost: 2 of 3 jobs did not succeed: fails failed: out of memory; cancelled was cancelled\n");
  EXPECT_EQ(Run({"wait", "lost"}).exit_code, 4);
  const ProgramResult late = Run({"wait", "endless", "--timeout", "0.2", "--output", "json"});
  EXPECT_EQ(late.exit_code, 6);
  EXPECT_EQ(json::parse(late.err)["error"]["code"], "TIMED_OUT");
  EXPECT_EQ(Run({"wait", "a", "--timeout", "60"}).exit_code, 0);
}

TEST_F(VerbCommandTest, CompareShowsWhatDiffersAndWhatCameOfIt) {
  fake_.jobs.get = [](const v1::GetJobRequest& request, v1::Job& job) {
    job = request.name() == "jobs/b" ? SucceededJob() : RunningJob(2);
    AddEpoch(1, job);
    job.set_name(request.name());
    if (request.name() == "jobs/b") job.mutable_spec()->mutable_optimizer()->set_learning_rate(0.01);
    if (request.name() == "jobs/b") (*job.mutable_labels())["team"] = "gnn";
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult table = Run({"compare", "a", "b"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, testing::ContainsRegex("optimizer.learning_rate +0.001 +0.01\n"));
  EXPECT_THAT(table.out, testing::ContainsRegex("labels.team +- +gnn\n"));
  EXPECT_THAT(table.out, testing::Not(HasSubstr("batch_size")));
  const json out = json::parse(Run({"compare", "a", "b", "--output", "json"}).out);
  EXPECT_EQ(out["jobs"][1]["name"], "jobs/b");
  EXPECT_EQ(out["differences"]["optimizer.learning_rate"], json::array({"0.001", "0.01"}));
  EXPECT_EQ(out["numbers"]["best epoch"], json::array({nullptr, 3}));
  EXPECT_EQ(Run({"compare", "a"}).exit_code, 2);
}

}  // namespace
}  // namespace permafrost::client
