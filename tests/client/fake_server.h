// A server of the whole contract, on a port of its own, whose answers the test scripts.
// Threads: handlers run on gRPC's threads, so a script that calls share must lock its own state. Set scripts before
// Start().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/plan.grpc.pb.h"
#include "permafrost/v1/program.grpc.pb.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {

// Records the requests that the handlers saw, in order.
template <class T>
class Recorder {
 public:
  // Returns the number of values recorded before this one.
  size_t Add(const T& value) {
    absl::MutexLock lock(&mu_);
    seen_.push_back(value);
    return seen_.size() - 1;
  }
  std::vector<T> seen() const {
    absl::MutexLock lock(&mu_);
    return seen_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<T> seen_ ABSL_GUARDED_BY(mu_);
};

template <class Request, class Response>
using UnaryScript = std::function<grpc::Status(const Request&, Response&)>;
template <class Request, class Response>
using StreamScript = std::function<grpc::Status(const Request&, grpc::ServerWriter<Response>&, grpc::ServerContext&)>;

inline grpc::Status NotScripted() { return {grpc::StatusCode::UNIMPLEMENTED, "not scripted"}; }

class FakeJobs final : public v1::JobService::Service {
 public:
  UnaryScript<v1::CreateJobRequest, v1::Job> create;
  UnaryScript<v1::GetJobRequest, v1::Job> get;
  UnaryScript<v1::ListJobsRequest, v1::ListJobsResponse> list;
  UnaryScript<v1::CancelJobRequest, v1::Job> cancel;
  UnaryScript<v1::DeleteJobRequest, google::protobuf::Empty> remove;
  UnaryScript<v1::UpdateJobRequest, v1::Job> update;
  UnaryScript<v1::PauseJobRequest, v1::Job> pause;
  UnaryScript<v1::ResumeJobRequest, v1::Job> resume;
  UnaryScript<v1::RetryJobRequest, v1::Job> retry;
  UnaryScript<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse> checkpoints;
  StreamScript<v1::WatchJobRequest, v1::Job> watch;
  StreamScript<v1::StreamJobLogsRequest, v1::StreamJobLogsResponse> logs;
  StreamScript<v1::ExportJobRequest, v1::ExportJobResponse> export_job;

 private:
  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request, v1::Job* response) override {
    return create ? create(*request, *response) : NotScripted();
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request, v1::Job* response) override {
    return get ? get(*request, *response) : NotScripted();
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    return list ? list(*request, *response) : NotScripted();
  }
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request, v1::Job* response) override {
    return cancel ? cancel(*request, *response) : NotScripted();
  }
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty* response) override {
    return remove ? remove(*request, *response) : NotScripted();
  }
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request, v1::Job* response) override {
    return update ? update(*request, *response) : NotScripted();
  }
  grpc::Status PauseJob(grpc::ServerContext*, const v1::PauseJobRequest* request, v1::Job* response) override {
    return pause ? pause(*request, *response) : NotScripted();
  }
  grpc::Status ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request, v1::Job* response) override {
    return resume ? resume(*request, *response) : NotScripted();
  }
  grpc::Status RetryJob(grpc::ServerContext*, const v1::RetryJobRequest* request, v1::Job* response) override {
    return retry ? retry(*request, *response) : NotScripted();
  }
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override {
    return checkpoints ? checkpoints(*request, *response) : NotScripted();
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override {
    return watch ? watch(*request, *writer, *context) : NotScripted();
  }
  grpc::Status StreamJobLogs(grpc::ServerContext* context, const v1::StreamJobLogsRequest* request,
                             grpc::ServerWriter<v1::StreamJobLogsResponse>* writer) override {
    return logs ? logs(*request, *writer, *context) : NotScripted();
  }
  grpc::Status ExportJob(grpc::ServerContext* context, const v1::ExportJobRequest* request,
                         grpc::ServerWriter<v1::ExportJobResponse>* writer) override {
    return export_job ? export_job(*request, *writer, *context) : NotScripted();
  }
};

class FakeCaches final : public v1::GraphCacheService::Service {
 public:
  UnaryScript<v1::GetGraphCacheRequest, v1::GraphCache> get;
  UnaryScript<v1::ExplainGraphCacheRequest, v1::ExplainGraphCacheResponse> explain;
  UnaryScript<v1::ListGraphCacheEntriesRequest, v1::ListGraphCacheEntriesResponse> entries;
  UnaryScript<v1::UpdateGraphCachePolicyRequest, v1::GraphCache> policy;
  UnaryScript<v1::FreezeGraphCacheRequest, v1::GraphCache> freeze;
  UnaryScript<v1::ThawGraphCacheRequest, v1::GraphCache> thaw;
  UnaryScript<v1::ClearGraphCacheRequest, v1::GraphCache> clear;
  StreamScript<v1::WatchGraphCacheRequest, v1::GraphCache> watch;

