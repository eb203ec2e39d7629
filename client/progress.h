// Lines that show work in progress, drawn from a snapshot. A line is always shorter than the style's width, so that
// no terminal wraps it.
// Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/style.h"

namespace permafrost::client {

struct JobSnapshot {
  // "queued", "running", ...
  std::string state;
  int64_t epoch = 0;
  int64_t epochs = 0;
  int64_t step = 0;
  // 0 means that the number is not known yet.
  int64_t steps_total = 0;
  std::optional<double> loss;
  // The metric's name, such as "MAE".
  std::string metric = "MAE";
  // The unit of `units_per_second`, such as "graphs".
  std::string unit = "graphs";
  // The metric of the last finished epoch.
  std::optional<double> valid_metric;
  double units_per_second = 0;
  std::optional<absl::Duration> eta;
  // The number of executables captured so far, of warm_up_total.
  int64_t warm_up_done = 0;
  // The number of executables to capture before the next step. 0 means that there are none.
  int64_t warm_up_total = 0;
};

// Returns "epoch 3/20 ━━━━━━──────  45%  loss 0.4213  valid MAE 0.5120  21.4k graphs/s  ETA 1m 12s". On a narrow
// terminal the least important parts are dropped. While executables are captured before a step, the line is "warming
// up 3/8 ━━━───────  37%". Before the first step, the line shows the state.
std::string RenderJobProgress(const JobSnapshot& job, const RenderStyle& style);

struct CacheSnapshot {
  // For a cache that is not frozen and will not freeze by itself: its state, such as "always" or "thawed".
  std::string state;
  bool frozen = false;
  int64_t freeze_step = 0;
  // The number of distinct training shapes kept so far.
  int64_t kept_shapes = 0;
  // The number of kept shapes at which the cache freezes. 0 means that the cache does not freeze by itself.
  int64_t freeze_at = 0;
  int64_t executables = 0;
  int64_t bytes = 0;
  // The next four fields count steps of both modes.
  int64_t steps = 0;
  int64_t hits = 0;
  int64_t padded_hits = 0;
  int64_t frozen_captures = 0;
};

// Returns "41 of 97 shapes  ━━━━──────   42%  ..." before the freeze point, and then "frozen at step 312  130
// executables  ...".
std::string RenderCacheProgress(const CacheSnapshot& cache, const RenderStyle& style);

struct ImportSnapshot {
  std::string file;
  int64_t bytes_read = 0;
  // 0 means that the size is not known yet.
  int64_t bytes_total = 0;
  std::optional<absl::Duration> eta;
};

std::string RenderImportProgress(const ImportSnapshot& import, const RenderStyle& style);

// Returns "verifying  ━━━━━━──────   42%  1.20 GB of 2.86 GB  ETA 3s".
std::string RenderVerifyProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// Returns "uploading  ━━━━━━──────   42%  1.2 GB of 2.9 GB  ETA 3s".
std::string RenderUploadProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// Returns "copying  ━━━━━━──────   42%  1.2 GB of 2.9 GB  ETA 3s".
std::string RenderBackupProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// Returns "evaluating  ━━━━━━──────   42%  1,200 of 2,860 rows  ETA 3s". A `rows_total` of 0 means that it is not
// known yet.
std::string RenderEvaluationProgress(int64_t rows_done, int64_t rows_total, std::optional<absl::Duration> eta,
                                     const RenderStyle& style);

// Estimates the time left from the mean speed so far. Returns nullopt before there is a speed.
std::optional<absl::Duration> EstimateRemaining(int64_t done, int64_t total, absl::Duration elapsed);

// The data that all rows of one job's epoch table share.
struct EpochTable {
  int64_t epochs = 0;
  // `metric` and `unit` mean the same as in JobSnapshot.
  std::string metric = "MAE";
  std::string unit = "graphs";
  // The names of the metrics other than the deciding one.
  std::vector<std::string> more_metrics;
};

// A finished epoch, as a row of the table of epochs. The header and the rows of a table have columns of equal widths.
struct EpochRow {
  int64_t epoch = 0;
  double train_loss = 0;
  double valid_loss = 0;
  double valid_metric = 0;
  double units_per_second = 0;
  absl::Duration time;
  std::vector<double> more_metrics;
};

std::string RenderEpochHeader(const EpochTable& table, const RenderStyle& style);
std::string RenderEpochRow(const EpochRow& row, const EpochTable& table);

}  // namespace permafrost::client
