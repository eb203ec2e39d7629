// Tests Create and Delete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/status.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AdmissionTest : public testing::Test {
 protected:
  std::vector<std::filesystem::path> Quarantined(const std::string& id) {
    return QuarantinedIn(dir_.path() / "jobs", id);
  }

  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(AdmissionTest, AJobIsOnRecordWhenCreateAnswers) {
  const Job job = server_.Create("job-a");
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_GT(job.sequence, 0);
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("submitted job-a"));
  const auto store = JobStore::Open(dir_.path() / "permafrost.db");
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->Get(JobId("job-a"))->spec, job.spec);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "queued"}}), 1);
}

TEST_F(AdmissionTest, AJobKnowsWhichDatasetOfItsNameItWasMadeOf) {
  const std::string uid = server_->TraitsOf(DatasetId("zinc"))->uid;
  EXPECT_EQ(server_.Create("job-a").dataset_uid, uid);
  ASSERT_TRUE(server_->Cancel(JobId("job-a")).ok());
  server_.catalog().Put("zinc");
  EXPECT_NE(server_->TraitsOf(DatasetId("zinc"))->uid, uid);
  const Job second = server_.Create("job-b");
  EXPECT_NE(second.dataset_uid, uid);
  EXPECT_EQ(server_->Get(JobId("job-b"))->dataset_uid, second.dataset_uid);
  JobUpdate update;
  update.priority = 3;
  ASSERT_TRUE(server_->Update(JobId("job-b"), update).ok());
  const auto store = JobStore::Open(dir_.path() / "permafrost.db");
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->Get(JobId("job-a"))->dataset_uid, uid);
  EXPECT_EQ((*store)->Get(JobId("job-b"))->dataset_uid, second.dataset_uid) << "as it was, though it was updated";
}

TEST_F(AdmissionTest, TheServerMakesAnIdWhereTheClientGaveNone) {
  const auto one = server_->Create(Server::Request("")), two = server_->Create(Server::Request(""));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->id, two->id);
  EXPECT_TRUE(CheckIdSyntax("job_id", one->id.value()).ok());
}

TEST_F(AdmissionTest, WhatDoesNotFitInMemoryIsRefused) {
  server_.runner().SetFits(absl::InvalidArgumentError("needs about 3.2 GB"));
  EXPECT_THAT(server_->Create(Server::Request("job-a")).status().message(), HasSubstr("needs about 3.2 GB"));
  EXPECT_TRUE(absl::IsNotFound(server_->Get(JobId("job-a")).status()));
  // The job is created despite a damaged file, which its run will report.
  server_.runner().SetFits(absl::DataLossError("graphs.pfg: section labels"));
  server_.Create("job-a");
}

TEST_F(AdmissionTest, WhatAUserShouldKnowStaysWithTheJob) {
  server_.runner().SetNotes({"the job has no graphs to validate on"});
  const Job job = server_.Create("job-a");
  EXPECT_THAT(job.notes, ElementsAre("the job has no graphs to validate on"));
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("the job has no graphs to validate on"));
  EXPECT_EQ(server_->Get(JobId("job-a"))->notes, job.notes);
  JobUpdate update;
  update.priority = 3;
  ASSERT_TRUE(server_->Update(JobId("job-a"), update).ok());
  const auto store = JobStore::Open(dir_.path() / "permafrost.db");
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->Get(JobId("job-a"))->notes, job.notes);
}

TEST_F(AdmissionTest, ATakenIdIsRefusedAndTheJobUnharmed) {
  server_.Create("job-a");
  const auto again = server_->Create(Server::Request("job-a", /*epochs=*/9));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(again.status()), "JOB_ALREADY_EXISTS");
  EXPECT_EQ(server_.Get("job-a").spec.train.epochs, 2);
  EXPECT_THAT(server_.Log("job-a"), HasSubstr("submitted")) << "its directory is still there";
}

TEST_F(AdmissionTest, ARetriedRequestAnswersWithTheJobMadeFirst) {
  CreateRequest request = Server::Request("");
  request.request_id = "b7e2";
  const auto first = server_->Create(request);
  ASSERT_TRUE(first.ok());
  const auto retried = server_->Create(request);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->id, first->id);
  request.id = first->id;
  EXPECT_TRUE(server_->Create(request).ok()) << "naming the id that it got is the same request";
  // Priority and labels may differ, because an update may have changed them since.
  CreateRequest described = request;
  described.spec.priority = 1;
  described.labels = {{"team", "gnn"}};
  EXPECT_TRUE(server_->Create(described).ok());
  EXPECT_EQ(server_->CountByState()[0], 1);

  const struct {
    const char* why;
    std::function<void(CreateRequest&)> change;
  } kOthers[] = {
      {"another spec", [](CreateRequest& r) { r.spec.train.seed = 99; }},
      {"another id", [](CreateRequest& r) { r.id = JobId("job-other"); }},
  };
  for (const auto& other : kOthers) {
    CreateRequest changed = request;
    other.change(changed);
    const auto refused = server_->Create(changed);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists) << other.why;
    EXPECT_EQ(ReasonOf(refused.status()), "REQUEST_ID_REUSED") << other.why;
  }
}

