// Tests a disk or a device thread that hangs: what operators see, and which calls are still answered.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "notify_socket.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// grpc.health.v1.HealthCheckResponse.ServingStatus, or -1 for no answer.
enum Health { kNoAnswer = -1, kServing = 1, kNotServing = 2 };

// Each message of the health service has one field, and Debian ships no generated code for it.
Health HealthOf(const Daemon& daemon, const std::string& service) {
  grpc::GenericStub stub(daemon.channel());
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  std::string request;
  if (!service.empty()) request = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Slice answer;
  if (!status.ok() || !response.DumpToSingleSlice(&answer).ok() || answer.size() != 2) return kNoAnswer;
  return static_cast<Health>(answer.begin()[1]);
}

double StalledMetric(const Daemon& daemon) {
  return Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_device_thread_stalled");
}

bool AwaitStalled(const Daemon& daemon, bool stalled) {
  return WaitUntil(absl::Minutes(2), [&] { return StalledMetric(daemon) == (stalled ? 1 : 0); });
}

std::string LogOf(const fs::path& state) {
  std::ifstream in(state.string() + ".stderr");
  return {std::istreambuf_iterator<char>(in), {}};
}

// The metric, health and the log line change one after the other, so each is awaited.
bool AwaitHealth(const Daemon& daemon, const std::string& service, Health health) {
  return WaitUntil(absl::Minutes(1), [&] { return HealthOf(daemon, service) == health; });
}
bool AwaitLog(const fs::path& state, const std::string& words) {
  return WaitUntil(absl::Minutes(1), [&] { return LogOf(state).find(words) != std::string::npos; });
}

void Submit(Daemon& daemon, const std::string& id, int64_t epochs) {
  const Output out = daemon.Client({"job", "submit", "--id", id, "--dataset", "zinc", "--hidden", "16", "--layers", "2",
                                    "--epochs", absl::StrCat(epochs)});
  ASSERT_EQ(out.code, 0) << out.err;
}

TEST(Hang, ADiskThatHangsHoldsUpNeitherHealthNorMetrics) {
  const TempDir dir;
  const fs::path gate = dir.path() / "gate", state = dir.path() / "state";
  setenv("LD_PRELOAD", PERMAFROST_HOLD_FSYNC, 1);
  setenv("PERMAFROST_TEST_HOLD_FSYNC", gate.c_str(), 1);
  Daemon daemon(state, ShippedSample(), {"--watchdog", "1"});
  unsetenv("LD_PRELOAD");
  unsetenv("PERMAFROST_TEST_HOLD_FSYNC");
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  Submit(daemon, "long", 100'000);
  daemon.AwaitStep("long", 1);
  EXPECT_EQ(HealthOf(daemon, ""), kServing);

  std::ofstream(gate) << "held";
  // For each kind of call that waits for the disk, makes more calls than gRPC has threads.
  std::vector<std::thread> calls;
  std::atomic<int> answered = 0;
  constexpr int kCalls = 64;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([&, i] {
      grpc::ClientContext context;
      if (i % 4 == 0) {
        v1::ImportDatasetRequest request;
        request.set_dataset_id(absl::StrCat("other-", i));
        request.mutable_options()->set_source_path(ShippedSample().string());
        v1::Dataset response;
        daemon.datasets().ImportDataset(&context, request, &response);
      } else if (i % 4 == 1) {
        v1::CancelJobRequest request;
        request.set_name("jobs/long");
        v1::Job response;
        daemon.jobs().CancelJob(&context, request, &response);
      } else {
        v1::GetJobRequest request;
        request.set_name("jobs/long");
        v1::Job response;
        daemon.jobs().GetJob(&context, request, &response);
      }
      ++answered;
    });
  }
  EXPECT_TRUE(AwaitStalled(daemon, true)) << LogOf(state);
  EXPECT_LT(answered, kCalls) << "nothing waits for the disk, so that the test shows nothing";
  EXPECT_TRUE(AwaitHealth(daemon, "", kNotServing));
  EXPECT_TRUE(AwaitHealth(daemon, "permafrost.v1.JobService", kNotServing));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(HealthOf(daemon, ""), kNotServing);
    EXPECT_EQ(HealthOf(daemon, "permafrost.v1.JobService"), kNotServing);
    EXPECT_EQ(HealthOf(daemon, "permafrost.v1.DatasetService"), kServing);
    EXPECT_GE(Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_device_thread_seconds_since_progress"), 1);
  }
  EXPECT_TRUE(AwaitLog(state, "the device thread has made no progress for")) << LogOf(state);

  fs::remove(gate);
  EXPECT_TRUE(AwaitStalled(daemon, false));
  for (std::thread& call : calls) call.join();
  EXPECT_TRUE(AwaitHealth(daemon, "", kServing));
  EXPECT_EQ(daemon.Stop(), 0);
}

// Daemons that start while this lives hang in each fsync as long as the file `gate` exists. They notify `manager`.
class HeldDisk {
 public:
  HeldDisk(const fs::path& gate, const std::string& manager) {
    setenv("LD_PRELOAD", PERMAFROST_HOLD_FSYNC, 1);
    setenv("PERMAFROST_TEST_HOLD_FSYNC", gate.c_str(), 1);
    setenv("NOTIFY_SOCKET", manager.c_str(), 1);
  }
  ~HeldDisk() {
    for (const char* name : {"LD_PRELOAD", "PERMAFROST_TEST_HOLD_FSYNC", "NOTIFY_SOCKET"}) unsetenv(name);
  }
  HeldDisk(const HeldDisk&) = delete;
  HeldDisk& operator=(const HeldDisk&) = delete;
};

