// Tests the rules of the stream of UploadDataset. UploadStore handles the bytes. The Python package has tests of both
// in the real daemon.
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "file_size_limit.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

using ::testing::HasSubstr;

class UploadTest : public ServerTest {
 protected:
  void SetUp() override {
    auto store = data::UploadStore::Create({.directory = dir_.path() / "uploads"});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    uploads_ = store_.get();
    ServerTest::SetUp();
  }
  void TearDown() override { server_.reset(); }

  struct Call {
    grpc::ClientContext context;
    v1::Upload answer;
    std::unique_ptr<grpc::ClientWriter<v1::UploadDatasetRequest>> writer;

    bool Start(const std::string& name, const std::string& request_id = "") const {
      v1::UploadDatasetRequest request;
      request.mutable_start()->set_name(name);
      request.mutable_start()->set_request_id(request_id);
      auto* file = request.mutable_start()->add_files();
      file->set_path("a");
      file->set_bytes(5);
      file->set_xxh3(HashHex(Hash64("hello")));
      return writer->Write(request);
    }
    bool Send(const std::string& data) const {
      v1::UploadDatasetRequest request;
      request.mutable_chunk()->set_data(data);
      request.mutable_chunk()->set_xxh3(Hash64(data));
      return writer->Write(request);
    }
    grpc::Status End() const {
      writer->WritesDone();
      return writer->Finish();
    }
  };
  std::unique_ptr<Call> Open() {
    auto call = std::make_unique<Call>();
    call->writer = dataset_stub_->UploadDataset(&call->context, &call->answer);
    return call;
  }

  TempDir dir_;
  std::unique_ptr<data::UploadStore> store_;
};

TEST_F(UploadTest, AnswersWhatHasCome) {
  const auto call = Open();
  ASSERT_TRUE(call->Start("uploads/mine"));
  ASSERT_TRUE(call->Send("hello"));
  const grpc::Status status = call->End();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(call->answer.name(), "uploads/mine");
  ASSERT_EQ(call->answer.files_size(), 1);
  EXPECT_EQ(call->answer.files(0).path(), "a");
  EXPECT_EQ(call->answer.files(0).received_bytes(), 5);
  EXPECT_TRUE(call->answer.complete());
  EXPECT_TRUE(counts_.Await("DatasetService/UploadDataset OK", 1));
}

TEST_F(UploadTest, OneThatCameIsAnsweredAgainUnlessItIsKnownFromABackupAlone) {
  const auto come = [this] {
    auto call = Open();
    EXPECT_TRUE(call->Start("uploads/mine", "one"));
    call->Send("hello");  // fails if the upload was already complete
    const grpc::Status status = call->End();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(call->answer.complete());
  };
  come();
  come();
  // This is the state after a restore: the store has the records of requests, but no uploads.
  ASSERT_TRUE(store_->Delete(UploadId("mine")).ok());
  come();
  EXPECT_TRUE(store_->Source(UploadId("mine")).ok()) << "its bytes are here";
}

