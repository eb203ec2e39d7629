// Source of StreamJobLogs: a job's log in pieces.
// Threads: as StreamSource. Borrows the manager. Errors: those of JobManager::ReadLog.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "api/server_stream.h"
#include "base/id.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// With `follow`, ends after the last byte of a job in a terminal state; without, at the end as it was met.
class LogSource final : public StreamSource<v1::StreamJobLogsResponse> {
 public:
  // `offset` as in the request: negative counts from the present end.
  LogSource(jobs::JobManager& jobs, JobId id, int64_t offset, bool follow)
      : jobs_(jobs), id_(std::move(id)), offset_(offset), follow_(follow) {}
  absl::StatusOr<Pull> Next(v1::StreamJobLogsResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  jobs::JobManager& jobs_;
  const JobId id_;
  int64_t offset_;
  const bool follow_;
};

}  // namespace permafrost::api