TEST(Hang, AStopIsToldThoughAReloadWaitsForTheDisk) {
  const TempDir dir;
  const fs::path gate = dir.path() / "gate", state = dir.path() / "state";
  const NotifySocket manager(dir.path() / "manager");
  std::optional<HeldDisk> disk(std::in_place, gate, dir.path() / "manager");
  Daemon daemon(state, ShippedSample());
  disk.reset();
  ASSERT_TRUE(daemon.ready());
  ASSERT_NE(manager.NextOf("READY=1"), "");
  EXPECT_EQ(HealthOf(daemon, ""), kServing);

  std::ofstream(gate) << "held";
  std::thread call([&daemon] {
    grpc::ClientContext context;
    v1::CreateTokenRequest request;
    request.mutable_token()->set_role(v1::Token::ROLE_VIEWER);
    v1::Token token;
    daemon.server().CreateToken(&context, request, &token);
  });
  const auto writes_tokens = [&state] {
    return std::ranges::any_of(fs::directory_iterator(state), [](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with("tokens.json.tmp.");
    });
  };
  EXPECT_TRUE(WaitUntil(absl::Minutes(1), writes_tokens));
  daemon.process().Signal(SIGHUP);
  EXPECT_NE(manager.NextOf("RELOADING=1"), "");
  daemon.process().Signal(SIGTERM);
  EXPECT_TRUE(AwaitHealth(daemon, "", kNotServing)) << LogOf(state);
  EXPECT_FALSE(manager.HasCome("READY=1")) << "the reload is over, so that the test shows nothing";

  fs::remove(gate);
  EXPECT_EQ(daemon.process().Wait(absl::Minutes(1)), 0) << LogOf(state);
  call.join();
}

TEST(Hang, AStopDuringTheStartEndsADaemonThatHasNotServed) {
  const TempDir dir;
  const fs::path gate = dir.path() / "gate", state = dir.path() / "state";
  const NotifySocket manager(dir.path() / "manager");
  std::ofstream(gate) << "held";
  std::optional<HeldDisk> disk(std::in_place, gate, dir.path() / "manager");
  Process daemon({PERMAFROSTD, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--state-dir", state.string(),
                  "--device", "cpu"},
                 state.string() + ".stderr");
  disk.reset();
  ASSERT_NE(manager.NextOf("STATUS=starting"), "");
  daemon.Signal(SIGTERM);
  // Waits for the daemon to receive the signal, because it reports nothing when it does.
  absl::SleepFor(absl::Milliseconds(500));
  fs::remove(gate);
  EXPECT_EQ(daemon.ReadLine(absl::Minutes(1)), "") << "it served";
  EXPECT_EQ(daemon.Wait(absl::Minutes(1)), 0) << LogOf(state);
  EXPECT_THAT(LogOf(state), HasSubstr("draining: SIGTERM, before anything was served"));
  EXPECT_FALSE(manager.HasCome("READY=1"));
}

// Makes the device thread take job "second" and hang. The first file that it opens for a job is the log, which is a
// pipe here that nobody reads. Returns the pipe's path.
fs::path HangOnSecondJob(Daemon& daemon, const fs::path& state) {
  daemon.Import("zinc", ShippedSample());
  Submit(daemon, "first", 100'000);
  daemon.AwaitStep("first", 1);
  Submit(daemon, "second", 1);
  const fs::path log = state / "jobs" / "second" / "log";
  fs::remove(log);
  EXPECT_EQ(mkfifo(log.c_str(), 0600), 0);
  EXPECT_EQ(daemon.Client({"job", "cancel", "first"}).code, 0);
  return log;
}

TEST(Hang, ADeviceThreadThatHangsIsToldOfByJobAndPhase) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  Daemon daemon(state, ShippedSample(), {"--watchdog", "1"});
  ASSERT_TRUE(daemon.ready());
  const fs::path log = HangOnSecondJob(daemon, state);

  EXPECT_TRUE(AwaitStalled(daemon, true)) << LogOf(state);
  EXPECT_TRUE(AwaitHealth(daemon, "", kNotServing));
  EXPECT_TRUE(AwaitLog(state, "job second, opening the dataset, after step 0; health is NOT_SERVING")) << LogOf(state);
  // Calls that need no device are still answered.
  EXPECT_EQ(daemon.Client({"job", "list"}).code, 0);

  {
    std::ifstream reader(log);
    EXPECT_TRUE(AwaitStalled(daemon, false));
    EXPECT_TRUE(AwaitHealth(daemon, "", kServing));
    EXPECT_EQ(daemon.AwaitEnd("second").state(), v1::Job::STATE_SUCCEEDED);
  }
  EXPECT_TRUE(AwaitLog(state, "the device thread gets on")) << LogOf(state);
}

// The hanging thread does not respond to a drain. The process still ends, and says why.
TEST(Hang, AStopEndsWithinItsTimeoutAllTheSame) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  // The daemon gives up the work after four fifths of this timeout, with the line below. A stop that used the whole
  // timeout would end with another line.
  Daemon daemon(state, ShippedSample(), {"--exit-timeout", "10"});
  ASSERT_TRUE(daemon.ready());
  HangOnSecondJob(daemon, state);
  ASSERT_TRUE(WaitUntil(absl::Minutes(1), [&] { return daemon.Get("second").state() == v1::Job::STATE_PREPARING; }));
  EXPECT_EQ(daemon.Stop(), 1);
  EXPECT_THAT(LogOf(state), HasSubstr("job second reached no step boundary within"));
}

}  // namespace
}  // namespace permafrost::e2e
