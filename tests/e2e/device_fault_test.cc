// Tests the real daemon with a device that fails for the rest of the process, and with a clock that jumps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kExitDeviceFault = 75;

std::string ContentsOf(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

Output SubmitSmall(Daemon& daemon, const std::string& id, int64_t epochs) {
  return daemon.Client({"job", "submit", "--id", id, "--dataset", "zinc", "--hidden", "16", "--layers", "2", "--epochs",
                        absl::StrCat(epochs), "--checkpoint-every", "50"});
}

TEST(DeviceFault, EndsTheDaemonAndCostsNoJob) {
  const TempDir dir;
  const fs::path gate = dir.path() / "gate", state = dir.path() / "state";
  setenv("LD_PRELOAD", PERMAFROST_FAIL_DEVICE, 1);
  setenv("PERMAFROST_TEST_FAIL_DEVICE", gate.c_str(), 1);
  auto daemon = std::make_unique<Daemon>(state, ShippedSample());
  unsetenv("LD_PRELOAD");
  unsetenv("PERMAFROST_TEST_FAIL_DEVICE");
  ASSERT_TRUE(daemon->ready());
  daemon->Import("zinc", ShippedSample());
  ASSERT_EQ(SubmitSmall(*daemon, "first", 100'000).code, 0);
  ASSERT_EQ(SubmitSmall(*daemon, "second", 1).code, 0);
  daemon->AwaitStep("first", 60);

  std::ofstream(gate) << "failed";
  EXPECT_EQ(daemon->process().Wait(absl::Minutes(1)), kExitDeviceFault);
  EXPECT_THAT(ContentsOf(state.string() + ".stderr"),
              HasSubstr("CUDA error: an illegal memory access was encountered"));

  // Restarts the daemon, as a supervisor does.
  daemon = std::make_unique<Daemon>(state, ShippedSample());
  ASSERT_TRUE(daemon->ready());
  v1::Job job;
  ASSERT_TRUE(WaitUntil(absl::Minutes(1), [&] {
    job = daemon->Get("first");
    return job.state() == v1::Job::STATE_RUNNING;
  }));
  EXPECT_GT(job.resumes(), 0);
  bool told = false;
  for (const v1::StateChange& change : job.state_changes()) {
    if (change.reason() != "DEVICE_FAULT") continue;
    told = true;
    EXPECT_EQ(change.state(), v1::Job::STATE_QUEUED);
    EXPECT_THAT(change.message(), HasSubstr("illegal memory access"));
  }
  EXPECT_TRUE(told);
  ASSERT_EQ(daemon->Client({"job", "cancel", "first"}).code, 0);
  EXPECT_EQ(daemon->AwaitEnd("second").state(), v1::Job::STATE_SUCCEEDED) << "the queue goes on";
}

// Changes the record as if the wall clock had been set forward while no daemon ran.
void SetBack(const fs::path& file, absl::Duration by) {
  nlohmann::json record = nlohmann::json::parse(ContentsOf(file));
  for (const char* name : {"wall", "expected"}) {
    absl::Time time;
    std::string error;
    ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, record[name].get<std::string>(), &time, &error)) << error;
    record[name] = absl::FormatTime(absl::RFC3339_full, time - by, absl::UTCTimeZone());
  }
  std::ofstream(file) << record.dump();
}

TEST(ClockJump, KeepsFinishedJobsUntilAnOperatorConfirmsIt) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    ASSERT_EQ(SubmitSmall(daemon, "done", 1).code, 0);
    ASSERT_EQ(daemon.AwaitEnd("done").state(), v1::Job::STATE_SUCCEEDED);
    ASSERT_EQ(daemon.Stop(), 0);
  }
  SetBack(state / "clock.json", absl::Hours(400 * 24));
  Daemon daemon(state, ShippedSample(), {"--keep-finished-jobs", "1s"});
  ASSERT_TRUE(daemon.ready());
  EXPECT_NEAR(Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_clock_jump_seconds"), 400.0 * 24 * 3600, 600);
  EXPECT_THAT(daemon.Client({"server", "info"}).out, HasSubstr("ahead of the time that it saw pass"));
  absl::SleepFor(absl::Seconds(3));
  EXPECT_EQ(daemon.Get("done").state(), v1::Job::STATE_SUCCEEDED);

  const Output confirmed = daemon.Client({"server", "confirm-clock"});
  EXPECT_EQ(confirmed.code, 0) << confirmed.err;
  EXPECT_THAT(confirmed.out, HasSubstr("is believed"));
  EXPECT_TRUE(WaitUntil(absl::Minutes(2), [&] {
    return Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_jobs_expired_total") == 1;
  }));
  EXPECT_EQ(Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_clock_jump_seconds"), 0);
  EXPECT_THAT(ContentsOf(state / "audit.jsonl"), HasSubstr("ServerService/ConfirmClock"));
  EXPECT_THAT(daemon.Client({"server", "confirm-clock"}).out, HasSubstr("nothing to confirm"));
}

TEST(Uploads, TheClientSendsListsImportsAndDeletes) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const Output sent = daemon.Client({"upload", "send", ShippedSample().string(), "--id", "mine"});
  ASSERT_EQ(sent.code, 0) << sent.err;
  EXPECT_THAT(sent.out, HasSubstr("upload mine is complete"));
  EXPECT_THAT(daemon.Client({"upload", "list"}).out, HasSubstr("mine"));
  const Output again = daemon.Client({"upload", "send", ShippedSample().string(), "--id", "mine"});
  EXPECT_EQ(again.code, 0) << again.err;
  const Output checked = daemon.Client({"dataset", "import", "zinc", "--upload", "mine", "--validate-only"});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("would be accepted; nothing was imported"));
  EXPECT_NE(daemon.Client({"dataset", "show", "zinc"}).code, 0);
  const Output imported = daemon.Client({"dataset", "import", "zinc", "--upload", "mine"});
  EXPECT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(daemon.Client({"upload", "delete", "mine"}).code, 0);
  EXPECT_THAT(daemon.Client({"upload", "list"}).out, HasSubstr("no uploads"));
  const Output kept = daemon.Client({"dataset", "delete", "zinc", "--etag", "another"});
  EXPECT_NE(kept.code, 0);
  EXPECT_THAT(kept.err, HasSubstr("has changed since: its etag is"));
  EXPECT_EQ(daemon.Client({"dataset", "delete", "zinc"}).code, 0);
}

}  // namespace
}  // namespace permafrost::e2e
