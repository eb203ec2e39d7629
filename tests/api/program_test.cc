// Tests ProgramService over a real port, with a real ProgramStore.
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "google/rpc/error_details.pb.h"
#include "permafrost/v1/program.grpc.pb.h"
#include "server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProgramTest : public ServerTest {
 protected:
  void SetUp() override {
    auto store = jobs::ProgramStore::Open(
        {.directory = dir_.path() / "programs",
         .describe = [this](const std::filesystem::path& path) { return describer_.DescribeProgram(path); },
         .max_bytes = uint64_t{4} << 20});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    programs_ = store_.get();
    ServerTest::SetUp();
    stub_ = v1::ProgramService::NewStub(channel_);
  }
  void TearDown() override { server_.reset(); }

  struct Call {
    grpc::ClientContext context;
    v1::Program answer;
    std::unique_ptr<grpc::ClientWriter<v1::UploadProgramRequest>> writer;

    void Start(const std::string& name, const std::string& archive, const std::string& request_id = "") const {
      v1::UploadProgramRequest request;
      v1::ProgramStart& start = *request.mutable_start();
      start.set_name(name);
      start.set_bytes(static_cast<int64_t>(archive.size()));
      start.set_xxh3(HashHex(Hash64(archive)));
      start.set_request_id(request_id);
      writer->Write(request);
    }
    // Sends pieces of at most `piece` bytes, until the server answers.
    void Send(const std::string& data, size_t piece = 512 << 10) const {
      v1::UploadProgramRequest request;
      for (size_t at = 0; at < data.size(); at += piece) {
        request.set_data(data.substr(at, piece));
        if (!writer->Write(request)) return;
      }
    }
    grpc::Status End() const {
      writer->WritesDone();
      return writer->Finish();
    }
  };
  std::unique_ptr<Call> Open() {
    auto call = std::make_unique<Call>();
    call->writer = stub_->UploadProgram(&call->context, &call->answer);
    return call;
  }
  grpc::Status Upload(const std::string& name, const std::string& archive, v1::Program* answer = nullptr,
                      const std::string& request_id = "") {
    const auto call = Open();
    call->Start(name, archive, request_id);
    call->Send(archive);
    const grpc::Status status = call->End();
    if (answer != nullptr) *answer = call->answer;
    return status;
  }
  grpc::Status Get(const std::string& name, v1::Program& program) {
    grpc::ClientContext context;
    v1::GetProgramRequest request;
    request.set_name(name);
    return stub_->GetProgram(&context, request, &program);
  }
  grpc::Status Delete(const std::string& name, const std::string& etag = "", const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::DeleteProgramRequest request;
    request.set_name(name);
    request.set_etag(etag);
    request.set_request_id(request_id);
    google::protobuf::Empty empty;
    return stub_->DeleteProgram(&context, request, &empty);
  }
  static std::string ReasonOf(const grpc::Status& status) {
    const auto info = Detail<google::rpc::ErrorInfo>(status);
    return info ? info->reason() : "";
  }
  std::vector<std::string> OnDisk() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path() / "programs")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  // Waits, because an ended call may still be removing its files.
  void AwaitNothingOnDisk() const {
    for (int i = 0; i < 6'000 && !OnDisk().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_THAT(OnDisk(), IsEmpty());
  }

  TempDir dir_;
  jobs::FakeRunner describer_;
  std::unique_ptr<jobs::ProgramStore> store_;
  std::unique_ptr<v1::ProgramService::Stub> stub_;
};

