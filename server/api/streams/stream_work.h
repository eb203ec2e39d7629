// Work that reports its progress on a stream, and the sources of the streams that start such work: VerifyDataset,
// EvaluateJob and Backup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "api/services/daemon_facts.h"
#include "api/streams/server_stream.h"
#include "backup/backup.h"
#include "base/change_hub.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "data/store/dataset.h"
#include "jobs/job_manager.h"
#include "jobs/request_log.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {

// Does work on its own thread, so that gRPC's threads never wait.
// Threads: all methods are thread-safe.
class StreamWork {
 public:
  // Reports progress. Returns whether the work should continue.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;
  using Body = std::function<absl::Status(const OnProgress& on_progress)>;

  // `what` names the work in errors. The work notifies `hub` of its progress under `key`, which must be unique. `hub`
  // must outlive this object. A thread that has read an outcome sees everything that `body` wrote.
  StreamWork(std::string_view what, ChangeHub& hub, std::string key, Body body);
  // Stops the work and waits for its end.
  ~StreamWork();

  // Subscribes, then starts the thread. Call it once.
  std::unique_ptr<ChangeHub::Subscription> Start(ChangeHub::Listener listener);

  struct State {
    int64_t done = 0, total = 0;
    std::optional<absl::Status> outcome;  // nullopt: the work goes on
  };
  State Read();

 private:
  void Run();
  void End(absl::Status outcome);

  const std::string what_;
  ChangeHub& hub_;
  const std::string key_;
  const Body body_;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  State state_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

// Source of VerifyDataset. A thread reads the whole store and reports its progress.
// Threads: same as StreamSource. The reading thread starts in Subscribe. The destructor stops and joins it.
class VerifySource final : public StreamSource<v1::VerifyDatasetResponse> {
 public:
  // `hub` and `key` are explained in StreamWork.
  VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::VerifyDatasetResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  StreamWork work_;
  std::optional<int64_t> sent_;  // bytes done in the last response
  std::optional<Stopwatch> since_sent_;
};

// Errors: InvalidArgument with a violation for every bad field.
absl::StatusOr<jobs::EvaluationRequest> EvaluationFromWire(const v1::EvaluateJobRequest& wire);
v1::JobEvaluation EvaluationToWire(const jobs::JobEvaluation& evaluation);

// Source of EvaluateJob. A thread evaluates the job, and the source sends its progress. Then the source sends the
// result, and the predictions in pieces.
// Threads: same as StreamSource. The thread starts in Subscribe. The destructor stops and joins it.
class EvaluateSource final : public StreamSource<v1::EvaluateJobResponse> {
 public:
  // `hub` and `key` are explained in StreamWork. `jobs` must outlive this object.
  EvaluateSource(jobs::JobManager& jobs, jobs::EvaluationRequest request, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::EvaluateJobResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  Pull NextPiece(v1::EvaluateJobResponse& response);

  const bool predictions_;
  jobs::JobEvaluation evaluation_;  // written by the thread until the work has an outcome
  bool told_ = false;               // true: the result was sent
  std::optional<int64_t> sent_;     // rows done in the last response
  std::optional<Stopwatch> since_sent_;
  size_t offset_ = 0;  // position in the predictions
  StreamHash hash_;
  StreamWork work_;  // last: its thread ends first
};

// Source of Backup. Reports the progress of the backup, and its result.
// Threads: same as StreamSource. The backup runs on its own thread, which ends before the source is destroyed.
class BackupSource final : public StreamSource<v1::BackupResponse> {
 public:
  // `hub` and `key` are explained in StreamWork. Borrows the request log.
  BackupSource(MakeBackup make, jobs::RequestLog& requests, const v1::BackupRequest& request, ChangeHub& hub,
               std::string key);

  absl::StatusOr<Pull> Next(v1::BackupResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    return work_.Start(std::move(listener));
  }

 private:
  backup::Summary summary_;  // written by the thread, and read once the work has ended
  std::optional<int64_t> sent_;
  std::optional<Stopwatch> since_sent_;
  StreamWork work_;  // last: its thread writes the members above
};

}  // namespace permafrost::api
