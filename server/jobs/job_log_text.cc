#include "jobs/job_log_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"

namespace permafrost::jobs {

std::string SubmittedLine(const Job& job) {
  const train::TrainOptions& t = job.spec.train;
  return absl::StrCat("submitted ", job.id.value(), ": dataset ", t.dataset.value(), ", ",
                      AbslView(nn::kArchitectureNames.Name(t.model.architecture)), " ", t.model.num_layers, " x ",
                      t.model.hidden_channels, " ", AbslView(nn::kPoolingNames.Name(t.model.pooling)),
                      " pooling, loss ", AbslView(nn::kLossNames.Name(t.loss)), ", ",
                      AbslView(nn::kOptimizerNames.Name(t.optimizer.algorithm)), " lr ", t.optimizer.learning_rate,
                      " weight decay ", t.optimizer.weight_decay, ", ", t.epochs, " epochs of batch size ",
                      t.batch_size, ", seed ", t.seed, ", priority ", job.spec.priority);
}

std::string StartedLine(const Job& job, std::string_view device, int threads) {
  const std::string where =
      absl::StrCat(" on ", AbslView(device), ", ", threads, threads == 1 ? " thread" : " threads");
  if (job.resumes == 0) return absl::StrCat("started", where);
  return absl::StrCat("resumed", where, " (resume ", job.resumes, ")");
}

std::string EpochLine(const train::EpochMetrics& metrics, int64_t epochs) {
  const int width = static_cast<int>(absl::StrCat(epochs).size());
  return absl::StrFormat(
      "epoch %*d/%d  train loss %9.5f  valid loss %9.5f  valid MAE %9.5f  lr %.3g  %7.2f s  %8.0f graphs/s", width,
      metrics.epoch, epochs, metrics.train_loss, metrics.valid_loss, metrics.valid_mae, metrics.learning_rate,
      metrics.train_seconds + metrics.valid_seconds, metrics.graphs_per_second);
}

std::string EndedLine(const Job& job) {
  if (job.state == JobState::kFailed) return absl::StrCat("failed: ", job.error);
  if (job.state == JobState::kCancelled) return absl::StrCat("cancelled after step ", job.progress.step);
  if (!job.result) return std::string(kJobStateNames.Name(job.state));
  const train::RunResult& r = *job.result;
  return absl::StrFormat(
      "succeeded: best epoch %d with valid MAE %.5f, test MAE %.5f; last epoch test MAE %.5f; %.1f s, %.3f ms a step",
      r.best_epoch, r.best_valid_mae, r.best_test_mae, r.final_test_mae, r.train_seconds, r.mean_step_milliseconds);
}

}  // namespace permafrost::jobs
