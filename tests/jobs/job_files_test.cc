#include "jobs/job_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/resources.h"
#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

TEST(RunMark, SaysTheNewestStepOfThisBoot) {
  const TempDir dir;
  const auto path = dir.path() / "last-step";
  EXPECT_FALSE(RunMark::Read(path).has_value());
  for (const int64_t last : {1'234'567, 3}) {
    auto mark = RunMark::Begin(path);
    ASSERT_TRUE(mark.ok()) << mark.status();
    EXPECT_EQ(RunMark::Read(path), (RunMark::Content{BootId(), RunMark::kBeforeFirstStep}));
    for (const int64_t step : {int64_t{0}, int64_t{9}, last}) {
      mark->SetStep(step);
      EXPECT_EQ(RunMark::Read(path), (RunMark::Content{BootId(), step}));
    }
  }
}

TEST(RunMark, AnythingElseSaysNothing) {
  const TempDir dir;
  for (const char* text : {"", "boot", "boot ", "boot x", "\n"}) {
    ASSERT_TRUE(WriteFileAtomic(dir.path() / "mark", text).ok());
    EXPECT_FALSE(RunMark::Read(dir.path() / "mark").has_value()) << text;
  }
}

TEST(CountDeath, OnlyDeathsAtOnePlaceAddUp) {
  const RunMark::Content at7{"boot", 7}, before{"boot", RunMark::kBeforeFirstStep};
  const struct {
    const char* why;
    Deaths earlier;
    std::optional<RunMark::Content> mark;
    int64_t checkpoint_step;
    Deaths want;
  } kCases[] = {
      {"the first", {}, at7, 5, {1, 7, 5}},
      {"the same step again", {1, 7, 5}, at7, 5, {2, 7, 5}},
      {"again, from a newer checkpoint", {3, 7, 5}, at7, 7, {4, 7, 7}},
      {"another step", {4, 6, 5}, at7, 5, {1, 7, 5}},
      {"no step, as before", {2, -1, 5}, before, 5, {3, -1, 5}},
      {"no step, but work was saved since", {2, -1, 5}, before, 6, {1, -1, 6}},
      {"the first, at no step", {}, before, 0, {1, -1, 0}},
      {"another boot", {2, 7, 5}, RunMark::Content{"later", 7}, 5, {2, 7, 5}},
      {"no mark", {2, 7, 5}, std::nullopt, 5, {2, 7, 5}},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(CountDeath(c.earlier, c.mark, "boot", c.checkpoint_step), c.want) << c.why;
  }
}

TEST(LogPieces, IsReadOnceForAllWhoAreAtOnePlace) {
  const TempDir dir;
  const JobFiles files(dir.path());
  LogPieces pieces(files);
  const JobId id("job-a"), other("job-b");
  std::filesystem::create_directory(files.Directory(id));
  std::ofstream(files.Log(id)) << "one\n";
  const auto read = [&](const JobId& job, int64_t offset, int64_t most) {
    const auto piece = pieces.Read(job, offset, most);
    return piece.ok() ? piece->data : piece.status().ToString();
  };
  EXPECT_EQ(read(id, 0, 100), "one\n");
  EXPECT_EQ(read(id, 4, 100), "");
  // The log grows without a notice, so only a read that is not served from memory shows it.
  std::ofstream(files.Log(id), std::ios::app) << "two\n";
  EXPECT_EQ(read(id, 0, 100), "one\n");
  EXPECT_EQ(read(id, 4, 100), "") << "asked in turn, as each stream does";
  EXPECT_EQ(read(id, 0, 2), "on") << "another piece";
  EXPECT_EQ(read(id, 0, 101), "one\ntwo\n");
  EXPECT_EQ(read(other, 0, 100), "") << "another job";
  pieces.Forget();
  EXPECT_EQ(read(id, 0, 100), "one\ntwo\n");
  EXPECT_EQ(read(id, 4, 100), "two\n");
  EXPECT_EQ(read(id, -4, 100), "two\n");
  // Errors are not kept.
  EXPECT_EQ(pieces.Read(id, 9, 100).status().code(), absl::StatusCode::kOutOfRange);
  std::ofstream(files.Log(id), std::ios::app) << "three\n";
  EXPECT_EQ(read(id, 9, 100), "hree\n");
}

}  // namespace
}  // namespace permafrost::jobs
