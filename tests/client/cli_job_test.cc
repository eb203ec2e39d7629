// Tests `permafrost job` against a scripted server: what it sends, what it prints, and how it exits.
#include <cstdlib>
#include <fstream>

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
using testing::StartsWith;

class JobCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  FakeServer fake_;
};

TEST_F(JobCommandTest, SubmitSendsWhatTheFlagsSay) {
  Recorder<v1::CreateJobRequest> requests;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"job",
                                    "submit",
                                    "--dataset",
                                    "zinc",
                                    "--id",
                                    "zinc-1",
                                    "--model",
                                    "gine",
                                    "--hidden",
                                    "128",
                                    "--layers",
                                    "3",
                                    "--pooling",
                                    "sum",
                                    "--epochs",
                                    "7",
                                    "--batch-size",
                                    "16",
                                    "--lr",
                                    "5e-4",
                                    "--weight-decay",
                                    "0.1",
                                    "--optimizer",
                                    "adamw",
                                    "--loss",
                                    "mse",
                                    "--seed",
                                    "18446744073709551615",
                                    "--priority",
                                    "-5",
                                    "--checkpoint-every",
                                    "50",
                                    "--checkpoint-seconds",
                                    "0",
                                    "--checkpoint-keep",
                                    "4",
                                    "--dropout",
                                    "0.1",
                                    "--max-grad-norm",
                                    "2.5",
                                    "--schedule",
                                    "cosine",
                                    "--warmup-steps",
                                    "100",
                                    "--cache-policy",
                                    "clear-per-step",
                                    "--freeze-at",
                                    "50",
                                    "--on-miss",
                                    "transient",
                                    "--shapes",
                                    "dynamic",
                                    "--rungs",
                                    "12",
                                    "--audit-every",
                                    "7",
                                    "--strict",
                                    "--max-executables",
                                    "9",
                                    "--batching",
                                    "budget",
                                    "--max-nodes",
                                    "800",
                                    "--max-edges",
                                    "1700"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "job zinc-1 queued; watch it with: permafrost --server " + fake_.address() + " job watch zinc-1\n");
  ASSERT_EQ(requests.seen().size(), 1u);
  v1::CreateJobRequest sent = requests.seen()[0];
  EXPECT_THAT(sent.request_id(),
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  sent.clear_request_id();
  EXPECT_EQ(
      sent.ShortDebugString(),
      "job_id: \"zinc-1\" spec { dataset: \"datasets/zinc\" model { architecture: ARCHITECTURE_GINE "
      "hidden_channels: 128 num_layers: 3 pooling: POOLING_SUM dropout: 0.1 } optimizer { algorithm: "
      "ALGORITHM_ADAMW learning_rate: 0.0005 weight_decay: 0.1 max_grad_norm: 2.5 schedule: SCHEDULE_COSINE "
      "warmup_steps: 100 } loss: LOSS_MSE epochs: 7 batch_size: 16 seed: 18446744073709551615 priority: -5 "
      "checkpoint { every_steps: 50 keep: 4 every_seconds: 0 } graph_cache { policy: POLICY_CLEAR_PER_STEP "
      "freeze_at: 50 "
      "on_miss: ON_MISS_TRANSIENT shapes: SHAPES_DYNAMIC rungs: 12 audit_every: 7 strict: true max_executables: 9 } "
      "batching { kind: KIND_BUDGET max_nodes: 800 max_edges: 1700 } }");
}