TEST_F(ProgramTest, AnUploadInPiecesIsAnsweredWithAllThatIsKnown) {
  const std::string archive = "program " + std::string(3 << 20, 'w');
  v1::Program uploaded;
  const grpc::Status status = Upload("programs/mine", archive, &uploaded);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(uploaded.name(), "programs/mine");
  EXPECT_EQ(uploaded.bytes(), static_cast<int64_t>(archive.size()));
  EXPECT_EQ(uploaded.xxh3(), HashHex(Hash64(archive)));
  EXPECT_TRUE(uploaded.has_create_time());
  EXPECT_FALSE(uploaded.etag().empty());
  EXPECT_EQ(uploaded.torch_version(), "2.13.0");
  EXPECT_EQ(uploaded.num_parameters(), 9);
  ASSERT_EQ(uploaded.forms_size(), 1);
  const v1::Program::Form& form = uploaded.forms(0);
  EXPECT_EQ(form.name(), "model");
  ASSERT_EQ(form.inputs_size(), 2);
  EXPECT_EQ(form.inputs(0).name(), "x");
  EXPECT_EQ(form.inputs(0).type(), "float32[N, 9]");
  EXPECT_EQ(form.inputs(1).type(), "int");
  ASSERT_EQ(form.outputs_size(), 1);
  EXPECT_EQ(form.outputs(0).type(), "float32[G, 1]");
  EXPECT_EQ(form.num_nodes(), 2);
  EXPECT_THAT(form.operators(), ElementsAre("aten.add.Tensor", "aten.linear.default"));
  ASSERT_EQ(uploaded.tensors_size(), 2);
  EXPECT_EQ(uploaded.tensors(0).name(), "lin.weight");
  EXPECT_EQ(uploaded.tensors(0).kind(), v1::Program::Tensor::KIND_PARAMETER);
  EXPECT_EQ(uploaded.tensors(0).type(), "float32[1, 9]");
  EXPECT_TRUE(uploaded.tensors(0).trained());
  EXPECT_TRUE(uploaded.tensors(0).persistent());
  EXPECT_EQ(uploaded.tensors(1).kind(), v1::Program::Tensor::KIND_BUFFER);
  EXPECT_FALSE(uploaded.tensors(1).trained());
  v1::Program got;
  ASSERT_TRUE(Get("programs/mine", got).ok());
  EXPECT_EQ(got.SerializeAsString(), uploaded.SerializeAsString());
  EXPECT_TRUE(counts_.Await("ProgramService/UploadProgram OK", 1));
}

TEST_F(ProgramTest, AnEqualArchiveIsAnsweredAndAnotherRefused) {
  v1::Program first, again;
  ASSERT_TRUE(Upload("programs/mine", "program one", &first).ok());
  const grpc::Status equal = Upload("programs/mine", "program one", &again);
  ASSERT_TRUE(equal.ok()) << equal.error_message();
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  const grpc::Status other = Upload("programs/mine", "program two");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS) << other.error_message();
  EXPECT_EQ(ReasonOf(other), "PROGRAM_ALREADY_EXISTS");
}

TEST_F(ProgramTest, ARepeatedUploadDoesNotBringADeletedProgramBack) {
  ASSERT_TRUE(Upload("programs/mine", "program one", nullptr, "one").ok());
  ASSERT_TRUE(Upload("programs/mine", "program one", nullptr, "one").ok());
  ASSERT_TRUE(Delete("programs/mine").ok());
  const grpc::Status late = Upload("programs/mine", "program one", nullptr, "one");
  EXPECT_EQ(late.error_code(), grpc::StatusCode::NOT_FOUND) << late.error_message();
  EXPECT_TRUE(Upload("programs/mine", "program one", nullptr, "two").ok());
}

TEST_F(ProgramTest, ARepeatedDeletionSparesTheNextOfItsName) {
  ASSERT_TRUE(Upload("programs/mine", "program one").ok());
  ASSERT_TRUE(Delete("programs/mine", "", "gone").ok());
  ASSERT_TRUE(Upload("programs/mine", "program two").ok());
  EXPECT_TRUE(Delete("programs/mine", "", "gone").ok());
  v1::Program program;
  EXPECT_TRUE(Get("programs/mine", program).ok());
}