 private:
  grpc::Status GetGraphCache(grpc::ServerContext*, const v1::GetGraphCacheRequest* request,
                             v1::GraphCache* response) override {
    return get ? get(*request, *response) : NotScripted();
  }
  grpc::Status ExplainGraphCache(grpc::ServerContext*, const v1::ExplainGraphCacheRequest* request,
                                 v1::ExplainGraphCacheResponse* response) override {
    return explain ? explain(*request, *response) : NotScripted();
  }
  grpc::Status ListGraphCacheEntries(grpc::ServerContext*, const v1::ListGraphCacheEntriesRequest* request,
                                     v1::ListGraphCacheEntriesResponse* response) override {
    return entries ? entries(*request, *response) : NotScripted();
  }
  grpc::Status UpdateGraphCachePolicy(grpc::ServerContext*, const v1::UpdateGraphCachePolicyRequest* request,
                                      v1::GraphCache* response) override {
    return policy ? policy(*request, *response) : NotScripted();
  }
  grpc::Status FreezeGraphCache(grpc::ServerContext*, const v1::FreezeGraphCacheRequest* request,
                                v1::GraphCache* response) override {
    return freeze ? freeze(*request, *response) : NotScripted();
  }
  grpc::Status ThawGraphCache(grpc::ServerContext*, const v1::ThawGraphCacheRequest* request,
                              v1::GraphCache* response) override {
    return thaw ? thaw(*request, *response) : NotScripted();
  }
  grpc::Status ClearGraphCache(grpc::ServerContext*, const v1::ClearGraphCacheRequest* request,
                               v1::GraphCache* response) override {
    return clear ? clear(*request, *response) : NotScripted();
  }
  grpc::Status WatchGraphCache(grpc::ServerContext* context, const v1::WatchGraphCacheRequest* request,
                               grpc::ServerWriter<v1::GraphCache>* writer) override {
    return watch ? watch(*request, *writer, *context) : NotScripted();
  }
};

class FakeDatasets final : public v1::DatasetService::Service {
 public:
  UnaryScript<v1::ImportDatasetRequest, v1::Dataset> import;
  UnaryScript<v1::GetDatasetRequest, v1::Dataset> get;
  UnaryScript<v1::ListDatasetsRequest, v1::ListDatasetsResponse> list;
  UnaryScript<v1::DeleteDatasetRequest, google::protobuf::Empty> remove;
  StreamScript<v1::WatchDatasetRequest, v1::Dataset> watch;
  StreamScript<v1::VerifyDatasetRequest, v1::VerifyDatasetResponse> verify;
  UnaryScript<v1::SampleDatasetRequest, v1::SampleDatasetResponse> sample;
  UnaryScript<v1::PlanDatasetRequest, v1::PlanDatasetResponse> plan;

 private:
  grpc::Status VerifyDataset(grpc::ServerContext* context, const v1::VerifyDatasetRequest* request,
                             grpc::ServerWriter<v1::VerifyDatasetResponse>* writer) override {
    return verify ? verify(*request, *writer, *context) : NotScripted();
  }
  grpc::Status SampleDataset(grpc::ServerContext*, const v1::SampleDatasetRequest* request,
                             v1::SampleDatasetResponse* response) override {
    return sample ? sample(*request, *response) : NotScripted();
  }
  grpc::Status PlanDataset(grpc::ServerContext*, const v1::PlanDatasetRequest* request,
                           v1::PlanDatasetResponse* response) override {
    return plan ? plan(*request, *response) : NotScripted();
  }
  grpc::Status ImportDataset(grpc::ServerContext*, const v1::ImportDatasetRequest* request,
                             v1::Dataset* response) override {
    return import ? import(*request, *response) : NotScripted();
  }
  grpc::Status GetDataset(grpc::ServerContext*, const v1::GetDatasetRequest* request, v1::Dataset* response) override {
    return get ? get(*request, *response) : NotScripted();
  }
  grpc::Status ListDatasets(grpc::ServerContext*, const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override {
    return list ? list(*request, *response) : NotScripted();
  }
  grpc::Status DeleteDataset(grpc::ServerContext*, const v1::DeleteDatasetRequest* request,
                             google::protobuf::Empty* response) override {
    return remove ? remove(*request, *response) : NotScripted();
  }
  grpc::Status WatchDataset(grpc::ServerContext* context, const v1::WatchDatasetRequest* request,
                            grpc::ServerWriter<v1::Dataset>* writer) override {
    return watch ? watch(*request, *writer, *context) : NotScripted();
  }
};

class FakePrograms final : public v1::ProgramService::Service {
 public:
  std::function<grpc::Status(grpc::ServerReader<v1::UploadProgramRequest>&, v1::Program&)> upload;
  UnaryScript<v1::GetProgramRequest, v1::Program> get;
  UnaryScript<v1::ListProgramsRequest, v1::ListProgramsResponse> list;
  UnaryScript<v1::DeleteProgramRequest, google::protobuf::Empty> remove;