TEST_F(JobCommandTest, WhatWeightsBeginWithAndHowTheyChangeGoesToTheWire) {
  Recorder<v1::CreateJobRequest> requests;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result =
      Run({"job",         "submit", "--dataset",          "zinc", "--schedule",          "plateau",
           "--min-lr",    "1e-5",   "--plateau-patience", "0",    "--plateau-threshold", "0.01",
           "--ema-decay", "0.999",  "--accumulate-steps", "4",    "--weight-decay-of",   "first-layer",
           "--init-from", "first",  "--init-weights",     "last", "--init-by-name",      "--fixed-parameters",
           "convs.0,head"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Run({"job", "submit", "--dataset", "zinc", "--init-file", "/data/../w.safetensors"}).exit_code, 0);
  ASSERT_EQ(requests.seen().size(), 2u);
  const v1::JobSpec sent = requests.seen()[0].spec(), of_file = requests.seen()[1].spec();
  EXPECT_EQ(sent.optimizer().ShortDebugString(),
            "schedule: SCHEDULE_PLATEAU plateau_patience: 0 plateau_threshold: 0.01 min_learning_rate: 1e-05 "
            "weight_decay_of: WEIGHT_DECAY_OF_FIRST_LAYER ema_decay: 0.999 accumulate_steps: 4");
  EXPECT_EQ(sent.init_from().ShortDebugString(), "job: \"jobs/first\" weights: WEIGHTS_LAST by_name: true");
  EXPECT_THAT(sent.fixed_parameters(), testing::ElementsAre("convs.0", "head"));
  EXPECT_EQ(of_file.init_from().ShortDebugString(), "file: \"/w.safetensors\"");
}

TEST_F(JobCommandTest, FlagsOverrideTheFile) {
  Recorder<v1::CreateJobRequest> requests;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    requests.Add(request);
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  const TempDir directory;
  const std::string path = directory.path() / "job.yaml";
  std::ofstream(path) << "dataset: other\nepochs: 5\nseed: 3\nmodel: {hidden_channels: 32}\n"
                      << "graph_cache: {freeze_at: 50, on_miss: eager}\n";
  const ProgramResult result = Run({"job", "submit", "--file", path, "--dataset", "zinc", "--seed", "0",
                                    "--validate-only", "--freeze-at", "derived"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "the job is valid; nothing was created\n");
  ASSERT_EQ(requests.seen().size(), 1u);
  const v1::CreateJobRequest sent = requests.seen()[0];
  EXPECT_TRUE(sent.validate_only());
  EXPECT_EQ(sent.spec().dataset(), "datasets/zinc");
  EXPECT_EQ(sent.spec().epochs(), 5);
  EXPECT_EQ(sent.spec().seed(), 0u) << "a flag at the default is a flag all the same";
  EXPECT_EQ(sent.spec().model().hidden_channels(), 32);
  EXPECT_EQ(sent.spec().graph_cache().ShortDebugString(), "freeze_at: 0 on_miss: ON_MISS_EAGER");
}

TEST_F(JobCommandTest, SubmitWarnsOfWhatAUserShouldKnow) {
  fake_.jobs.create = [&](const v1::CreateJobRequest&, v1::Job& job) {
    job = QueuedJob();
    job.add_notes("the job has no graphs to validate on");
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult told = Run({"job", "submit", "--dataset", "zinc"});
  EXPECT_EQ(told.exit_code, 0);
  EXPECT_EQ(told.err, "warning: the job has no graphs to validate on\n");
  const ProgramResult json = Run({"--output", "json", "job", "submit", "--dataset", "zinc"});
  EXPECT_THAT(json.err, IsEmpty());
  EXPECT_THAT(json.out, HasSubstr("the job has no graphs to validate on"));
}

TEST_F(JobCommandTest, BadFilesAndFlagsAreToldInOneLineWithoutAServer) {
  const TempDir directory;
  const std::string path = directory.path() / "job.yaml";
  std::ofstream(path) << "dataset: d\nepochs: ten\n";
  const struct {
    const char* why;
    std::vector<std::string> arguments;
    int exit_code;
    std::string err;
  } cases[] = {
      {"a bad value in a file",
       {"job", "submit", "--file", path},
       2,
       "permafrost: " + path + ":2: epochs: 'ten'; accepted: a whole number\n"},
      {"a file that is not there",
       {"job", "submit", "--file", "/no/such.yaml"},
       5,
       "permafrost: /no/such.yaml: cannot open: No such file or directory\n"},
      {"no dataset",
       {"job", "submit"},
       2,
       "permafrost: --dataset is missing: name one, or give it as `dataset` in --file\n"},
      {"a negative number where none can be",
       {"job", "submit", "--dataset", "d", "--seed", "-1"},
       2,
       "permafrost: --seed: '-1'; accepted: a whole number, 0 or more (see permafrost job submit --help)\n"},
      {"no number",
       {"job", "submit", "--dataset", "d", "--epochs", "ten"},
       2,
       "permafrost: --epochs: 'ten'; accepted: a whole number (see permafrost job submit --help)\n"},
      {"an unknown name",
       {"job", "submit", "--dataset", "d", "--loss", "l2"},
       2,
       "permafrost: --loss: 'l2'; accepted: l1, mse, cross-entropy, bce (see permafrost job submit --help)\n"},
      {"a freeze point that is neither a number nor derived",
       {"job", "submit", "--dataset", "d", "--freeze-at", "soon"},
       2,
       "permafrost: --freeze-at: 'soon'; accepted: a whole number, or derived (see permafrost job submit --help)\n"},
      {"an unknown policy",
       {"job", "submit", "--dataset", "d", "--cache-policy", "sometimes"},
       2,
       "permafrost: --cache-policy: 'sometimes'; accepted: always, never, clear-per-step, freeze (see permafrost job "
       "submit --help)\n"},
      {"an unknown command", {"job", "frob"}, 2, "permafrost: 'frob' is not known here (see permafrost job --help)\n"},
      {"no command", {}, 2, "permafrost: A subcommand is required (see permafrost --help)\n"},
  };
  for (const auto& c : cases) {
    const ProgramResult result = RunProgram(c.arguments);
    EXPECT_EQ(result.exit_code, c.exit_code) << c.why;
    EXPECT_EQ(result.err, c.err) << c.why;
    EXPECT_THAT(result.out, IsEmpty()) << c.why;
  }
}

TEST_F(JobCommandTest, RefusalsShowEveryBadField) {
  fake_.jobs.create = [](const v1::CreateJobRequest&, v1::Job&) {
    google::rpc::BadRequest bad_request;
    for (const char* field : {"spec.epochs", "spec.batch_size"}) {
      auto& violation = *bad_request.add_field_violations();
      violation.set_field(field);
      violation.set_description("-1 is too small");
    }
    google::rpc::ErrorInfo info;
    info.set_reason("BAD_SPEC");
    return WithDetails(grpc::StatusCode::INVALID_ARGUMENT,
                       "spec.epochs: -1 is too small; spec.batch_size: -1 is too small", {&bad_request, &info});
  };
  fake_.Start();
  const ProgramResult text = Run({"job", "submit", "--dataset", "d", "--epochs", "-1", "--batch-size", "-1"});
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_EQ(text.err,
            "permafrost: INVALID_ARGUMENT: 2 fields are not valid\n"
            "  spec.epochs: -1 is too small\n"
            "  spec.batch_size: -1 is too small\n");
  EXPECT_THAT(text.out, IsEmpty());
  const ProgramResult as_json = Run({"job", "submit", "--dataset", "d", "--output", "json"});
  EXPECT_EQ(as_json.exit_code, 4);
  EXPECT_THAT(as_json.out, IsEmpty());
  const json error = json::parse(as_json.err)["error"];
  EXPECT_EQ(error["reason"], "BAD_SPEC");
  EXPECT_EQ(error["fieldViolations"][1]["field"], "spec.batch_size");
}

// Lists five jobs in pages of two.
grpc::Status FiveJobs(const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
  const int first = request.page_token().empty() ? 0 : std::atoi(request.page_token().c_str());
  const int size = request.page_size() == 0 ? 2 : std::min(2, request.page_size());
  for (int i = first; i < std::min(5, first + size); ++i) {
    *response.add_jobs() = QueuedJob();
    response.mutable_jobs()->rbegin()->set_name(absl::StrCat("jobs/j", i));
  }
  if (first + size < 5) response.set_next_page_token(absl::StrCat(first + size));
  return grpc::Status::OK;
}

TEST_F(JobCommandTest, ListFollowsPagesUpToTheLimit) {
  Recorder<v1::ListJobsRequest> requests;
  fake_.jobs.list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
    requests.Add(request);
    return FiveJobs(request, response);
  };
  fake_.Start();
  const auto names = [](const ProgramResult& result) {
    std::vector<std::string> list;
    const json all = json::parse(result.out);
    for (const json& job : all["jobs"]) list.push_back(job["name"]);
    return list;
  };
  EXPECT_THAT(names(Run({"job", "list", "--output", "json"})),
              ElementsAre("jobs/j0", "jobs/j1", "jobs/j2", "jobs/j3", "jobs/j4"));
  EXPECT_EQ(requests.seen().size(), 3u);
  EXPECT_THAT(names(Run({"job", "list", "--output", "json", "--limit", "3"})),
              ElementsAre("jobs/j0", "jobs/j1", "jobs/j2"));
  EXPECT_EQ(requests.seen().back().page_size(), 1) << "only what is missing";

  const ProgramResult table = Run({"job", "list", "--state", "queued,running", "--state", "failed"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("JOB  STATE   DATASET  EPOCH"));
  EXPECT_THAT(table.out, HasSubstr("\nj4   queued  zinc       -/3"));
  EXPECT_THAT(requests.seen().back().states(),
              ElementsAre(v1::Job::STATE_QUEUED, v1::Job::STATE_RUNNING, v1::Job::STATE_FAILED));
}

TEST_F(JobCommandTest, ShowCancelDelete) {
  Recorder<std::string> names;
  fake_.jobs.get = [&](const v1::GetJobRequest& request, v1::Job& job) {
    names.Add(request.name());
    job = SucceededJob();
    AddEpoch(1, job);
    return grpc::Status::OK;
  };
  fake_.jobs.cancel = [&](const v1::CancelJobRequest& request, v1::Job& job) {
    names.Add(request.name());
    job = RunningJob(1);
    job.set_state(v1::Job::STATE_CANCELLING);
    return grpc::Status::OK;
  };
  fake_.jobs.remove = [&](const v1::DeleteJobRequest& request, google::protobuf::Empty&) {
    names.Add(request.name());
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "job zinc-1 is running; cancel it first");
  };
  fake_.Start();
  const ProgramResult show = Run({"job", "show", "zinc-1"});
  EXPECT_EQ(show.exit_code, 0);
  EXPECT_THAT(show.out, HasSubstr("\n  1/3      0.9000"));
  EXPECT_THAT(show.out, HasSubstr("job zinc-1 succeeded\n  best epoch"));
  const ProgramResult cancel = Run({"job", "cancel", "jobs/zinc-1"});
  EXPECT_EQ(cancel.out, "job zinc-1 cancelling\n");
  const ProgramResult remove = Run({"job", "delete", "zinc-1"});
  EXPECT_EQ(remove.exit_code, 4);
  EXPECT_EQ(remove.err, "permafrost: FAILED_PRECONDITION: job zinc-1 is running; cancel it first\n");
  EXPECT_THAT(names.seen(), ElementsAre("jobs/zinc-1", "jobs/zinc-1", "jobs/zinc-1"));
  const json job = json::parse(Run({"job", "show", "zinc-1", "--output", "json"}).out);
  EXPECT_EQ(job["spec"]["model"]["hiddenChannels"], 64);
  EXPECT_EQ(job["resumes"], 0) << "fields at their default are there";
}

TEST_F(JobCommandTest, HelpDocumentsTheExitCodes) {
  const ProgramResult help = RunProgram({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Exit codes:\n  0    done\n  1    the watched job"));
  EXPECT_THAT(RunProgram({"--version"}).out, StartsWith("permafrost "));
  EXPECT_THAT(RunProgram({"job", "watch", "--help"}).out, HasSubstr("Ctrl-C leaves the job running"));
}

}  // namespace
}  // namespace permafrost::client
