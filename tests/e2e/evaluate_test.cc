// Tests EvaluateJob as a user calls it: a trained job's weights on other rows and other data, while another job
// trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Evaluate, WeightsOfAJobWhileAnotherOneTrains) {
  const TempDir dir;
  const fs::path sample = fs::path(PERMAFROST_SOURCE_DIR) / "deploy/sample";
  Daemon daemon(dir.path() / "state", sample);
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", sample / "zinc");
  const auto submit = [&](const std::string& id, const std::string& epochs) {
    return daemon.Client({"job", "submit", "--dataset", "zinc", "--hidden", "16", "--epochs", epochs, "--id", id});
  };
  ASSERT_EQ(submit("made", "2").code, 0);
  const v1::Job made = daemon.AwaitEnd("made");
  ASSERT_EQ(made.state(), v1::Job::STATE_SUCCEEDED) << made.error();
  ASSERT_EQ(submit("trains", "1000").code, 0);
  ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return daemon.Get("trains").progress().step() > 0; }));

  const Output told = daemon.Client({"job", "evaluate", "made"});
  ASSERT_EQ(told.code, 0) << told.err;
  const std::string mae = absl::StrFormat("MAE      %.4f", made.result().best_test_metric());
  EXPECT_THAT(told.out, AllOf(HasSubstr("dataset  zinc\n"), HasSubstr("rows     test, 1,000\n"), HasSubstr(mae)));
  const std::string file = (dir.path() / "predicted.csv").string(), stored = (dir.path() / "stored.csv").string();
  ASSERT_EQ(daemon.Client({"job", "predict", "made", "--to", file}).code, 0);
  ASSERT_EQ(daemon.Client({"job", "export", "made", "--artifact", "test-predictions", "--to", stored}).code, 0);
  EXPECT_EQ(std::ranges::count(ReadWhole(file), '\n'), 1001);
  EXPECT_EQ(ReadWhole(file), ReadWhole(stored)) << "to the bit, beside a job that trains";
  const Output all =
      daemon.Client({"job", "evaluate", "made", "--rows", "all", "--weights", "last", "--metrics", "r2"});
  EXPECT_THAT(all.out, AllOf(HasSubstr("all, 12,000"), HasSubstr("R2")));

  const Output refused = daemon.Client({"job", "predict", "made", "--checkpoint", "7", "--to", file});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("checkpoint_step: 7 is the step of no complete checkpoint; accepted: "));
  EXPECT_EQ(ReadWhole(file), ReadWhole(stored)) << "nothing half-written";
  EXPECT_EQ(daemon.Get("trains").state(), v1::Job::STATE_RUNNING);
}

}  // namespace
}  // namespace permafrost::e2e
