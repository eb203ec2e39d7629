// Tests calls with a request_id that are repeated after the daemon died.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;

class OnceOverDeath : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(backups_);
    daemon_ = std::make_unique<Daemon>(state_, ShippedSample(), flags_);
    ASSERT_TRUE(daemon_->ready());
    daemon_->Import("zinc", ShippedSample());
  }
  void KillIt() { KillAndRestart(daemon_, state_, ShippedSample(), flags_); }

  v1::CreateJobRequest JobOf(const std::string& id) {
    v1::CreateJobRequest request;
    request.set_job_id(id);
    request.set_request_id("create-" + id);
    request.mutable_spec()->set_dataset("datasets/zinc");
    request.mutable_spec()->set_epochs(50);
    return request;
  }

  const TempDir dir_;
  const fs::path state_ = dir_.path() / "state", backups_ = dir_.path() / "backups";
  const std::vector<std::string> flags_ = {"--backup-root", backups_.string()};
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(OnceOverDeath, ADeletedJobIsNotMadeAgain) {
  v1::Job job;
  google::protobuf::Empty empty;
  const v1::CreateJobRequest create = JobOf("a");
  grpc::ClientContext c1, c2, c3, c4;
  ASSERT_TRUE(daemon_->jobs().CreateJob(&c1, create, &job).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/a");
  ASSERT_TRUE(daemon_->jobs().CancelJob(&c2, cancel, &job).ok());
  daemon_->AwaitEnd("a");
  v1::DeleteJobRequest deletion;
  deletion.set_name("jobs/a");
  ASSERT_TRUE(daemon_->jobs().DeleteJob(&c3, deletion, &empty).ok());
  KillIt();
  const grpc::Status again = daemon_->jobs().CreateJob(&c4, create, &job);
  EXPECT_EQ(again.error_code(), grpc::StatusCode::NOT_FOUND) << again.error_message();
}

TEST_F(OnceOverDeath, AJobWhoseDatasetIsDeletedIsAnsweredAsItWasMade) {
  v1::CreateJobRequest create = JobOf("a");
  // Without its dataset, this model would be taken to predict for nodes.
  create.mutable_spec()->mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_GCN);
  v1::Job job;
  google::protobuf::Empty empty;
  {
    grpc::ClientContext c1, c2, c3;
    const grpc::Status made = daemon_->jobs().CreateJob(&c1, create, &job);
    ASSERT_TRUE(made.ok()) << made.error_message();
    EXPECT_TRUE(job.spec().has_batching());
    v1::CancelJobRequest cancel;
    cancel.set_name("jobs/a");
    ASSERT_TRUE(daemon_->jobs().CancelJob(&c2, cancel, &job).ok());
    daemon_->AwaitEnd("a");
    v1::DeleteDatasetRequest deletion;
    deletion.set_name("datasets/zinc");
    ASSERT_TRUE(daemon_->datasets().DeleteDataset(&c3, deletion, &empty).ok());
  }
  KillIt();
  v1::CreateJobRequest in_other_words = create;
  in_other_words.mutable_spec()->mutable_model()->set_pooling(job.spec().model().pooling());
  for (const v1::CreateJobRequest& request : {create, in_other_words}) {
    grpc::ClientContext context;
    const grpc::Status again = daemon_->jobs().CreateJob(&context, request, &job);
    EXPECT_TRUE(again.ok()) << again.error_message();
    EXPECT_EQ(job.name(), "jobs/a");
    EXPECT_TRUE(job.spec().has_batching());
  }
}

TEST_F(OnceOverDeath, DatasetsTokensAndBackupsAreChangedOnce) {
  v1::ImportDatasetRequest import;
  import.set_dataset_id("again");
  import.set_request_id("import");
  import.mutable_options()->set_source_path(ShippedSample());
  v1::DeleteDatasetRequest deletion;
  deletion.set_name("datasets/zinc");
  deletion.set_request_id("delete");
  v1::CreateTokenRequest token;
  token.set_request_id("token");
  token.mutable_token()->set_role(v1::Token::ROLE_VIEWER);
  v1::BackupRequest backup;
  backup.set_directory("one");
  backup.set_request_id("backup");
  v1::Dataset imported;
  v1::Token made;
  std::string token_name;
  int64_t files = 0;
  for (int pass = 0; pass < 2; ++pass) {
    google::protobuf::Empty empty;
    grpc::ClientContext c1, c2, c3, c4, c5;
    const grpc::Status accepted = daemon_->datasets().ImportDataset(&c1, import, &imported);
    EXPECT_TRUE(accepted.ok()) << accepted.error_message();
    EXPECT_EQ(imported.name(), "datasets/again");
    const grpc::Status deleted = daemon_->datasets().DeleteDataset(&c2, deletion, &empty);
    EXPECT_TRUE(deleted.ok()) << deleted.error_message();
    ASSERT_TRUE(daemon_->server().CreateToken(&c3, token, &made).ok());
    if (pass == 0) token_name = made.name();
    EXPECT_EQ(made.name(), token_name);
    auto reader = daemon_->server().Backup(&c4, backup);
    v1::BackupResponse response;
    v1::BackupSummary summary;
    while (reader->Read(&response)) summary = response.summary();
    const grpc::Status whole = reader->Finish();
    EXPECT_TRUE(whole.ok()) << whole.error_message();
    if (pass == 0) files = summary.files();
    EXPECT_EQ(summary.files(), files);
    v1::ListTokensResponse tokens;
    ASSERT_TRUE(daemon_->server().ListTokens(&c5, v1::ListTokensRequest(), &tokens).ok());
    EXPECT_EQ(tokens.tokens_size(), 1);
    if (pass == 0) {
      // Imports the dataset again. The repeated deletion of the next pass must leave it alone.
      daemon_->Import("zinc", ShippedSample());
      KillIt();
    }
  }
  v1::GetDatasetRequest get;
  get.set_name("datasets/zinc");
  grpc::ClientContext context;
  v1::Dataset zinc;
  EXPECT_TRUE(daemon_->datasets().GetDataset(&context, get, &zinc).ok()) << "imported since it was deleted";
}

TEST_F(OnceOverDeath, ADrainStopsOneServer) {
  v1::DrainRequest drain;
  drain.set_request_id("drain");
  v1::DrainResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(daemon_->server().Drain(&context, drain, &response).ok());
  }
  EXPECT_EQ(daemon_->process().Wait(absl::Seconds(60)), 0);
  daemon_ = std::make_unique<Daemon>(state_, ShippedSample(), flags_);
  ASSERT_TRUE(daemon_->ready());
  grpc::ClientContext again, info_context;
  EXPECT_TRUE(daemon_->server().Drain(&again, drain, &response).ok());
  v1::ServerInfo info;
  ASSERT_TRUE(daemon_->server().GetServerInfo(&info_context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.draining());
}

}  // namespace
}  // namespace permafrost::e2e
