// Sources of the Watch methods: the resource as it is, then each change of it, the terminal state last.
// Threads: as StreamSource. Each borrows the manager or the catalog. Errors: NotFound once the resource is deleted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "api/streams/server_stream.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// Each epoch is sent once, at most jobs::kMostEpochs of them in a response before the last one. Notices that changed
// nothing on the wire (log lines) send nothing.
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
  std::string sent_state_;  // the last response, epochs apart
};

// Ends with the cache as the ended job left it.
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

}  // namespace permafrost::api
