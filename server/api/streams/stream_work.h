// Work that a stream tells of while it is done, and the sources of the streams whose calls ask for work: VerifyDataset,
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

// Does the work on a thread of its own, so that gRPC's never wait.
// Threads: all methods are safe anywhere.
class StreamWork {
 public:
  // Tells how far the work is, and is told whether to go on.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;
  using Body = std::function<absl::Status(const OnProgress& on_progress)>;

  // what: names the work in errors. `hub` gives notice of progress under `key`, which nothing else has; outlives this.
  // A reader of an outcome sees all that `body` wrote.
  StreamWork(std::string_view what, ChangeHub& hub, std::string key, Body body);
  // Stops the work and waits for it.
  ~StreamWork();

  // Once: subscribes and starts the thread.
  std::unique_ptr<ChangeHub::Subscription> Start(ChangeHub::Listener listener);

  struct State {
    int64_t done = 0, total = 0;
    std::optional<absl::Status> outcome;  // nullopt: it goes on
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

// Source of VerifyDataset: a thread reads the whole store and reports how far it is.
// Threads: as StreamSource; the reading thread starts in Subscribe, and is stopped and joined in the destructor.
class VerifySource final : public StreamSource<v1::VerifyDatasetResponse> {
 public:
  // hub, key: as StreamWork.
  VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::VerifyDatasetResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  StreamWork work_;
  std::optional<int64_t> sent_;  // bytes done, as sent last
  std::optional<Stopwatch> since_sent_;
};

// Every field that is wrong in one answer. Errors: InvalidArgument.
absl::StatusOr<jobs::EvaluationRequest> EvaluationFromWire(const v1::EvaluateJobRequest& wire);
v1::JobEvaluation EvaluationToWire(const jobs::JobEvaluation& evaluation);

// Source of EvaluateJob: a thread makes the pass; then its result is sent, and its predictions in pieces.
// Threads: as StreamSource; the thread starts in Subscribe, and is stopped and joined in the destructor.
class EvaluateSource final : public StreamSource<v1::EvaluateJobResponse> {
 public:
  // hub, key: as StreamWork. `jobs` outlives this.
  EvaluateSource(jobs::JobManager& jobs, jobs::EvaluationRequest request, ChangeHub& hub, std::string key);

  absl::StatusOr<Pull> Next(v1::EvaluateJobResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  Pull NextPiece(v1::EvaluateJobResponse& response);

  const bool predictions_;
  jobs::JobEvaluation evaluation_;  // written by the work, until its outcome
  bool told_ = false;               // the result
  std::optional<int64_t> sent_;     // rows done, as sent last
  std::optional<Stopwatch> since_sent_;
  size_t offset_ = 0;  // of the predictions
  StreamHash hash_;
  StreamWork work_;  // last: its thread ends first
};

// Source of Backup: how far it is, and what came of it.
// Threads: as StreamSource; the backup runs on a thread of its own, which ends before the source does.
class BackupSource final : public StreamSource<v1::BackupResponse> {
 public:
  // hub, key: as StreamWork. Borrows the log.
  BackupSource(MakeBackup make, jobs::RequestLog& requests, const v1::BackupRequest& request, ChangeHub& hub,
               std::string key);

  absl::StatusOr<Pull> Next(v1::BackupResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    return work_.Start(std::move(listener));
  }

 private:
  backup::Summary summary_;  // written by the work, read once it has ended
  std::optional<int64_t> sent_;
  std::optional<Stopwatch> since_sent_;
  StreamWork work_;  // last: its thread writes what is above
};

}  // namespace permafrost::api