TEST_F(AdmissionTest, ARetriedRequestIsKnownAfterARestartAndAfterTheEnd) {
  CreateRequest request = Server::Request("job-a");
  request.request_id = "b7e2";
  ASSERT_TRUE(server_->Create(request).ok());
  server_->Start();
  server_.AwaitEnd("job-a");
  Server later(dir_.path());
  const auto retried = later->Create(request);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->state, JobState::kSucceeded);
  EXPECT_EQ(retried->epochs.size(), 2u);
}

TEST_F(AdmissionTest, BadFieldsAreNamed) {
  const struct {
    const char* field;
    std::function<void(CreateRequest&)> change;
  } kCases[] = {
      {"job_id", [](CreateRequest& r) { r.id = JobId("../etc"); }},
      {"job_id", [](CreateRequest& r) { r.id = JobId("Upper"); }},
      {"job_id", [](CreateRequest& r) { r.id = JobId(std::string(64, 'a')); }},
      {"request_id", [](CreateRequest& r) { r.request_id = std::string(129, 'a'); }},
      {"request_id", [](CreateRequest& r) { r.request_id = "a\nb"; }},
      {"request_id", [](CreateRequest& r) { r.request_id = "\xc3\xa9"; }},
      {"spec.epochs", [](CreateRequest& r) { r.spec.train.epochs = 0; }},
      {"spec.dataset", [](CreateRequest& r) { r.spec.train.dataset = DatasetId(); }},
  };
  for (const auto& c : kCases) {
    CreateRequest request = Server::Request("job-a");
    c.change(request);
    const auto refused = server_->Create(request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(FieldsOf(refused.status()), ElementsAre(c.field));
  }
  CreateRequest request = Server::Request("job-a");
  request.request_id = std::string(128, '~');
  EXPECT_TRUE(server_->Create(request).ok()) << "the longest that is accepted";
}

TEST_F(AdmissionTest, TheDatasetMustBeReadyAndFit) {
  server_.catalog().Put("coming", data::DatasetState::kImporting);
  server_.catalog().Put("broken", data::DatasetState::kFailed, "edge.csv:7: ragged");
  CreateRequest request = Server::Request("job-a");
  request.spec.train.dataset = DatasetId("missing");
  EXPECT_EQ(server_->Create(request).status().code(), absl::StatusCode::kNotFound);
  request.spec.train.dataset = DatasetId("coming");
  const absl::Status coming = server_->Create(request).status();
  EXPECT_EQ(coming.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(coming), "DATASET_NOT_READY");
  request.spec.train.dataset = DatasetId("broken");
  EXPECT_THAT(std::string(server_->Create(request).status().message()), HasSubstr("edge.csv:7: ragged"));

  // A fault of the machine alone.
  server_.catalog().SetOpenError(AsTransient(absl::FailedPreconditionError("cannot map: Cannot allocate memory")));
  const absl::Status soon = server_->Create(request).status();
  EXPECT_EQ(soon.code(), absl::StatusCode::kUnavailable) << soon;
  EXPECT_EQ(ReasonOf(soon), "DATASET_NOT_READY");
  EXPECT_THAT(std::string(soon.message()), HasSubstr("it is tried again"));
  request.spec.train.dataset = DatasetId("coming");
  EXPECT_EQ(server_->Create(request).status().code(), absl::StatusCode::kFailedPrecondition) << "it is imported yet";
  server_.catalog().SetOpenError(absl::OkStatus());

  request.spec.train.dataset = DatasetId("zinc");
  server_.runner().SetCompatible(absl::InvalidArgumentError("spec.loss: one target is needed"));
  EXPECT_EQ(server_->Create(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(server_.JobDirectory("job-a"))) << "a refused job leaves nothing";
}

TEST_F(AdmissionTest, ValidateOnlyCreatesNothing) {
  CreateRequest request = Server::Request("job-a");
  request.request_id = "b7e2";
  request.validate_only = true;
  const auto job = server_->Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id.value(), "job-a");
  EXPECT_EQ(job->spec, request.spec);
  EXPECT_EQ(server_->Get(JobId("job-a")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(server_.JobDirectory("job-a")));
  EXPECT_TRUE(server_->CheckDatasetUnused(DatasetId("zinc")).ok());
  request.validate_only = false;
  EXPECT_TRUE(server_->Create(request).ok()) << "neither the id nor the request id was used up";
  request.validate_only = true;
  request.request_id = "";
  EXPECT_EQ(server_->Create(request).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(AdmissionTest, ADrainingServerTakesNoJobs) {
  server_->Drain();
  const auto refused = server_->Create(Server::Request("job-a"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused.status()), "SERVER_DRAINING");
}

TEST_F(AdmissionTest, ADatasetIsInUseFromTheFirstCheckOn) {
  EXPECT_TRUE(server_->CheckDatasetUnused(DatasetId("zinc")).ok());
  absl::Status meanwhile;
  server_.catalog().OnGet([&] { meanwhile = server_->CheckDatasetUnused(DatasetId("zinc")); });
  server_.Create("job-a");
  server_.catalog().OnGet(nullptr);
  EXPECT_EQ(ReasonOf(meanwhile), "DATASET_IN_USE") << "else a deletion could pass between the check and the job";
  const absl::Status queued = server_->CheckDatasetUnused(DatasetId("zinc"));
  EXPECT_EQ(queued.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(queued.message()), HasSubstr("job-a"));
  EXPECT_TRUE(server_->CheckDatasetUnused(DatasetId("other")).ok());
  server_->Start();
  server_.AwaitEnd("job-a");
  EXPECT_TRUE(server_->CheckDatasetUnused(DatasetId("zinc")).ok());
}

TEST_F(AdmissionTest, OnlyAnEndedJobIsDeleted) {
  server_.runner().Hold();
  server_.Create("job-a");
  EXPECT_EQ(ReasonOf(server_->Delete(JobId("job-a"))), "JOB_NOT_ENDED");
  server_->Start();
  server_.runner().AwaitHeld();
  EXPECT_EQ(server_->Delete(JobId("job-a")).code(), absl::StatusCode::kFailedPrecondition);
  server_.runner().Release();
  server_.AwaitEnd("job-a");
  ASSERT_TRUE(std::filesystem::exists(server_.JobDirectory("job-a")));
  EXPECT_TRUE(server_->Delete(JobId("job-a")).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path() / "jobs"));
  EXPECT_EQ(server_->Get(JobId("job-a")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_->Delete(JobId("job-a")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_->ReadLog(JobId("job-a"), 0, 100).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server_.Metric("permafrost_jobs", {{"state", "succeeded"}}), 0);
}

TEST_F(AdmissionTest, AJobUnderADeletedOnesIdBeginsClean) {
  server_->Start();
  server_.Create("job-a");
  server_.AwaitEnd("job-a");
  ASSERT_TRUE(server_->Delete(JobId("job-a")).ok());
  // Restores the directory, as if the deletion could not have moved it away.
  std::filesystem::create_directories(server_.JobDirectory("job-a"));
  std::ofstream(server_.JobDirectory("job-a") / "checkpoint") << 5;
  server_.Create("job-a");
  const Job job = server_.AwaitEnd("job-a");
  EXPECT_EQ(job.epochs.size(), 2u) << "resumed from another job's checkpoint otherwise";
}

TEST_F(AdmissionTest, AJobUnderAStrangersIdLeavesTheStrangersWorkAlone) {
  std::filesystem::create_directories(server_.JobDirectory("job-a") / "checkpoints/7");
  server_.Create("job-a");
  EXPECT_FALSE(std::filesystem::exists(server_.JobDirectory("job-a") / "checkpoints"));
  EXPECT_THAT(Quarantined("job-a"), testing::SizeIs(1));
  EXPECT_TRUE(std::filesystem::exists(Quarantined("job-a").at(0) / "checkpoints/7"));
}

TEST_F(AdmissionTest, WhatADeletionLeftIsRemovedAtTheNextStart) {
  server_.Create("job-a");
  std::filesystem::create_directories(server_.JobDirectory(".deleted-job-b-7") / "checkpoints/7");
  std::filesystem::create_directories(server_.JobDirectory("job-empty"));
  Server later(dir_.path());
  EXPECT_TRUE(std::filesystem::exists(later.JobDirectory("job-a")));
  EXPECT_FALSE(std::filesystem::exists(later.JobDirectory(".deleted-job-b-7")));
  EXPECT_FALSE(std::filesystem::exists(later.JobDirectory("job-empty"))) << "a creation that was cut short";
  EXPECT_EQ(later.Metric("permafrost_job_directories_quarantined_total"), 0);
}

TEST(MaxJobs, OneMoreIsRefusedUntilOneHasEnded) {
  const TempDir dir;
  Server server(dir.path(), absl::Milliseconds(1), /*preempt=*/true, {}, /*max_log_bytes=*/0, /*max_jobs=*/2);
  CreateRequest first = Server::Request("first");
  first.request_id = "once";
  ASSERT_TRUE(server->Create(first).ok());
  server.Create("second");
  ASSERT_TRUE(server->Pause(JobId("second")).ok());
  const absl::Status refused = server->Create(Server::Request("third")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "TOO_MANY_JOBS");
  EXPECT_EQ(GetReason(refused).metadata.at("limit"), "2");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 jobs have not ended"));
  EXPECT_FALSE(std::filesystem::exists(server.JobDirectory("third")));
  EXPECT_TRUE(server->Create(first).ok()) << "the same request again makes no job";
  ASSERT_TRUE(server->Cancel(JobId("first")).ok());
  server.Create("third");
  EXPECT_TRUE(absl::IsResourceExhausted(server->Retry(JobId("first")).status())) << "it would be a third one";
}

}  // namespace
}  // namespace permafrost::jobs
