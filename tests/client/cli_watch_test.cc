// Tests `permafrost job watch` against a scripted server: into a pipe, on a pseudo-terminal, and across restarts of
// the server.
#include <atomic>
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
using testing::Not;

constexpr char kThreeEpochs[] =
    "epoch  train loss  valid loss  valid MAE  graphs/s     time\n"
    "  1/3      0.9000      0.8000     0.7000     20.0k   0.52 s\n"
    "  2/3      0.4500      0.4000     0.3500     20.0k   0.52 s\n"
    "  3/3      0.3000      0.2667     0.2333     20.0k   0.52 s\n"
    "\n"
    "job zinc-1 succeeded\n"
    "  best epoch            3 of 3\n"
    "  validation MAE        0.2333\n"
    "  test MAE, best epoch  0.2400\n"
    "  test MAE, last epoch  0.2500\n"
    "  parameters            103,425\n"
    "  step                  3.21 ms\n"
    "  train time            1m 41s\n";

class WatchTest : public testing::Test {
 protected:
  std::vector<std::string> Command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return arguments;
  }

  FakeServer fake_;
};

using JobWriter = grpc::ServerWriter<v1::Job>;

void SendEpoch(int64_t epoch, JobWriter& writer) {
  writer.Write(RunningJob(epoch));
  v1::Job done = RunningJob(epoch);
  AddEpoch(epoch, done);
  writer.Write(done);
}

grpc::Status WholeRun(const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext&) {
  writer.Write(QueuedJob());
  for (int64_t epoch = 1; epoch <= 3; ++epoch) SendEpoch(epoch, writer);
  writer.Write(SucceededJob());
  return grpc::Status::OK;
}

// Waits until the client hangs up.
void AwaitCancel(grpc::ServerContext& context) {
  while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
}

TEST_F(WatchTest, IntoAPipeItIsPlainLines) {
  fake_.jobs.watch = WholeRun;
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, kThreeEpochs);
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(WatchTest, JsonIsOneObjectALine) {
  fake_.jobs.watch = WholeRun;
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1", "--output", "json"}));
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream lines(result.out);
  std::vector<std::string> states;
  for (std::string line; std::getline(lines, line);) states.push_back(json::parse(line)["state"]);
  ASSERT_EQ(states.size(), 8u);
  EXPECT_EQ(states.front(), "STATE_QUEUED");
  EXPECT_EQ(states.back(), "STATE_SUCCEEDED");
}

TEST_F(WatchTest, ALogInJsonIsOneObjectAPiece) {
  fake_.jobs.logs = [](const v1::StreamJobLogsRequest&, grpc::ServerWriter<v1::StreamJobLogsResponse>& writer,
                       grpc::ServerContext&) {
    v1::StreamJobLogsResponse piece;
    piece.set_data("one\n");
    piece.set_next_offset(4);
    writer.Write(piece);
    piece.set_data("two\n");
    piece.set_next_offset(8);
    writer.Write(piece);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "logs", "zinc-1", "--output", "json"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"data\":\"b25lCg==\",\"nextOffset\":\"4\"}\n{\"data\":\"dHdvCg==\",\"nextOffset\":\"8\"}\n");
}

TEST_F(WatchTest, AJobThatEndsBadlyExitsWith1) {
  const struct {
    v1::Job::State state;
    const char* error;
    const char* line;
  } kCases[] = {
      {v1::Job::STATE_FAILED, "loss: nan at step 7", "permafrost: job zinc-1 failed: loss: nan at step 7\n"},
      {v1::Job::STATE_CANCELLED, "", "permafrost: job zinc-1 was cancelled\n"},
  };
  v1::Job job;
  fake_.jobs.watch = [&](const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext&) {
    writer.Write(job);
    return grpc::Status::OK;
  };
  fake_.Start();
  for (const auto& c : kCases) {
    job = RunningJob(1);
    job.set_state(c.state);
    job.set_error(c.error);
    const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1"}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err, c.line);
    const ProgramResult as_json = RunProgram(Command({"job", "watch", "zinc-1", "--output", "json"}));
    EXPECT_EQ(as_json.exit_code, 1);
    EXPECT_EQ(json::parse(as_json.err)["error"]["code"], "ENDED_BADLY");
    EXPECT_EQ(json::parse(as_json.out)["state"], v1::Job::State_Name(c.state));
  }
}

TEST_F(WatchTest, AnUnknownJobIsRefused) {
  fake_.jobs.watch = [](const v1::WatchJobRequest& request, JobWriter&, grpc::ServerContext&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, request.name() + " does not exist");
  };
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "watch", "frob"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "permafrost: NOT_FOUND: jobs/frob does not exist\n");
}

TEST_F(WatchTest, ConnectsAgainAfterTheServerEndedAStreamThatWasNotRead) {
  std::atomic<int> streams{0};
  fake_.jobs.watch = [&](const v1::WatchJobRequest& request, JobWriter& writer, grpc::ServerContext& context) {
    if (++streams == 1) return grpc::Status(grpc::StatusCode::ABORTED, "its client read nothing for 5m");
    return WholeRun(request, writer, context);
  };
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, kThreeEpochs);
  EXPECT_EQ(streams, 2);
}

TEST_F(WatchTest, SubmitWatches) {
  fake_.jobs.create = [](const v1::CreateJobRequest&, v1::Job& job) {
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.jobs.watch = WholeRun;
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "submit", "--dataset", "zinc", "--watch"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, std::string("job zinc-1 submitted\n") + kThreeEpochs);
}