TEST_F(UploadTest, AStoppingServerEndsItAndKeepsWhatHasCome) {
  const auto call = Open();
  ASSERT_TRUE(call->Start("uploads/mine"));
  ASSERT_TRUE(call->Send("hello"));
  const auto arrived = [this] {
    std::error_code error;
    return std::filesystem::file_size(dir_.path() / "uploads/mine/files/a", error) == 5;
  };
  for (int i = 0; i < 6'000 && !arrived(); ++i) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_TRUE(arrived());
  server_->Shutdown(kPatience);
  const grpc::Status status = call->writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
  const auto writer = store_->Open(UploadId("mine"), {{.path = "a", .bytes = 5, .xxh3 = HashHex(Hash64("hello"))}});
  ASSERT_TRUE(writer.ok()) << "no call holds it: " << writer.status();
  EXPECT_EQ((*writer)->received()[0], 5);
}

TEST_F(UploadTest, AFullDiskIsWaitedFor) {
  {
    const auto call = Open();
    ASSERT_TRUE(call->Start("uploads/mine"));
    ASSERT_TRUE(call->End().ok());
    const FileSizeLimit full(3);
    const auto next = Open();
    ASSERT_TRUE(next->Start("uploads/mine"));
    next->Send("hello");
    const grpc::Status status = next->writer->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
  }
  const auto call = Open();
  ASSERT_TRUE(call->Start("uploads/mine"));
  ASSERT_TRUE(call->End().ok());
  EXPECT_EQ(call->answer.files(0).received_bytes(), 3);
}

TEST_F(UploadTest, AClientThatGoesAwayLeavesTheUploadToTheNext) {
  {
    const auto call = Open();
    ASSERT_TRUE(call->Start("uploads/mine"));
    while (!std::filesystem::exists(dir_.path() / "uploads/mine")) absl::SleepFor(absl::Milliseconds(1));
    call->context.TryCancel();
    EXPECT_EQ(call->writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The call's code on the server differs if the end of the requests arrives before the cancel, so any code will do.
  for (int i = 0; i < 6'000 && counts_.all().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(counts_.all().empty()) << "it has not ended";
  const auto call = Open();
  ASSERT_TRUE(call->Start("uploads/mine"));
  EXPECT_TRUE(call->End().ok());
}

class IdleUploadTest : public UploadTest {
 protected:
  IdleUploadTest() { limits_.unread = absl::Seconds(2); }
};

TEST_F(IdleUploadTest, OneThatSendsNothingIsEnded) {
  const auto call = Open();
  ASSERT_TRUE(call->Start("uploads/mine"));
  const grpc::Status status = call->writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("nothing came for 2s"));
}

class NarrowUploadTest : public UploadTest {
 protected:
  NarrowUploadTest() { limits_.uploads = 1; }
};

TEST_F(NarrowUploadTest, OneTooManyIsRefused) {
  const auto first = Open();
  ASSERT_TRUE(first->Start("uploads/first"));
  // Waits, because the server may serve calls in another order than they were made.
  while (!std::filesystem::exists(dir_.path() / "uploads/first")) absl::SleepFor(absl::Milliseconds(1));
  const auto second = Open();
  second->Start("uploads/second");
  const grpc::Status status = second->writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status).has_value());
  EXPECT_TRUE(first->End().ok());
}

TEST_F(ServerTest, WithoutAStoreThereAreNoUploads) {
  grpc::ClientContext context;
  v1::Upload answer;
  const auto writer = dataset_stub_->UploadDataset(&context, &answer);
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(UploadTest, ImportsOfAnUploadAreOfItsFolder) {
  v1::ImportDatasetRequest request;
  request.set_dataset_id("zinc");
  request.mutable_options();
  const auto import = [&] {
    grpc::ClientContext context;
    v1::Dataset dataset;
    return dataset_stub_->ImportDataset(&context, request, &dataset);
  };
  request.set_upload("uploads/None");
  EXPECT_EQ(import().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_upload("uploads/none");
  EXPECT_EQ(import().error_code(), grpc::StatusCode::NOT_FOUND);
  {
    const auto call = Open();
    ASSERT_TRUE(call->Start("uploads/mine"));
    ASSERT_TRUE(call->Send("hello"));
    ASSERT_TRUE(call->End().ok());
  }
  request.set_upload("uploads/mine");
  request.mutable_options()->set_source_path("../upload.json");
  EXPECT_THAT(import().error_message(), HasSubstr("../upload.json is not a path in the upload"));
  request.mutable_options()->set_source_path("a");
  EXPECT_TRUE(import().ok());
  EXPECT_EQ(jobs_.catalog().Get(DatasetId("zinc"))->options.source, dir_.path() / "uploads/mine/files/a");
}

TEST_F(UploadTest, AListTellsWhatIsThereAPageAtATime) {
  const auto list = [this](int page_size, const std::string& token) {
    grpc::ClientContext context;
    v1::ListUploadsRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    v1::ListUploadsResponse response;
    const grpc::Status status = dataset_stub_->ListUploads(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  for (const char* name : {"uploads/a", "uploads/b"}) {
    const auto call = Open();
    ASSERT_TRUE(call->Start(name));
    if (std::string(name) == "uploads/a") {
      EXPECT_TRUE(call->Send("hello"));
    }
    EXPECT_TRUE(call->End().ok());
  }
  const v1::ListUploadsResponse first = list(1, "");
  ASSERT_EQ(first.uploads_size(), 1);
  EXPECT_EQ(first.uploads(0).name(), "uploads/a");
  EXPECT_TRUE(first.uploads(0).complete());
  EXPECT_EQ(first.uploads(0).num_files(), 1);
  EXPECT_EQ(first.uploads(0).bytes(), 5);
  EXPECT_EQ(first.uploads(0).received_bytes(), 5);
  EXPECT_TRUE(first.uploads(0).has_last_use_time());
  EXPECT_EQ(first.counted_bytes(), 10);
  EXPECT_EQ(first.max_bytes(), int64_t{16} << 30);
  const v1::ListUploadsResponse second = list(1, first.next_page_token());
  ASSERT_EQ(second.uploads_size(), 1);
  EXPECT_EQ(second.uploads(0).name(), "uploads/b");
  EXPECT_FALSE(second.uploads(0).complete());
  EXPECT_EQ(second.uploads(0).received_bytes(), 0);
  EXPECT_EQ(second.uploads(0).counted_bytes(), 5) << "room is kept for it";
  EXPECT_EQ(second.next_page_token(), "");
  grpc::ClientContext context;
  v1::ListUploadsRequest request;
  request.set_page_token("of another list");
  v1::ListUploadsResponse response;
  EXPECT_EQ(dataset_stub_->ListUploads(&context, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace permafrost::api
