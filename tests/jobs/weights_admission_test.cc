// Tests Create for jobs that begin with the weights of another job or of a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/file.h"
#include "base/status.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

// Returns a request for a job that begins with the given weights.
CreateRequest BeginningWith(const std::string& id, const spec::InitialWeights& from) {
  CreateRequest request = Server::Request(id);
  request.spec.train.init_from = from;
  return request;
}

class WeightsAdmissionTest : public testing::Test {
 protected:
  const TempDir dir_;
  Server server_{dir_.path()};
};

TEST_F(WeightsAdmissionTest, WeightsToBeginWithAreCopiedSoThatTheirSourceMayGo) {
  server_.Create("first");
  server_->Start();
  server_.AwaitEnd("first");
  server_.runner().Hold();
  const auto made = server_->Create(BeginningWith("second", {.job = JobId("first")}));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->spec.train.init_from.job, JobId("first"));
  ASSERT_TRUE(server_->Delete(JobId("first")).ok());
  const auto copy = ReadFile(dir_.path() / "jobs/second" / train::kInitialWeightsFile);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*copy, "weights");
  EXPECT_FALSE(server_.runner().weights_of_other_dataset());
  server_.runner().Release();
  server_.AwaitEnd("second");
}

// Each node's row goes to the node of the same name, and the job's copy of the weights is in that order.
TEST_F(WeightsAdmissionTest, RowsOfNodesAreMappedFromTheDatasetOfTheirJob) {
  server_.catalog().Put("other");
  server_.Create("first");
  server_->Start();
  server_.AwaitEnd("first");
  server_.runner().Hold();
  server_.runner().SetMapped("mapped ");
  CreateRequest request = BeginningWith("second", {.job = JobId("first")});
  request.spec.train.dataset = DatasetId("other");
  const auto made = server_->Create(request);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*ReadFile(dir_.path() / "jobs/second" / train::kInitialWeightsFile), "mapped weights");
  EXPECT_TRUE(server_.runner().mapped()->trained.has_value());
  EXPECT_EQ(server_.runner().mapped()->options.dataset, DatasetId("other"));
  // Now the first job's dataset has other data.
  server_.catalog().Put("zinc");
  request.id = JobId("third");
  ASSERT_TRUE(server_->Create(request).ok());
  EXPECT_FALSE(server_.runner().mapped()->trained.has_value());
  server_.runner().Release();
}

TEST_F(WeightsAdmissionTest, WeightsToBeginWithAreCheckedBeforeTheJobIsMade) {
  server_.Create("waiting");
  const auto of_job = [&](const char* id, spec::JobWeights weights = spec::JobWeights::kBest) {
    return server_->Create(BeginningWith("job-a", {.job = JobId(id), .weights = weights})).status();
  };
  EXPECT_TRUE(absl::IsNotFound(of_job("nobody")));
  const absl::Status early = of_job("waiting", spec::JobWeights::kLast);
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(early), "ARTIFACT_NOT_READY");
  EXPECT_THAT(early.message(), HasSubstr("job waiting has not made its last weights yet"));

  server_.catalog().SetRoot(dir_.path().string());
  const std::string file = (dir_.path() / "w.safetensors").string();
  const auto of_file = [&](const std::string& path, bool validate_only = false) {
    CreateRequest request = BeginningWith("job-a", {.file = path});
    request.validate_only = validate_only;
    return server_->Create(request).status();
  };
  EXPECT_EQ(ReasonOf(of_file("/etc/hostname")), "PATH_OUTSIDE_IMPORT_ROOTS");
  EXPECT_THAT(of_file(dir_.path().string()).message(), HasSubstr("spec.init_from.file: "));
  // A file that begins with an empty header, which is all that the daemon checks before it reads on.
  const std::string begin("\x02\0\0\0\0\0\0\0{}", 10);
  std::ofstream(file) << "no such file";
  EXPECT_THAT(of_file(file).message(), HasSubstr("does not begin as a safetensors file does"));
  std::ofstream(file) << begin << "of another model";
  EXPECT_THAT(of_file(file).message(), HasSubstr("spec.init_from: the weights do not fit"));
  EXPECT_THAT(of_file(file, /*validate_only=*/true).message(), HasSubstr("the weights do not fit"));
  EXPECT_TRUE(absl::IsNotFound(server_->Get(JobId("job-a")).status()));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "jobs/job-a"));
  std::ofstream(file) << begin << "weights";
  EXPECT_TRUE(of_file(file, /*validate_only=*/true).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "jobs/job-a")) << "it was only checked";
  EXPECT_TRUE(of_file(file).ok());
}