TEST_F(WatchTest, ATerminalShowsALiveLineBelowTheEpochs) {
  absl::Notification bar_seen;
  fake_.jobs.watch = [&](const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext&) {
    writer.Write(QueuedJob());
    SendEpoch(1, writer);
    writer.Write(RunningJob(2));
    bar_seen.WaitForNotification();
    v1::Job done = RunningJob(2);
    AddEpoch(2, done);
    AddEpoch(3, done);
    writer.Write(done);
    writer.Write(SucceededJob());
    return grpc::Status::OK;
  };
  fake_.Start();
  TerminalProgram program(Command({"job", "watch", "zinc-1"}));
  // The line leaves the last of 100 columns free. Its loss is from epoch 2, its metric from epoch 1.
  const bool bar = program.ReadUntil(
      "\r\x1b[Kepoch 2/3  ###########------------   50%  loss 0.2500  valid MAE 0.7000  21.4k graphs/s  ETA 1m 12s");
  bar_seen.Notify();
  EXPECT_TRUE(bar) << program.output();
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.output(), HasSubstr("\r\x1b[Kqueued\r\x1b[K")) << "before the first step: the state";
  EXPECT_THAT(program.output(), HasSubstr("  1/3      0.9000      0.8000     0.7000     20.0k   0.52 s\r\n"));
  EXPECT_THAT(program.output(), HasSubstr("  3/3      0.3000"));
  EXPECT_THAT(program.output(), HasSubstr("\r\x1b[K\r\njob zinc-1 succeeded\r\n")) << "no live line is left behind";
  EXPECT_THAT(program.output(), Not(HasSubstr("\x1b[3"))) << "NO_COLOR is set";
}

TEST_F(WatchTest, CtrlCLeavesTheJobRunningAndSaysHowToComeBack) {
  fake_.jobs.watch = [](const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext& context) {
    writer.Write(RunningJob(2));
    AwaitCancel(context);
    return grpc::Status::CANCELLED;
  };
  fake_.Start();
  const std::map<std::string, std::string> where{{"PERMAFROST_SERVER", fake_.address()}};
  TerminalProgram program({"job", "watch", "zinc-1"}, where);
  ASSERT_TRUE(program.ReadUntil("epoch 2/3")) << program.output();
  program.Type("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(program.output(),
              HasSubstr("\r\x1b[Kpermafrost: job zinc-1 goes on; come back with: permafrost job watch zinc-1\r\n"));
}

TEST_F(WatchTest, CtrlCWhileTheServerIsAwayAnswersAtOnce) {
  fake_.jobs.watch = [](const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext&) {
    writer.Write(RunningJob(2));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  };
  fake_.Start();
  TerminalProgram program(Command({"job", "watch", "zinc-1", "--reconnect", "1000"}));
  ASSERT_TRUE(program.ReadUntil("lost the server")) << program.output();
  program.Type("\x03");
  EXPECT_EQ(program.Wait(), 130);
  EXPECT_THAT(program.output(),
              HasSubstr("come back with: permafrost --server " + fake_.address() + " job watch zinc-1\r\n"))
      << "the address was given by flag, so it is part of the way back";
}

TEST_F(WatchTest, ComesBackAfterARestartAndTellsNoEpochTwice) {
  Recorder<std::string> watches;
  absl::Notification epoch_two_sent;
  fake_.jobs.watch = [&](const v1::WatchJobRequest& request, JobWriter& writer, grpc::ServerContext& context) {
    if (watches.Add(request.name()) == 0) {
      SendEpoch(1, writer);
      SendEpoch(2, writer);
      epoch_two_sent.Notify();
      AwaitCancel(context);
      return grpc::Status::CANCELLED;
    }
    return WholeRun(request, writer, context);
  };
  fake_.Start();
  TerminalProgram program(Command({"job", "watch", "zinc-1"}), {{"TERM", "dumb"}});
  ASSERT_TRUE(program.ReadUntil("  2/3 ")) << program.output();
  epoch_two_sent.WaitForNotification();
  fake_.Stop();
  ASSERT_TRUE(program.ReadUntil("lost the server at " + fake_.address())) << program.output();
  fake_.Start();
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.output(), HasSubstr("permafrost: " + fake_.address() + " is back\r\n"));
  const size_t once = program.output().find("  2/3 ");
  EXPECT_EQ(program.output().find("  2/3 ", once + 1), std::string::npos) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("  3/3 "));
  EXPECT_THAT(program.output(), HasSubstr("job zinc-1 succeeded"));
}

TEST_F(WatchTest, GivesUpWhenTheServerStaysAway) {
  fake_.jobs.watch = [](const v1::WatchJobRequest&, JobWriter& writer, grpc::ServerContext&) {
    writer.Write(RunningJob(2));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server drains");
  };
  fake_.Start();
  // The fake server would answer every reconnect. With --reconnect 0, the client gives up after a single loss.
  const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1", "--reconnect", "0"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err,
            "permafrost: no server at " + fake_.address() +
                " (start permafrostd, or name another with --server HOST:PORT, PERMAFROST_SERVER or --context)\n");
}

TEST_F(WatchTest, WaitsForTheWholeWindowBeforeItGivesUp) {
  Recorder<std::string> watches;
  fake_.jobs.watch = [&](const v1::WatchJobRequest& request, JobWriter& writer, grpc::ServerContext&) {
    if (watches.Add(request.name()) == 0) writer.Write(RunningJob(2));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server drains");
  };
  fake_.Start();
  const ProgramResult result = RunProgram(Command({"job", "watch", "zinc-1", "--reconnect", "2"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, testing::StartsWith("permafrost: lost the server at " + fake_.address() +
                                              " (the server drains); trying again for 2s\n"
                                              "permafrost: no server at "));
  EXPECT_GE(watches.seen().size(), 3u) << "tried again, more than once";
}

}  // namespace
}  // namespace permafrost::client
