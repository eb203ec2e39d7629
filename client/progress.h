// The lines that show work in progress, drawn from a snapshot. Lines never exceed the style's width less one column, so
// that no terminal wraps them.
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
  // 0: not known yet.
  int64_t steps_total = 0;
  std::optional<double> loss;
  // "MAE".
  std::string metric = "MAE";
  // The unit in which a second's work is counted: "graphs".
  std::string unit = "graphs";
  // The metric of the last finished epoch.
  std::optional<double> valid_metric;
  double units_per_second = 0;
  std::optional<absl::Duration> eta;
  // Executables captured before the next step; of 0: none are.
  int64_t warm_up_done = 0;
  int64_t warm_up_total = 0;
};

// "epoch 3/20 ━━━━━━──────  45%  loss 0.4213  valid MAE 0.5120  21.4k graphs/s  ETA 1m 12s"; narrow terminals lose the
// least important parts. While executables are captured before a step: "warming up 3/8 ━━━───────  37%". Before the
// first step: the state.
std::string RenderJobProgress(const JobSnapshot& job, const RenderStyle& style);

struct CacheSnapshot {
  // The cache's state where it is neither frozen nor on the way there: "always", "thawed", ...
  std::string state;
  bool frozen = false;
  int64_t freeze_step = 0;
  // Distinct training shapes kept, and how many freeze it; 0: it does not freeze by itself.
  int64_t kept_shapes = 0;
  int64_t freeze_at = 0;
  int64_t executables = 0;
  int64_t bytes = 0;
  // The steps of both modes.
  int64_t steps = 0;
  int64_t hits = 0;
  int64_t padded_hits = 0;
  int64_t frozen_captures = 0;
};

// "41 of 97 shapes  ━━━━──────   42%  ..." on the way to the freeze point, then "frozen at step 312  130 executables
// ...".
std::string RenderCacheProgress(const CacheSnapshot& cache, const RenderStyle& style);

struct ImportSnapshot {
  std::string file;
  int64_t bytes_read = 0;
  // 0: not known yet.
  int64_t bytes_total = 0;
  std::optional<absl::Duration> eta;
};

std::string RenderImportProgress(const ImportSnapshot& import, const RenderStyle& style);

// "verifying  ━━━━━━──────   42%  1.20 GB of 2.86 GB  ETA 3s".
std::string RenderVerifyProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// "uploading  ━━━━━━──────   42%  1.2 GB of 2.9 GB  ETA 3s"
std::string RenderUploadProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// "copying  ━━━━━━──────   42%  1.2 GB of 2.9 GB  ETA 3s"
std::string RenderBackupProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style);

// "evaluating  ━━━━━━──────   42%  1,200 of 2,860 rows  ETA 3s"; rows_total 0: not known yet.
std::string RenderEvaluationProgress(int64_t rows_done, int64_t rows_total, std::optional<absl::Duration> eta,
                                     const RenderStyle& style);

// Time left at the mean speed so far; nothing to say before there is a speed.
std::optional<absl::Duration> EstimateRemaining(int64_t done, int64_t total, absl::Duration elapsed);

// The parts that the rows of one job's epochs have in common.
struct EpochTable {
  int64_t epochs = 0;
  // As in JobSnapshot.
  std::string metric = "MAE";
  std::string unit = "graphs";
  // Beside the one that decides.
  std::vector<std::string> more_metrics;
};

// A finished epoch; header and rows of one table align.
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