TEST_F(WeightsAdmissionTest, WhileAFileIsReadOtherJobsAreMade) {
  server_.catalog().SetRoot(dir_.path().string());
  const std::filesystem::path file = dir_.path() / "w.safetensors";
  const std::string weights("\x02\0\0\0\0\0\0\0{}weights", 17);
  std::ofstream(file) << weights;
  CreateRequest slow = BeginningWith("slow", {.file = file.string()});
  slow.request_id = "once";
  std::atomic<int> readings = 0;
  absl::Notification made;
  std::thread other, again;
  server_.catalog().OnResolve([&] {
    if (++readings > 1) return;
    other = std::thread([&] {
      server_.Create("other");
      made.Notify();
    });
    again = std::thread([&] { EXPECT_TRUE(server_->Create(slow).ok()); });
    EXPECT_TRUE(made.WaitForNotificationWithTimeout(absl::Seconds(30))) << "it waits for another job's file";
  });
  const auto job = server_->Create(slow);
  ASSERT_GE(readings.load(), 1) << job.status();
  other.join();
  again.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(*ReadFile(dir_.path() / "jobs/slow" / train::kInitialWeightsFile), weights);
  std::filesystem::remove(file);
  EXPECT_EQ(server_->Create(slow)->id, job->id);
  EXPECT_EQ(readings.load(), 1) << "the same request reads it once";
  EXPECT_EQ(server_->CountByState()[0], 2);
  server_.catalog().OnResolve(nullptr);
}

TEST_F(WeightsAdmissionTest, WhileTheWeightsOfAJobAreReadAndCheckedOtherJobsAreMade) {
  server_->Start();
  server_.Create("first");
  server_.AwaitEnd("first");
  int checks = 0;
  absl::Notification made;
  std::thread other;
  server_.runner().OnInitialWeights([&] {
    if (++checks > 1) return;
    other = std::thread([&] {
      server_.Create("other");
      made.Notify();
    });
    EXPECT_TRUE(made.WaitForNotificationWithTimeout(absl::Seconds(30))) << "it waits for another job's weights";
    // Writes newer weights, as a job could do at this moment.
    std::ofstream(server_.JobDirectory("first") / "artifacts" / train::kBestWeightsFile) << "newer weights";
  });
  const auto job = server_->Create(BeginningWith("second", {.job = JobId("first")}));
  ASSERT_GE(checks, 1) << job.status();
  other.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(checks, 1) << "nothing changed that it depends on";
  EXPECT_EQ(*ReadFile(dir_.path() / "jobs/second" / train::kInitialWeightsFile), "weights")
      << "those that were checked";
  server_.runner().OnInitialWeights(nullptr);
}

TEST_F(WeightsAdmissionTest, AJobThatIsDeletedWhileItsWeightsAreReadIsNotFound) {
  server_->Start();
  for (const bool is_replaced : {false, true}) {
    server_.Create("first");
    server_.AwaitEnd("first");
    absl::Notification deleted;
    std::thread deletes;
    server_.runner().OnInitialWeights([&] {
      deletes = std::thread([&] {
        EXPECT_TRUE(server_->Delete(JobId("first")).ok());
        if (is_replaced) {
          server_.Create("first");
          server_.AwaitEnd("first");
        }
        deleted.Notify();
      });
      EXPECT_TRUE(deleted.WaitForNotificationWithTimeout(absl::Seconds(30))) << "it waits for another job's weights";
    });
    const absl::Status gone = server_->Create(BeginningWith("second", {.job = JobId("first")})).status();
    ASSERT_TRUE(deletes.joinable()) << gone;
    deletes.join();
    EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
    EXPECT_EQ(ReasonOf(gone), "JOB_NOT_FOUND") << is_replaced;
    EXPECT_FALSE(std::filesystem::exists(server_.JobDirectory("second")));
  }
  server_.runner().OnInitialWeights(nullptr);
}

TEST_F(WeightsAdmissionTest, WeightsAreCheckedAgainForADatasetThatWasReplacedMeanwhile) {
  server_->Start();
  server_.Create("first");
  server_.AwaitEnd("first");
  int checks = 0;
  server_.runner().OnInitialWeights([&] {
    if (++checks == 1) server_.catalog().Put("zinc");
  });
  const auto job = server_->Create(BeginningWith("second", {.job = JobId("first")}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(checks, 2);
  EXPECT_EQ(job->dataset_uid, server_->TraitsOf(DatasetId("zinc"))->uid);
  server_.runner().OnInitialWeights(nullptr);
}

}  // namespace
}  // namespace permafrost::jobs