TEST_F(ProgramTest, ABadStreamLeavesNothingAndSaysWhy) {
  const struct {
    const char* why;
    std::string declared, sent;
    grpc::StatusCode code;
    const char* message;
  } kCases[] = {
      {"a wrong checksum", "program one", "program 0ne", grpc::StatusCode::DATA_LOSS, "XXH3"},
      {"too short", "program one", "program", grpc::StatusCode::INVALID_ARGUMENT, "7 bytes came"},
      {"too long", "program one", "program one!", grpc::StatusCode::INVALID_ARGUMENT, "12 bytes came"},
      {"no program", "a cake", "a cake", grpc::StatusCode::INVALID_ARGUMENT, "no archive of torch.export"},
      {"too large", std::string(5 << 20, 'p'), "", grpc::StatusCode::RESOURCE_EXHAUSTED, "all programs may take"},
  };
  for (const auto& c : kCases) {
    const auto call = Open();
    call->Start("programs/mine", c.declared);
    call->Send(c.sent);
    const grpc::Status status = call->End();
    EXPECT_EQ(status.error_code(), c.code) << c.why << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(c.message)) << c.why;
    EXPECT_THAT(status.error_message(), HasSubstr("programs/mine")) << c.why;
    EXPECT_THAT(status.error_message(), testing::Not(HasSubstr("\n"))) << c.why;
    AwaitNothingOnDisk();
  }
  EXPECT_TRUE(Upload("programs/mine", "program one").ok()) << "the server goes on";
}

TEST_F(ProgramTest, ACutStreamLeavesNothing) {
  {
    const auto call = Open();
    call->Start("programs/mine", "program one");
    call->Send("program");
    for (int i = 0; i < 6'000 && OnDisk().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_FALSE(OnDisk().empty());
    call->context.TryCancel();
    EXPECT_EQ(call->End().error_code(), grpc::StatusCode::CANCELLED);
  }
  AwaitNothingOnDisk();
}

TEST_F(ProgramTest, AStoppingServerEndsAnUpload) {
  const auto call = Open();
  call->Start("programs/mine", "program one");
  for (int i = 0; i < 6'000 && OnDisk().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
  server_->Shutdown(kPatience);
  const grpc::Status status = call->writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  AwaitNothingOnDisk();
}

TEST_F(ProgramTest, AStartComesOnceAndFirst) {
  const auto without = Open();
  without->Send("program");
  EXPECT_EQ(without->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto nothing = Open();
  EXPECT_THAT(nothing->End().error_message(), HasSubstr("start: is missing"));
  const auto twice = Open();
  twice->Start("programs/mine", "program one");
  twice->Start("programs/mine", "program one");
  EXPECT_THAT(twice->End().error_message(), HasSubstr("start: comes once"));
  const auto bad = Open();
  bad->Start("mine", "");
  const grpc::Status status = bad->End();
  const auto request = Detail<google::rpc::BadRequest>(status);
  ASSERT_TRUE(request.has_value());
  ASSERT_EQ(request->field_violations_size(), 2) << status.error_message();
  EXPECT_EQ(request->field_violations(0).field(), "start.name");
  EXPECT_EQ(request->field_violations(1).field(), "start.bytes");
}

TEST_F(ProgramTest, ListsInPages) {
  for (const char* name : {"c", "a", "b"}) {
    ASSERT_TRUE(Upload(absl::StrCat("programs/", name), absl::StrCat("program ", name)).ok());
  }
  v1::ListProgramsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  do {
    grpc::ClientContext context;
    v1::ListProgramsResponse page;
    ASSERT_TRUE(stub_->ListPrograms(&context, request, &page).ok());
    EXPECT_LE(page.programs_size(), 2);
    for (const v1::Program& program : page.programs()) {
      names.push_back(program.name());
      EXPECT_EQ(program.num_parameters(), 9);
      EXPECT_EQ(program.tensors_size(), 0);
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("programs/a", "programs/b", "programs/c"));
  grpc::ClientContext context;
  v1::ListProgramsResponse page;
  request.set_page_token("nonsense");
  EXPECT_EQ(stub_->ListPrograms(&context, request, &page).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ProgramTest, DeletesOnlyWhatIsMeant) {
  v1::Program program;
  ASSERT_TRUE(Upload("programs/mine", "program one", &program).ok());
  const grpc::Status other = Delete("programs/mine", "another");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ABORTED) << other.error_message();
  EXPECT_EQ(ReasonOf(other), "ETAG_MISMATCH");
  ASSERT_TRUE(Delete("programs/mine", program.etag()).ok());
  for (const grpc::Status& gone : {Get("programs/mine", program), Delete("programs/mine")}) {
    EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND) << gone.error_message();
    EXPECT_EQ(ReasonOf(gone), "PROGRAM_NOT_FOUND");
  }
  EXPECT_EQ(Get("mine", program).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace permafrost::api
