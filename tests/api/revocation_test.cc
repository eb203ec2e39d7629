// Tests streams whose callers lose the right to call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "api/token_server.h"
#include "data/catalog/upload_store.h"
#include "google/rpc/error_details.pb.h"

namespace permafrost::api {
namespace {

class RevocationTest : public TokenServerTest {
 protected:
  void SetUp() override {
    files_ = *data::UploadStore::Create({.directory = dir_.path() / "uploads", .max_bytes = 1 << 20});
    uploads_ = files_.get();
    TokenServerTest::SetUp();
    revoked_ = *tokens_->Create(access::Role::kOperator, "revoked", absl::InfiniteFuture());
    kept_ = *tokens_->Create(access::Role::kOperator, "kept", absl::InfiniteFuture());
  }
  static void Give(grpc::ClientContext& context, const access::TokenStore::Made& token) {
    context.AddMetadata("authorization", absl::StrCat("Bearer ", token.secret));
  }
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(grpc::ClientContext& context) {
    v1::WatchJobRequest request;
    request.set_name("jobs/a");
    return job_stub_->WatchJob(&context, request);
  }
  void ExpectRefused(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
    const auto info = Detail<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->reason(), "TOKEN_NOT_VALID");
    EXPECT_EQ(info->domain(), "permafrost.dev");
  }

  std::unique_ptr<data::UploadStore> files_;
  access::TokenStore::Made revoked_, kept_;
};

TEST_F(RevocationTest, AStreamEndsWithItsTokenAndOthersGoOn) {
  grpc::ClientContext first_context, second_context;
  Give(first_context, revoked_);
  Give(second_context, kept_);
  const auto first = Watch(first_context), second = Watch(second_context);
  v1::Job got;
  ASSERT_TRUE(first->Read(&got));
  ASSERT_TRUE(second->Read(&got));
  ASSERT_TRUE(tokens_->Revoke(revoked_.token.id).ok());
  EXPECT_FALSE(first->Read(&got));
  ExpectRefused(first->Finish());
  jobs_.Succeed();
  EXPECT_TRUE(second->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_FALSE(second->Read(&got));
  EXPECT_TRUE(second->Finish().ok());
}

TEST_F(RevocationTest, AStreamEndsWhenItsTokenExpires) {
  const auto brief = tokens_->Create(access::Role::kViewer, "brief", absl::Now() + absl::Seconds(5));
  ASSERT_TRUE(brief.ok());
  grpc::ClientContext context;
  Give(context, *brief);
  const auto reader = Watch(context);
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_FALSE(reader->Read(&got));
  ExpectRefused(reader->Finish());
}

TEST_F(RevocationTest, AStreamThatNobodyReadsEndsToo) {
  // Larger than the buffers of flow control, so that the write waits.
  graphcache::Snapshot large;
  large.freeze_point.no_formula_reason = std::string(4 << 20, 'x');
  run_->OnGraphCache(large, nullptr);
  grpc::ClientContext context;
  Give(context, revoked_);
  v1::WatchGraphCacheRequest request;
  request.set_name("jobs/a/graphCache");
  const auto reader = cache_stub_->WatchGraphCache(&context, request);
  ASSERT_TRUE(jobs_.AwaitWatchers(1));
  ASSERT_TRUE(tokens_->Revoke(revoked_.token.id).ok());
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
  v1::GraphCache got;
  while (reader->Read(&got)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RevocationTest, AnUploadEndsWithItsToken) {
  grpc::ClientContext context;
  Give(context, revoked_);
  v1::Upload response;
  const auto writer = dataset_stub_->UploadDataset(&context, &response);
  v1::UploadDatasetRequest request;
  request.mutable_start()->set_name("uploads/u1");
  auto* file = request.mutable_start()->add_files();
  file->set_path("edges.csv");
  file->set_bytes(10);
  file->set_xxh3("0123456789abcdef");
  ASSERT_TRUE(writer->Write(request));
  // Waits for the call to reach the server. Before that, gRPC's hook would refuse it without details.
  while (!std::filesystem::exists(dir_.path() / "uploads/u1")) absl::SleepFor(absl::Milliseconds(1));
  ASSERT_TRUE(tokens_->Revoke(revoked_.token.id).ok());
  ExpectRefused(writer->Finish());
}

}  // namespace
}  // namespace permafrost::api
