// Tests `permafrost program` against a scripted server.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

v1::Program SampleProgram() {
  v1::Program program;
  program.set_name("programs/net");
  program.set_bytes(197'816);
  program.set_xxh3("af2b51a06611d551");
  program.set_torch_version("2.13.0");
  program.set_num_parameters(1'953);
  program.set_etag("88fff6536a2ac1fb");
  for (const char* name : {"eval", "train"}) {
    v1::Program::Form& form = *program.add_forms();
    form.set_name(name);
    form.set_num_nodes(45);
    auto* input = form.add_inputs();
    input->set_name("x");
    input->set_type("float32[N, 9]");
    auto* output = form.add_outputs();
    output->set_name(absl::StrCat("out_", name));
    output->set_type("float32[G]");
    for (const char* op : {"aten.add.Tensor", "aten.linear.default"}) form.add_operators(op);
  }
  auto* weight = program.add_tensors();
  weight->set_name("lin.weight");
  weight->set_kind(v1::Program::Tensor::KIND_PARAMETER);
  weight->set_type("float32[1, 9]");
  weight->set_trained(true);
  weight->set_persistent(true);
  auto* mean = program.add_tensors();
  mean->set_name("norm.running_mean");
  mean->set_kind(v1::Program::Tensor::KIND_BUFFER);
  mean->set_type("float32[9]");
  mean->set_persistent(true);
  return program;
}

class ProgramCommandTest : public testing::Test {
 protected:
  ProgramCommandTest() {
    std::ofstream(file_, std::ios::binary) << archive_;
    fake_.programs.upload = [this](grpc::ServerReader<v1::UploadProgramRequest>& reader, v1::Program& program) {
      v1::UploadProgramRequest request;
      if (reader.Read(&request)) start_ = request.start();
      received_.clear();
      while (reader.Read(&request)) received_ += request.data();
      ++uploads_;
      if (uploads_ <= lost_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the disk is full");
      program = SampleProgram();
      return grpc::Status::OK;
    };
  }
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  const TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / "net.pt2";
  const std::string archive_ = std::string(700'000, 'a') + std::string(700'000, 'b');
  FakeServer fake_;
  v1::ProgramStart start_;
  std::string received_;
  int uploads_ = 0, lost_ = 0;
};

TEST_F(ProgramCommandTest, ImportSendsTheFileAndShowsTheProgram) {
  fake_.Start();
  const ProgramResult result = Run({"program", "import", "net", file_.string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(start_.name(), "programs/net");
  EXPECT_EQ(start_.bytes(), 1'400'000);
  EXPECT_EQ(start_.xxh3(), HashHex(Hash64(archive_)));
  EXPECT_FALSE(start_.request_id().empty());
  EXPECT_EQ(received_, archive_);
  EXPECT_THAT(result.out, StartsWith("program net\n  forms       eval (45 nodes), train (45 nodes)\n"));
}

TEST_F(ProgramCommandTest, ImportSendsAllAgainToAServerThatCannotJustNow) {
  lost_ = 1;
  fake_.Start();
  const ProgramResult result = Run({"program", "import", "net", file_.string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(uploads_, 2);
  EXPECT_EQ(received_, archive_);
}

TEST_F(ProgramCommandTest, ImportSaysWhyAnArchiveIsRefused) {
  fake_.programs.upload = [](grpc::ServerReader<v1::UploadProgramRequest>&, v1::Program&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "programs/net: node add_3 is not accepted");
  };
  fake_.Start();
  const ProgramResult result = Run({"program", "import", "net", file_.string()});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("INVALID_ARGUMENT: programs/net: node add_3 is not accepted"));
  const ProgramResult missing = Run({"program", "import", "net", (dir_.path() / "none.pt2").string()});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.err, HasSubstr("none.pt2: cannot be read: No such file or directory"));
}

TEST_F(ProgramCommandTest, ImportShowsHowFarItIsOnATerminal) {
  fake_.Start();
  TerminalProgram program({"--server", fake_.address(), "program", "import", "net", file_.string()});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.output(), HasSubstr("uploading"));
  EXPECT_THAT(program.output(), HasSubstr("1.40 MB"));
}

TEST_F(ProgramCommandTest, ShowHasTablesOfInputsTensorsAndOperators) {
  fake_.programs.get = [](const v1::GetProgramRequest& request, v1::Program& program) {
    EXPECT_EQ(request.name(), "programs/net");
    program = SampleProgram();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"program", "show", "net"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  parameters  1,953\n"));
  EXPECT_THAT(result.out, HasSubstr("\nINPUT  TYPE           FORM\nx      float32[N, 9]  all\n"));
  EXPECT_THAT(result.out,
              HasSubstr("\nOUTPUT     TYPE        FORM\nout_eval   float32[G]  eval\nout_train  float32[G]  "
                        "train\n"));
  EXPECT_THAT(result.out, HasSubstr("\nTENSOR             KIND       TYPE           TRAINED  SAVED\n"
                                    "lin.weight         parameter  float32[1, 9]  yes      yes\n"
                                    "norm.running_mean  buffer     float32[9]     no       yes\n"));
  EXPECT_THAT(result.out, HasSubstr("\n2 operators\n  aten.add.Tensor aten.linear.default\n"));
  const auto json = nlohmann::json::parse(Run({"program", "show", "net", "--output", "json"}).out);
  EXPECT_EQ(json.at("numParameters"), "1953");
  EXPECT_EQ(json.at("tensors").size(), 2u);
}

TEST_F(ProgramCommandTest, ListReadsAllPages) {
  fake_.programs.list = [](const v1::ListProgramsRequest& request, v1::ListProgramsResponse& page) {
    v1::Program& program = *page.add_programs();
    program = SampleProgram();
    if (request.page_token().empty()) page.set_next_page_token("more");
    if (!request.page_token().empty()) program.set_name("programs/other");
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"program", "list"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("PROGRAM  PARAMETERS    SIZE  TORCH "));
  EXPECT_THAT(result.out, HasSubstr("\nnet           1,953  198 kB  2.13.0 "));
  EXPECT_THAT(result.out, HasSubstr("\nother "));
  fake_.programs.list = [](const v1::ListProgramsRequest&, v1::ListProgramsResponse&) { return grpc::Status::OK; };
  EXPECT_THAT(Run({"program", "list"}).out, HasSubstr("no programs; import one with: "));
}

TEST_F(ProgramCommandTest, DeleteSendsTheEtag) {
  Recorder<v1::DeleteProgramRequest> requests;
  fake_.programs.remove = [&](const v1::DeleteProgramRequest& request, google::protobuf::Empty&) {
    requests.Add(request);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"program", "delete", "net", "--etag", "88ff"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "deleted program net\n");
  ASSERT_EQ(requests.seen().size(), 1u);
  EXPECT_EQ(requests.seen()[0].name(), "programs/net");
  EXPECT_EQ(requests.seen()[0].etag(), "88ff");
  EXPECT_FALSE(requests.seen()[0].request_id().empty());
}

}  // namespace
}  // namespace permafrost::client
