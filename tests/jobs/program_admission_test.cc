// Tests Create for jobs that train a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "jobs/manager_fixture.h"
#include "jobs/program_store.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

class ProgramAdmissionTest : public testing::Test {
 protected:
  ProgramAdmissionTest() {
    auto store = ProgramStore::Open({.directory = dir_.path() / "programs", .describe = [this](const auto& path) {
                                       return describer_.DescribeProgram(path);
                                     }});
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    server_ = std::make_unique<Server>(dir_.path() / "server", JobManagerOptions{.programs = store_.get()});
  }
  void Upload(const std::string& name, const std::string& bytes) {
    auto upload = store_->BeginUpload(ProgramId(name),
                                      {.bytes = static_cast<int64_t>(bytes.size()), .xxh3 = HashHex(Hash64(bytes))});
    ASSERT_TRUE(upload.ok()) << upload.status();
    ASSERT_TRUE((*upload)->Append(bytes).ok());
    ASSERT_TRUE((*upload)->Finish().ok());
  }
  static CreateRequest Of(const std::string& id, const std::string& program) {
    CreateRequest request = Server::Request(id);
    request.spec.train.model.architecture = spec::Architecture::kProgram;
    request.spec.train.model.program = ProgramId(program);
    return request;
  }

  const TempDir dir_;
  FakeRunner describer_;
  std::unique_ptr<ProgramStore> store_;
  std::unique_ptr<Server> server_;
};

TEST_F(ProgramAdmissionTest, AJobKeepsItsProgramSoThatTheProgramMayGo) {
  Upload("mine", "program one");
  const auto made = (*server_)->Create(Of("first", "mine"));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->spec.train.model.program, ProgramId("mine"));
  EXPECT_TRUE(made->spec.train.model.program_file.empty()) << "no part of the job";
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), "").ok());
  Upload("mine", "program two");
  EXPECT_EQ(*ReadFile(server_->JobDirectory("first") / train::kProgramFile), "program one");
  (*server_)->Start();
  server_->AwaitEnd("first");
  EXPECT_EQ((*server_)->Get(JobId("first"))->state, JobState::kSucceeded);
}

TEST_F(ProgramAdmissionTest, AnUnknownProgramIsNotFoundAndLeavesNothing) {
  const absl::Status refused = (*server_)->Create(Of("first", "mine")).status();
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "PROGRAM_NOT_FOUND");
  EXPECT_FALSE(std::filesystem::exists(server_->JobDirectory("first")));
}

TEST_F(ProgramAdmissionTest, ARepeatedRequestIsAnsweredWhenTheProgramIsGone) {
  Upload("mine", "program one");
  CreateRequest request = Of("first", "mine");
  request.request_id = "again";
  ASSERT_TRUE((*server_)->Create(request).ok());
  ASSERT_TRUE(store_->Delete(ProgramId("mine"), "").ok());
  const auto repeated = (*server_)->Create(request);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->id, JobId("first"));
}

TEST_F(ProgramAdmissionTest, AServerWithoutProgramsSaysSo) {
  Server server(dir_.path() / "without");
  const absl::Status refused = server->Create(Of("first", "mine")).status();
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("no programs"));
}

TEST_F(ProgramAdmissionTest, AProgramGoesWithItsArchitectureAlone) {
  Upload("mine", "program one");
  CreateRequest request = Of("first", "mine");
  request.spec.train.model.architecture = spec::Architecture::kGine;
  EXPECT_THAT((*server_)->Create(request).status().message(), HasSubstr("model.program"));
  request = Of("first", "");
  EXPECT_THAT((*server_)->Create(request).status().message(), HasSubstr("model.program"));
}

}  // namespace
}  // namespace permafrost::jobs
