// Tests calls about datasets, tokens and the server that are repeated with their request_id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "access/token_store.h"
#include "api/server_fixture.h"
#include "api/wire/convert_job.h"
#include "api/wire/request_key.h"
#include "google/rpc/error_details.pb.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

class OnceTest : public ServerTest {
 protected:
  // All datasets have the same creation time, so only the uid distinguishes them.
  void PutDataset(const std::string& id, const std::string& uid) {
    data::Dataset dataset;
    dataset.id = DatasetId(id);
    dataset.create_time = absl::FromUnixSeconds(9);
    dataset.uid = uid;
    jobs_.catalog().Put(dataset);
  }
  bool HasDataset(const std::string& id) { return jobs_.catalog().Get(DatasetId(id)).ok(); }
  grpc::Status DeleteDataset(const std::string& id, const std::string& request_id) {
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/" + id);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    google::protobuf::Empty empty;
    return dataset_stub_->DeleteDataset(&context, request, &empty);
  }
  // Leaves a request's record as a server does that dies in the middle of the call.
  void Begin(const jobs::RequestKey& key, const std::string& subject) {
    Put(key, {.answered = false, .subject = subject});
  }
  void Put(const jobs::RequestKey& key, const jobs::RequestRecord& record) {
    ASSERT_TRUE((*jobs::JobStore::Open(jobs_.state_dir() / "permafrost.db"))->PutRequest(key, record).ok());
  }
  jobs::RequestKey DeletionOf(const std::string& id, const std::string& request_id) {
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/" + id);
    request.set_request_id(request_id);
    return KeyOf(request);
  }
};

TEST_F(OnceTest, ADeletionOfADatasetLeavesTheNextOneOfItsName) {
  PutDataset("zinc", "5000000");
  ASSERT_TRUE(DeleteDataset("zinc", "one").ok());
  PutDataset("zinc", "9000000");
  EXPECT_TRUE(DeleteDataset("zinc", "one").ok());
  EXPECT_TRUE(HasDataset("zinc"));
  PutDataset("qm9", "5000000");
  const grpc::Status other = DeleteDataset("qm9", "one");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(other)->reason(), "REQUEST_ID_REUSED");
  EXPECT_TRUE(HasDataset("qm9"));
  EXPECT_EQ(DeleteDataset("none", "two").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(DeleteDataset("none", "two").error_code(), grpc::StatusCode::NOT_FOUND) << "what was refused is not kept";
}

TEST_F(OnceTest, ADeletionThatADeathInterruptedIsDoneOnce) {
  PutDataset("zinc", "5000000");
  Begin(DeletionOf("zinc", "one"), "5000000");
  EXPECT_TRUE(DeleteDataset("zinc", "one").ok());
  EXPECT_FALSE(HasDataset("zinc")) << "it was begun, and not done";
  Begin(DeletionOf("zinc", "two"), "5000000");
  EXPECT_TRUE(DeleteDataset("zinc", "two").ok()) << "it was done";
  PutDataset("zinc", "9000000");
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
  // The dataset is deleted before the call is repeated.
  ASSERT_TRUE(DeleteDataset("zinc", "").ok());
  const grpc::Status gone = import();
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_FALSE(HasDataset("zinc")) << "it is not imported again";
  // Request `two` was begun by a server that died after the catalog accepted the import. Request `three` was begun by
  // one that died before that.
  request.set_request_id("two");
  Begin(KeyOf(request), "");
  PutDataset("zinc", "9000000");
  EXPECT_TRUE(import().ok());
  EXPECT_EQ(jobs_.catalog().Get(DatasetId("zinc"))->create_time, absl::FromUnixSeconds(9));
  ASSERT_TRUE(DeleteDataset("zinc", "").ok());
  request.set_request_id("three");
  Begin(KeyOf(request), "");
  EXPECT_TRUE(import().ok());
  EXPECT_TRUE(HasDataset("zinc"));
}

