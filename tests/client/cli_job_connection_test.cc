// Tests `permafrost job` if the server is absent, disappears or does not answer.
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class JobConnectionTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  FakeServer fake_;
};

TEST_F(JobConnectionTest, SubmitTriesAgainWithTheSameRequestId) {
  Recorder<std::string> ids;
  fake_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    if (ids.Add(request.request_id()) < 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_EQ(Run({"job", "submit", "--dataset", "zinc"}).exit_code, 0);
  const std::vector<std::string> seen = ids.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_THAT(seen, testing::Each(seen[0]));
  EXPECT_FALSE(seen[0].empty());
}

TEST_F(JobConnectionTest, NoServerIsOneLineThatNamesAddressAndFlag) {
  // A server that has stopped. Its port was free a moment ago, and nothing else takes it meanwhile.
  fake_.Start();
  fake_.Stop();
  const std::string line =
      "permafrost: no server at " + fake_.address() +
      " (start permafrostd, or name another with --server HOST:PORT, PERMAFROST_SERVER or --context)\n";
  const std::vector<std::vector<std::string>> commands = {{"server", "info"},    {"job", "list"},
                                                          {"job", "watch", "x"}, {"job", "submit", "--dataset", "d"},
                                                          {"job", "logs", "x"},  {"dataset", "import", "d", "."}};
  for (const auto& command : commands) {
    const ProgramResult result = Run(command);
    EXPECT_EQ(result.exit_code, 3) << command[1];
    EXPECT_EQ(result.err, line) << command[1];
    EXPECT_THAT(result.out, IsEmpty()) << command[1];
  }
  const ProgramResult from_environment =
      RunProgram({"server", "info", "--output", "json"}, {{"PERMAFROST_SERVER", fake_.address()}});
  EXPECT_EQ(from_environment.exit_code, 3);
  const json error = json::parse(from_environment.err)["error"];
  EXPECT_EQ(error["code"], "UNREACHABLE");
  EXPECT_EQ(error["exitCode"], 3);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(fake_.address()));
}

TEST_F(JobConnectionTest, LogsAreRawAndContinueAfterALoss) {
  Recorder<v1::StreamJobLogsRequest> requests;
  fake_.jobs.logs = [&](const v1::StreamJobLogsRequest& request, grpc::ServerWriter<v1::StreamJobLogsResponse>& writer,
                        grpc::ServerContext&) {
    v1::StreamJobLogsResponse piece;
    if (requests.Add(request) == 0) {
      piece.set_data("one\n\x1b[1mtw");
      piece.set_next_offset(110);
      writer.Write(piece);
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
    }
    piece.set_data("o\n");
    piece.set_next_offset(112);
    writer.Write(piece);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"job", "logs", "zinc-1", "--follow", "--tail", "10"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "one\n\x1b[1mtwo\n");
  EXPECT_THAT(result.err, HasSubstr("lost the server"));
  ASSERT_EQ(requests.seen().size(), 2u);
  EXPECT_EQ(requests.seen()[0].offset(), -10);
  EXPECT_TRUE(requests.seen()[0].follow());
  EXPECT_EQ(requests.seen()[1].offset(), 110);
}

TEST_F(JobConnectionTest, AServerThatDoesNotAnswerIsNotWaitedForForever) {
  absl::Notification client_gave_up;
  fake_.server.info = [&](const v1::GetServerInfoRequest&, v1::ServerInfo&) {
    client_gave_up.WaitForNotification();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"server", "info", "--timeout", "1"});
  client_gave_up.Notify();
  // The handler may begin only now, and it uses variables of this function.
  fake_.Stop();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, StartsWith("permafrost: no answer from " + fake_.address()));
}

}  // namespace
}  // namespace permafrost::client
