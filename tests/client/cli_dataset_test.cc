// Tests `permafrost dataset` against a scripted server.
#include <filesystem>
#include <sstream>

#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using DatasetWriter = grpc::ServerWriter<v1::Dataset>;

class DatasetCommandTest : public testing::Test {
 protected:
  DatasetCommandTest() {
    fake_.datasets.import = [this](const v1::ImportDatasetRequest& request, v1::Dataset& dataset) {
      imports_.Add(request);
      dataset = ImportingDataset(0);
      return grpc::Status::OK;
    };
    fake_.datasets.watch = [](const v1::WatchDatasetRequest&, DatasetWriter& writer, grpc::ServerContext&) {
      writer.Write(ImportingDataset(250'000));
      writer.Write(ReadyDataset());
      return grpc::Status::OK;
    };
  }
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  FakeServer fake_;
  Recorder<v1::ImportDatasetRequest> imports_;
};

TEST_F(DatasetCommandTest, ImportSendsAnAbsolutePathAndEndsWithTheSummary) {
  fake_.Start();
  const ProgramResult result =
      Run({"dataset", "import", "zinc", "./here/../zinc", "--split", "scaffold", "--split-seed", "7",
           "--no-inverse-edges", "--train-fraction", "0.5", "--valid-fraction", "0.25"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("dataset zinc\n  state          ready\n"));
  EXPECT_THAT(result.out, HasSubstr("\ntrain  10,000  230,000"));
  ASSERT_EQ(imports_.seen().size(), 1u);
  const v1::ImportDatasetRequest sent = imports_.seen()[0];
  EXPECT_EQ(sent.dataset_id(), "zinc");
  EXPECT_EQ(sent.options().source_path(), (std::filesystem::current_path() / "zinc").string());
  EXPECT_EQ(sent.options().split(), "scaffold");
  EXPECT_EQ(sent.options().split_seed(), 7u);
  EXPECT_TRUE(sent.options().no_inverse_edges());
  EXPECT_EQ(sent.options().train_fraction(), 0.5);
  EXPECT_EQ(sent.options().valid_fraction(), 0.25);
}

TEST_F(DatasetCommandTest, NoWatchReturnsAtOnce) {
  fake_.datasets.watch = nullptr;
  fake_.Start();
  const ProgramResult result = Run({"dataset", "import", "zinc", "/data", "--no-watch"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "the import of zinc has begun; see it with: permafrost --server " + fake_.address() +
                            " dataset show zinc\n");
}

TEST_F(DatasetCommandTest, AnExistingNameIsTheServersToRefuse) {
  fake_.datasets.import = [](const v1::ImportDatasetRequest&, v1::Dataset&) {
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "dataset zinc exists; delete it first");
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset", "import", "zinc", "/data"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "permafrost: ALREADY_EXISTS: dataset zinc exists; delete it first\n");
}

TEST_F(DatasetCommandTest, AFailedImportExitsWith1AndItsLine) {
  fake_.datasets.watch = [](const v1::WatchDatasetRequest&, DatasetWriter& writer, grpc::ServerContext&) {
    v1::Dataset dataset = ImportingDataset(1);
    dataset.set_state(v1::Dataset::STATE_FAILED);
    dataset.set_error("raw/edge.csv: row 7: node id 99 is outside 0..22");
    writer.Write(dataset);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset", "import", "zinc", "/data"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "permafrost: the import of zinc failed: raw/edge.csv: row 7: node id 99 is outside 0..22\n");
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(DatasetCommandTest, AnImportThatWaitsSaysWhyOnceAndGoesOn) {
  fake_.datasets.watch = [](const v1::WatchDatasetRequest&, DatasetWriter& writer, grpc::ServerContext&) {
    v1::Dataset dataset = ImportingDataset(1);
    dataset.set_last_error("/state: cannot write: No space left on device");
    writer.Write(dataset);
    writer.Write(dataset);
    writer.Write(ReadyDataset());
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset", "import", "zinc", "/data"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "permafrost: the import of zinc waits and is tried again: /state: cannot write: No space left on device\n");
}

TEST_F(DatasetCommandTest, JsonIsOneObjectALine) {
  fake_.Start();
  const ProgramResult result = Run({"--output", "json", "dataset", "import", "zinc", "/data"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::vector<std::string> states;
  for (std::string line; std::getline(lines, line);) states.push_back(json::parse(line)["state"]);
  EXPECT_THAT(states, ElementsAre("STATE_IMPORTING", "STATE_READY"));
}

TEST_F(DatasetCommandTest, CtrlCLeavesTheImportRunning) {
  fake_.datasets.watch = [](const v1::WatchDatasetRequest&, DatasetWriter& writer, grpc::ServerContext& context) {
    writer.Write(ImportingDataset(250'000));
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  fake_.Start();
  TerminalProgram program({"dataset", "import", "zinc", "/data"}, {{"PERMAFROST_SERVER", fake_.address()}});
  ASSERT_TRUE(program.ReadUntil("25%  250 kB of 1.00 MB")) << program.output();
  program.Type("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(program.output(),
              HasSubstr("permafrost: the import goes on; see it with: permafrost dataset show zinc\r\n"));
}

TEST_F(DatasetCommandTest, ListFollowsPages) {
  fake_.datasets.list = [](const v1::ListDatasetsRequest& request, v1::ListDatasetsResponse& response) {
    *response.add_datasets() = ReadyDataset();
    if (request.page_token().empty()) response.set_next_page_token("2");
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_EQ(json::parse(Run({"dataset", "list", "--output", "json"}).out)["datasets"].size(), 2u);
  EXPECT_THAT(Run({"dataset", "list"}).out, StartsWith("DATASET  KIND       STATE  GRAPHS"));
}

TEST_F(DatasetCommandTest, EmptyListSaysHowToBegin) {
  fake_.datasets.list = [](const v1::ListDatasetsRequest&, v1::ListDatasetsResponse&) { return grpc::Status::OK; };
  fake_.Start();
  EXPECT_THAT(Run({"dataset", "list"}).out, HasSubstr("dataset import NAME PATH"));
  EXPECT_EQ(json::parse(Run({"dataset", "list", "--output", "json"}).out)["datasets"].size(), 0u);
}

TEST_F(DatasetCommandTest, ShowAndDelete) {
  Recorder<std::string> names;
  fake_.datasets.get = [&](const v1::GetDatasetRequest& request, v1::Dataset& dataset) {
    names.Add(request.name());
    dataset = ReadyDataset();
    return grpc::Status::OK;
  };
  fake_.datasets.remove = [&](const v1::DeleteDatasetRequest& request, google::protobuf::Empty&) {
    names.Add(request.name());
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_THAT(Run({"dataset", "show", "zinc"}).out, StartsWith("dataset zinc\n"));
  EXPECT_EQ(Run({"dataset", "delete", "zinc"}).out, "deleted dataset zinc\n");
  EXPECT_THAT(names.seen(), ElementsAre("datasets/zinc", "datasets/zinc"));
}

}  // namespace
}  // namespace permafrost::client
