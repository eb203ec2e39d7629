// Sources of the streams that give a job's files in pieces: StreamJobLogs and ExportJob.
// Threads: as StreamSource.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "api/streams/server_stream.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// Source of StreamJobLogs. Borrows the manager. Errors: those of JobManager::ReadLog.
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

// Source of ExportJob: the file as it was when opened, even if the job replaces it meanwhile. It is read, not mapped:
// an export that nobody reads holds a descriptor and one piece, and none of the mappings that datasets need.
class ExportSource final : public StreamSource<v1::ExportJobResponse> {
 public:
  // Errors: those of opening the file.
  static absl::StatusOr<std::unique_ptr<ExportSource>> Open(const std::filesystem::path& path);
  // Errors: DataLoss where the file was cut short or written to since Open; the system's where it cannot be read.
  absl::StatusOr<Pull> Next(v1::ExportJobResponse& response) override;

 private:
  ExportSource(std::filesystem::path path, Descriptor file, uint64_t size, int64_t modified)
      : path_(std::move(path)), file_(std::move(file)), size_(size), modified_(modified) {}
  absl::Status Read(std::string& piece) const;
  absl::Status CheckUnchanged() const;

  const std::filesystem::path path_;
  const Descriptor file_;
  const uint64_t size_;     // bytes
  const int64_t modified_;  // nanoseconds
  uint64_t offset_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::api