TEST_F(OnceTest, ADrainThatComesAgainToTheNextServerDrainsNothing) {
  v1::DrainRequest request;
  request.set_request_id("one");
  Put(KeyOf(request), {});
  const auto drain = [&] {
    grpc::ClientContext context;
    v1::DrainResponse response;
    return server_stub_->Drain(&context, request, &response);
  };
  EXPECT_TRUE(drain().ok());
  EXPECT_FALSE(jobs_->draining());
  request.set_request_id("two");
  EXPECT_TRUE(drain().ok());
  EXPECT_TRUE(drain_requested_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(jobs_->draining());
  EXPECT_TRUE(drain().ok()) << "while it drains it is answered as it was";
}

TEST_F(OnceTest, AJobIsReadByWhatItsDatasetWasToIt) {
  v1::CreateJobRequest request;
  request.set_job_id("links");
  request.set_request_id("one");
  request.mutable_spec()->set_dataset("datasets/given");
  request.mutable_spec()->mutable_link_prediction()->set_valid_part(0.1);
  v1::Job job;
  const auto create = [&] {
    grpc::ClientContext context;
    return job_stub_->CreateJob(&context, request, &job);
  };
  const data::GraphSummary bare;
  data::GraphSummary divides;
  divides.links.given = true;
  jobs_.catalog().PutGraph("given", bare);
  const grpc::Status made = create();
  ASSERT_TRUE(made.ok()) << made.error_message();
  // By now the name belongs to another dataset, which divides its links. In a new call, valid_part would be a bad
  // field.
  jobs_.catalog().PutGraph("given", divides);
  EXPECT_TRUE(create().ok());
  EXPECT_EQ(job.name(), "jobs/links");
  request.mutable_spec()->mutable_link_prediction()->set_split(v1::LinkPrediction::SPLIT_DRAWN);
  EXPECT_TRUE(create().ok()) << "in other words";
  EXPECT_FALSE(jobs_.Get("links").spec.train.links.given);
  request.set_request_id("two");
  request.mutable_spec()->mutable_link_prediction()->clear_split();
  EXPECT_EQ(create().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(LevelsOfAJob, AreWhatTheyWereWhenItWasMade) {
  using jobs::DatasetTraits;
  constexpr spec::ModelLevel kNode = spec::ModelLevel::kNode;
  const auto OfName = [](DatasetTraits traits, const std::string& uid, absl::Time create_time) {
    traits.uid = uid;
    traits.create_time = create_time;
    return traits;
  };
  const DatasetTraits bare{.level = kNode};
  const absl::Time made = absl::FromUnixSeconds(1'700'000'000);
  const absl::Time before = made - absl::Seconds(1), after = made + absl::Seconds(1);
  const DatasetTraits divides{.level = kNode, .gives_links = true, .uid = "a", .create_time = before};
  // Jobs of older versions recorded no uid, so these traits have none. Other cases below cover a clock that was set
  // back.
  const DatasetTraits divided{.level = kNode, .gives_links = true, .uid = "", .create_time = before};
  const struct {
    const char* why;
    std::optional<DatasetTraits> now;
    bool drawn_first, answered;
    DatasetTraits first;
  } kCases[] = {
      {"drawn, and the dataset divides them", divides, true, false, divides},
      {"divided by the dataset, which is still the same", divides, false, true, divides},
      {"drawn, and the dataset is gone", std::nullopt, true, true, divides},
      {"divided by the dataset, which is gone", std::nullopt, false, true, divides},
      {"drawn, and another dataset, of the same moment", OfName(divides, "b", before), true, true, divides},
      {"divided by the dataset, and another one of a clock set back", OfName(bare, "b", before), false, true, divides},
      {"drawn, and the same dataset on a clock set back", OfName(divides, "a", after), true, false, divides},
      {"an older job, and the dataset divides them", divided, true, false, divided},
      {"an older job, and another dataset by the time", OfName(divides, "b", after), true, true, divided},
      {"an older job, divided, and another dataset by the time", OfName(bare, "b", after), false, true, divided},
      {"an older job, and what may be the same by the time", OfName(divides, "b", before), true, false, divided},
  };
  for (const auto& c : kCases) {
    v1::CreateJobRequest request;
    request.set_job_id("links");
    request.mutable_spec()->set_dataset("datasets/given");
    v1::LinkPrediction& links = *request.mutable_spec()->mutable_link_prediction();
    links.set_split(c.drawn_first ? v1::LinkPrediction::SPLIT_DRAWN : v1::LinkPrediction::SPLIT_DATASET);
    const auto first = CreateRequestFromWire(request, {}, [&](const DatasetId&) { return c.first; });
    ASSERT_TRUE(first.ok()) << c.why << ": " << first.status();
    jobs::Job job;
    job.spec = first->spec;
    job.dataset_uid = c.first.uid;
    job.create_time = made;
    // The second request says the same in other words.
    links.clear_split();
    const auto second = CreateRequestFromWire(request, {}, LevelsOf([&](const DatasetId&) { return c.now; }, job));
    ASSERT_TRUE(second.ok()) << c.why << ": " << second.status();
    EXPECT_EQ(second->spec.train.links.given != c.drawn_first, c.answered) << c.why;
  }
}

class BackupOnceTest : public OnceTest {
 protected:
  void SetUp() override {
    make_backup_ = [this](const BackupCall& call, const backup::OnProgress&) -> absl::StatusOr<backup::Summary> {
      if (call.request_id == "one" && !began_.HasBeenNotified()) {
        began_.Notify();
        may_end_.WaitForNotification();
      }
      return backup::Summary{.path = "/backups/" + call.directory, .jobs = call.answered ? 1 : 0};
    };
    OnceTest::SetUp();
  }
  struct Made {
    grpc::Status status;
    v1::BackupSummary summary;
  };
  Made Back(const std::string& request_id) {
    v1::BackupRequest request;
    request.set_directory("one");
    request.set_request_id(request_id);
    grpc::ClientContext context;
    const auto reader = server_stub_->Backup(&context, request);
    Made made;
    v1::BackupResponse response;
    while (reader->Read(&response)) made.summary = response.summary();
    made.status = reader->Finish();
    return made;
  }

  absl::Notification began_, may_end_;
};

TEST_F(BackupOnceTest, OneThatComesAgainWhileItIsMadeIsToldToWait) {
  Made first;
  std::thread caller([&] { first = Back("one"); });
  began_.WaitForNotification();
  const Made again = Back("one");
  may_end_.Notify();
  caller.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(again.status.error_code(), grpc::StatusCode::UNAVAILABLE) << again.status.error_message();
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(again.status)->reason(), "REQUEST_UNDER_WAY");
  const Made later = Back("one");
  EXPECT_TRUE(later.status.ok()) << later.status.error_message();
  EXPECT_EQ(later.summary.jobs(), 1) << "answered as it was";
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
  // A new server knows the request too, from the file.
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
