#include "client/progress.h"

#include "client/format.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

JobSnapshot Running() {
  return {.state = "running",
          .epoch = 3,
          .epochs = 20,
          .step = 900,
          .steps_total = 2000,
          .loss = 0.42134,
          .valid_metric = 0.512,
          .units_per_second = 21'437,
          .eta = absl::Seconds(72)};
}

TEST(JobProgress, LosesTheLeastImportantFirst) {
  const struct {
    const char* why;
    int width;
    const char* want;
  } kCases[] = {
      {"everything, the bar at its widest", 160,
       "epoch 3/20  ##################----------------------   45%  loss 0.4213  valid MAE 0.5120  21.4k graphs/s  "
       "ETA 1m 12s"},
      {"the bar gives first", 100,
       "epoch 3/20  #########-------------   45%  loss 0.4213  valid MAE 0.5120  21.4k graphs/s  ETA 1m 12s"},
      {"then the speed", 80, "epoch 3/20  ########----------   45%  loss 0.4213  valid MAE 0.5120  ETA 1m 12s"},
      {"then the loss", 70, "epoch 3/20  #########------------   45%  valid MAE 0.5120  ETA 1m 12s"},
      {"then the metric", 50, "epoch 3/20  ########-----------   45%  ETA 1m 12s"},
      {"then the bar", 35, "epoch 3/20   45%  ETA 1m 12s"},
      {"then what does not fit", 15, "epoch 3/20   4"},
  };
  for (const auto& c : kCases) EXPECT_EQ(RenderJobProgress(Running(), {.width = c.width}), c.want) << c.why;
}

TEST(JobProgress, NeverWrapsATerminal) {
  for (int width = 1; width <= 200; ++width) {
    const int columns = DisplayWidth(RenderJobProgress(Running(), {.width = width, .unicode = true}));
    EXPECT_LE(columns, std::max(1, width - 1)) << width;
  }
}

TEST(JobProgress, SaysTheStateWhereItIsNotPlainlyRunning) {
  JobSnapshot queued;
  queued.state = "queued";
  EXPECT_EQ(RenderJobProgress(queued, {}), "queued");
  JobSnapshot cancelling = Running();
  cancelling.state = "cancelling";
  EXPECT_EQ(RenderJobProgress(cancelling, {.width = 60}),
            "epoch 3/20  ####-------   45%  valid MAE 0.5120  cancelling");
}

TEST(JobProgress, AWarmUpHasABarOfItsOwn) {
  JobSnapshot job = Running();
  job.warm_up_done = 3;
  job.warm_up_total = 8;
  EXPECT_EQ(RenderJobProgress(job, {.width = 60}), "warming up 3/8  #############------------------------   37%");
  job.state = "cancelling";
  EXPECT_EQ(RenderJobProgress(job, {.width = 60}), "warming up 3/8  #########----------------   37%  cancelling");
  job.epoch = job.steps_total = 0;
  job.state = "running";
  EXPECT_EQ(RenderJobProgress(job, {.width = 20}), "warming up 3/8   37");
}

TEST(JobProgress, BarIsFullOnlyAtTheEnd) {
  JobSnapshot job{.state = "running", .epoch = 1, .epochs = 1, .step = 9'999, .steps_total = 10'000};
  EXPECT_EQ(RenderJobProgress(job, {.width = 40}), "epoch 1/1  #####################-   99%");
  job.step = 10'000;
  EXPECT_EQ(RenderJobProgress(job, {.width = 40}), "epoch 1/1  ######################  100%");
  job.step = 20'000;
  EXPECT_EQ(RenderJobProgress(job, {.width = 40}), "epoch 1/1  ######################  100%") << "never beyond";
}

TEST(JobProgress, ColoursOnlyTheBar) {
  const JobSnapshot job{.state = "running", .epoch = 1, .epochs = 2, .step = 1, .steps_total = 2};
  EXPECT_EQ(RenderJobProgress(job, {.width = 28, .color = true, .unicode = true}),
            "epoch 1/2  \x1b[32m━━━━━\x1b[0m\x1b[2m─────\x1b[0m   50%");
}

TEST(ImportProgress, ShowsBytesFileAndTimeLeft) {
  const ImportSnapshot import{
      .file = "raw/edge.csv.gz", .bytes_read = 1'500'000, .bytes_total = 3'000'000, .eta = absl::Seconds(4)};
  EXPECT_EQ(RenderImportProgress(import, {.width = 80}),
            "importing  ########---------   50%  1.50 MB of 3.00 MB  ETA 4s  raw/edge.csv.gz");
  EXPECT_EQ(RenderImportProgress({}, {.width = 50}), "importing  --------------------    0%  0 B of 0 B");
}

TEST(ImportProgress, FileNamesCannotMoveTheCursor) {
  const ImportSnapshot import{.file = "a\x1b[2J", .bytes_read = 1, .bytes_total = 2, .eta = std::nullopt};
  EXPECT_EQ(RenderImportProgress(import, {.width = 80}).find('\x1b'), std::string::npos);
}

TEST(EstimateRemaining, NeedsASpeed) {
  EXPECT_EQ(EstimateRemaining(0, 100, absl::Seconds(5)), std::nullopt) << "nothing done yet";
  EXPECT_EQ(EstimateRemaining(10, 100, absl::ZeroDuration()), std::nullopt) << "no time has passed";
  EXPECT_EQ(EstimateRemaining(10, 5, absl::Seconds(1)), std::nullopt) << "total is not known yet";
  EXPECT_EQ(EstimateRemaining(25, 100, absl::Seconds(2)), absl::Seconds(6));
}

TEST(EpochRows, AlignWithTheirHeader) {
  const EpochRow row{7, 0.91234, 0.8, 0.8123, 21'437, absl::Milliseconds(523)};
  EXPECT_EQ(RenderEpochHeader({.epochs = 20}, {}), "epoch  train loss  valid loss  valid MAE  graphs/s     time");
  EXPECT_EQ(RenderEpochRow(row, {.epochs = 20}), " 7/20      0.9123      0.8000     0.8123     21.4k   0.52 s");
  EXPECT_EQ(RenderEpochHeader({.epochs = 1000}, {}), "    epoch  train loss  valid loss  valid MAE  graphs/s     time");
  EXPECT_EQ(RenderEpochRow(row, {.epochs = 1000}), "   7/1000      0.9123      0.8000     0.8123     21.4k   0.52 s");
}

TEST(Progress, AVerificationSaysHowFarItIs) {
  EXPECT_EQ(RenderVerifyProgress(250'000'000, 1'000'000'000, absl::Seconds(3), {.width = 80}),
            "verifying  ########---------------------------   25%  250 MB of 1.00 GB  ETA 3s");
  EXPECT_EQ(RenderVerifyProgress(0, 0, std::nullopt, {.width = 50}),
            "verifying  --------------------    0%  0 B of 0 B");
}

}  // namespace
}  // namespace permafrost::client
