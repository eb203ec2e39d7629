// Calls about datasets, tokens and the server that come again with their request_id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "access/token_store.h"
#include "api/request_key.h"
#include "api/server_fixture.h"
#include "google/rpc/error_details.pb.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

class OnceTest : public ServerTest {
 protected:
  void PutDataset(const std::string& id, int64_t seconds) {
    data::Dataset dataset;
    dataset.id = DatasetId(id);
    dataset.create_time = absl::FromUnixSeconds(seconds);
    catalog_.Put(dataset);
  }
  bool HasDataset(const std::string& id) { return catalog_.Get(DatasetId(id)).ok(); }
  grpc::Status DeleteDataset(const std::string& id, const std::string& request_id) {
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/" + id);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    google::protobuf::Empty empty;
    return dataset_stub_->DeleteDataset(&context, request, &empty);
  }
  // As a server leaves it that dies in the midst of a call.
  void Begin(const jobs::RequestKey& key, const std::string& subject) {
    ASSERT_TRUE(manager_.store().PutRequest(key, {.answered = false, .subject = subject}).ok());
  }
  jobs::RequestKey DeletionOf(const std::string& id, const std::string& request_id) {
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/" + id);
    request.set_request_id(request_id);
    return KeyOf(request);
  }
};

TEST_F(OnceTest, ADeletionOfADatasetLeavesTheNextOneOfItsName) {
  PutDataset("zinc", 5);
  ASSERT_TRUE(DeleteDataset("zinc", "one").ok());
  PutDataset("zinc", 9);
  EXPECT_TRUE(DeleteDataset("zinc", "one").ok());
  EXPECT_TRUE(HasDataset("zinc"));
  PutDataset("qm9", 5);
  const grpc::Status other = DeleteDataset("qm9", "one");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(other)->reason(), "REQUEST_ID_REUSED");
  EXPECT_TRUE(HasDataset("qm9"));
  EXPECT_EQ(DeleteDataset("none", "two").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(DeleteDataset("none", "two").error_code(), grpc::StatusCode::NOT_FOUND) << "what was refused is not kept";
}

TEST_F(OnceTest, ADeletionThatADeathInterruptedIsDoneOnce) {
  PutDataset("zinc", 5);
  Begin(DeletionOf("zinc", "one"), "5000000");
  EXPECT_TRUE(DeleteDataset("zinc", "one").ok());
  EXPECT_FALSE(HasDataset("zinc")) << "it was begun, and not done";
  Begin(DeletionOf("zinc", "two"), "5000000");
  EXPECT_TRUE(DeleteDataset("zinc", "two").ok()) << "it was done";
  PutDataset("zinc", 9);
  Begin(DeletionOf("zinc", "three"), "5000000");
  EXPECT_TRUE(DeleteDataset("zinc", "three").ok());
  EXPECT_TRUE(HasDataset("zinc")) << "what was imported since is another one";
}

TEST_F(OnceTest, AnImportIsBegunOnce) {
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options()->set_source_path("/data/zinc");
  request.set_request_id("one");
  const auto import = [&] {
    grpc::ClientContext context;
    v1::Dataset dataset;
    const grpc::Status status = dataset_stub_->ImportDataset(&context, request, &dataset);
    EXPECT_TRUE(!status.ok() || dataset.name() == "datasets/zinc");
    return status;
  };
  ASSERT_TRUE(import().ok());
  // What became of it since.
  ASSERT_TRUE(DeleteDataset("zinc", "").ok());
  const grpc::Status gone = import();
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_FALSE(HasDataset("zinc")) << "it is not imported again";
  // Begun by a server that died once it had been accepted, and by one that died before.
  request.set_request_id("two");
  Begin(KeyOf(request), "");
  PutDataset("zinc", 9);
  EXPECT_TRUE(import().ok());
  EXPECT_EQ(catalog_.Get(DatasetId("zinc"))->create_time, absl::FromUnixSeconds(9));
  ASSERT_TRUE(DeleteDataset("zinc", "").ok());
  request.set_request_id("three");
  Begin(KeyOf(request), "");
  EXPECT_TRUE(import().ok());
  EXPECT_TRUE(HasDataset("zinc"));
}

TEST_F(OnceTest, ADrainThatComesAgainToTheNextServerDrainsNothing) {
  v1::DrainRequest request;
  request.set_request_id("one");
  ASSERT_TRUE(manager_.store().PutRequest(KeyOf(request), {}).ok());
  const auto drain = [&] {
    grpc::ClientContext context;
    v1::DrainResponse response;
    return server_stub_->Drain(&context, request, &response);
  };
  EXPECT_TRUE(drain().ok());
  EXPECT_FALSE(manager_.draining());
  request.set_request_id("two");
  EXPECT_TRUE(drain().ok());
  EXPECT_TRUE(drain_requested_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(manager_.draining());
  EXPECT_TRUE(drain().ok()) << "while it drains it is answered as it was";
}

class TokenOnceTest : public OnceTest {
 protected:
  void SetUp() override {
    tokens_ = *access::TokenStore::Open(dir_.path() / "tokens.json");
    store_of_tokens_ = tokens_.get();
    OnceTest::SetUp();
  }
  absl::StatusOr<v1::Token> Create(const std::string& request_id) {
    v1::CreateTokenRequest request;
    request.mutable_token()->set_role(v1::Token::ROLE_VIEWER);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    v1::Token token;
    const grpc::Status status = server_stub_->CreateToken(&context, request, &token);
    if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    return token;
  }
  grpc::Status Revoke(const std::string& name, const std::string& request_id) {
    v1::RevokeTokenRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    google::protobuf::Empty empty;
    return server_stub_->RevokeToken(&context, request, &empty);
  }

  const TempDir dir_;
  std::unique_ptr<access::TokenStore> tokens_;
};

TEST_F(TokenOnceTest, OneTokenIsMadeAndItsLastSecretCounts) {
  const v1::Token first = *Create("one");
  const v1::Token again = *Create("one");
  EXPECT_EQ(again.name(), first.name());
  EXPECT_EQ(tokens_->List().size(), 1U);
  EXPECT_FALSE(tokens_->Find(first.secret()));
  EXPECT_TRUE(tokens_->Find(again.secret()));
  // Another server knows it as well, from the file.
  EXPECT_TRUE((*access::TokenStore::Open(dir_.path() / "tokens.json"))->ChangeSecret("one").ok());
  ASSERT_TRUE(Revoke(first.name(), "revoke").ok());
  EXPECT_TRUE(Revoke(first.name(), "revoke").ok());
  EXPECT_EQ(Revoke(first.name(), "another").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Create("one").status().code(), absl::StatusCode::kNotFound) << "it was revoked since";
  EXPECT_TRUE(tokens_->List().empty());
}

TEST_F(TokenOnceTest, OneThatADeathInterruptedIsMadeOnce) {
  v1::CreateTokenRequest request;
  request.mutable_token()->set_role(v1::Token::ROLE_VIEWER);
  request.set_request_id("one");
  Begin(KeyOf(request), "");
  const v1::Token made = *Create("one");
  EXPECT_EQ(tokens_->List().size(), 1U);
  request.set_request_id("two");
  Begin(KeyOf(request), "");
  const auto before = tokens_->Create(access::Role::kViewer, "", absl::InfiniteFuture(), "two");
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(Create("two")->name(), "tokens/" + before->token.id) << "it was on disk already";
  EXPECT_EQ(tokens_->List().size(), 2U);
}

}  // namespace
}  // namespace permafrost::api
