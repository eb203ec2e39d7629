// Sources of streams that report existing state: watches of jobs, graph caches and datasets, and a job's files in
// pieces (StreamJobLogs and ExportJob). Threads: same as StreamSource.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "api/streams/server_stream.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// A watch sends the resource's current state, then each change, and the terminal state last. It borrows the manager
// or the catalog. Errors: NotFound once the resource is deleted.

// Sends each epoch once. Each response except the last has at most jobs::kMostEpochs epochs. A notice of a change
// that the response does not show, such as a log line, causes no response.
class JobWatch final : public StreamSource<v1::Job> {
 public:
  JobWatch(jobs::JobManager& jobs, JobId id) : jobs_(jobs), id_(std::move(id)) {}
  absl::StatusOr<Pull> Next(v1::Job& response) override;
  std::string_view watch() const override { return "JobService/WatchJob"; }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  jobs::JobManager& jobs_;
  const JobId id_;
  int64_t sent_epoch_ = 0;
  std::string sent_state_;  // the last response, without epochs and device time
};

// Ends with the final state of the ended job's cache.
class GraphCacheWatch final : public StreamSource<v1::GraphCache> {
 public:
  GraphCacheWatch(jobs::JobManager& jobs, JobId id) : jobs_(jobs), id_(std::move(id)) {}
  absl::StatusOr<Pull> Next(v1::GraphCache& response) override;
  std::string_view watch() const override { return "GraphCacheService/WatchGraphCache"; }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  jobs::JobManager& jobs_;
  const JobId id_;
  std::string sent_;  // the last response
};

class DatasetWatch final : public StreamSource<v1::Dataset> {
 public:
  DatasetWatch(data::Catalog& catalog, DatasetId id) : catalog_(catalog), id_(std::move(id)) {}
  absl::StatusOr<Pull> Next(v1::Dataset& response) override;
  std::string_view watch() const override { return "DatasetService/WatchDataset"; }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override;

 private:
  data::Catalog& catalog_;
  const DatasetId id_;
  std::string sent_;  // the last response
};

// Source of StreamJobLogs. Borrows the manager. With `follow`, ends after the last byte of a job in a terminal state.
// Without `follow`, ends at the current end of the log. Errors: those of JobManager::ReadLog.
class LogSource final : public StreamSource<v1::StreamJobLogsResponse> {
 public:
  // `offset` is the request's: a negative offset counts back from the current end.
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

// Source of ExportJob. Sends the file as it was when opened, even if the job replaces it. Reads the file instead of
// mapping it, since a process has a limited number of mappings, and datasets need them. While its client reads
// nothing, an export holds only a descriptor and one piece.
class ExportSource final : public StreamSource<v1::ExportJobResponse> {
 public:
  // Errors: those of opening the file.
  static absl::StatusOr<std::unique_ptr<ExportSource>> Open(const std::filesystem::path& path);
  // Errors: DataLoss if the file was truncated or written to since Open; the errors of SystemError if the file cannot
  // be read.
  absl::StatusOr<Pull> Next(v1::ExportJobResponse& response) override;

 private:
  ExportSource(std::filesystem::path path, Descriptor file, uint64_t size, int64_t modified)
      : path_(std::move(path)), file_(std::move(file)), size_(size), modified_(modified) {}
  absl::Status Read(std::string& piece) const;
  absl::Status CheckUnchanged() const;

  const std::filesystem::path path_;
  const Descriptor file_;
  const uint64_t size_;     // bytes
  const int64_t modified_;  // modification time in nanoseconds
  uint64_t offset_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::api