 private:
  grpc::Status UploadProgram(grpc::ServerContext*, grpc::ServerReader<v1::UploadProgramRequest>* reader,
                             v1::Program* response) override {
    return upload ? upload(*reader, *response) : NotScripted();
  }
  grpc::Status GetProgram(grpc::ServerContext*, const v1::GetProgramRequest* request, v1::Program* response) override {
    return get ? get(*request, *response) : NotScripted();
  }
  grpc::Status ListPrograms(grpc::ServerContext*, const v1::ListProgramsRequest* request,
                            v1::ListProgramsResponse* response) override {
    return list ? list(*request, *response) : NotScripted();
  }
  grpc::Status DeleteProgram(grpc::ServerContext*, const v1::DeleteProgramRequest* request,
                             google::protobuf::Empty* response) override {
    return remove ? remove(*request, *response) : NotScripted();
  }
};

class FakeInfo final : public v1::ServerService::Service {
 public:
  UnaryScript<v1::GetServerInfoRequest, v1::ServerInfo> info;
  UnaryScript<v1::DrainRequest, v1::DrainResponse> drain;
  StreamScript<v1::WatchServerRequest, v1::ServerInfo> watch;

 private:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest* request,
                             v1::ServerInfo* response) override {
    return info ? info(*request, *response) : NotScripted();
  }
  grpc::Status WatchServer(grpc::ServerContext* context, const v1::WatchServerRequest* request,
                           grpc::ServerWriter<v1::ServerInfo>* writer) override {
    return watch ? watch(*request, *writer, *context) : NotScripted();
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request, v1::DrainResponse* response) override {
    return drain ? drain(*request, *response) : NotScripted();
  }
};

class FakePlans final : public v1::PlanService::Service {
 public:
  UnaryScript<v1::PlanGraphCacheRequest, v1::PlanGraphCacheResponse> cache;

 private:
  grpc::Status PlanGraphCache(grpc::ServerContext*, const v1::PlanGraphCacheRequest* request,
                              v1::PlanGraphCacheResponse* response) override {
    return cache ? cache(*request, *response) : NotScripted();
  }
};

class FakeCensuses final : public v1::CensusService::Service {
 public:
  UnaryScript<v1::CensusGraphCacheRequest, v1::CensusGraphCacheResponse> cache;

 private:
  grpc::Status CensusGraphCache(grpc::ServerContext*, const v1::CensusGraphCacheRequest* request,
                                v1::CensusGraphCacheResponse* response) override {
    return cache ? cache(*request, *response) : NotScripted();
  }
};

class FakeServer {
 public:
  FakeJobs jobs;
  FakeCaches caches;
  FakePlans plans;
  FakeCensuses censuses;
  FakeDatasets datasets;
  FakePrograms programs;
  FakeInfo server;

  FakeServer() = default;
  ~FakeServer() { Stop(); }

  void Start() {
    grpc::ServerBuilder builder;
    // A second start takes the port of the first, as a restarted daemon does.
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&jobs);
    builder.RegisterService(&caches);
    builder.RegisterService(&plans);
    builder.RegisterService(&censuses);
    builder.RegisterService(&datasets);
    builder.RegisterService(&programs);
    builder.RegisterService(&server);
    running_ = builder.BuildAndStart();
  }
  void Stop() {
    if (running_ == nullptr) return;
    running_->Shutdown(std::chrono::system_clock::now());
    running_->Wait();
    running_.reset();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> running_;
};

// A status with google.rpc details, as the daemon sends them.
inline grpc::Status WithDetails(grpc::StatusCode code, const std::string& message,
                                const std::vector<google::protobuf::Message*>& details) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  for (const auto* detail : details) status.add_details()->PackFrom(*detail);
  return {code, message, status.SerializeAsString()};
}

}  // namespace permafrost::client
