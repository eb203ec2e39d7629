// JobService converts requests and passes them to the JobManager. Borrows the manager, the stream set and the limits.
// Threads: gRPC's threads, which never wait for a disk. Calls that need the store run on workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "base/change_hub.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "spec/policy.h"

namespace permafrost::api {

class JobService final : public v1::JobService::CallbackService {
 public:
  // `default_graph_cache` is the graph cache policy of jobs whose spec gives none.
  JobService(const spec::PolicyOptions& default_graph_cache, jobs::JobManager& jobs, StreamSet& streams,
             CallLimits& limits)
      : default_graph_cache_(default_graph_cache), jobs_(jobs), streams_(streams), limits_(limits) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context, const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context, const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamJobLogsResponse>* StreamJobLogs(grpc::CallbackServerContext* context,
                                                                     const v1::StreamJobLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::ExportJobResponse>* ExportJob(grpc::CallbackServerContext* context,
                                                             const v1::ExportJobRequest* request) override;
  grpc::ServerWriteReactor<v1::EvaluateJobResponse>* EvaluateJob(grpc::CallbackServerContext* context,
                                                                 const v1::EvaluateJobRequest* request) override;
  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context, const v1::UpdateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context, const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context, const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* RetryJob(grpc::CallbackServerContext* context, const v1::RetryJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;

 private:
  absl::Status Create(const v1::CreateJobRequest& request, v1::Job& response);
  absl::Status Get(const v1::GetJobRequest& request, v1::Job& response);
  absl::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse& response);
  // A method of JobManager that changes the named job and returns it.
  using Verb = absl::StatusOr<jobs::Job> (jobs::JobManager::*)(const JobId&, const std::string&);
  // Calls `verb` for a request that has a name and a request_id.
  template <class Request>
  absl::Status Do(Verb verb, const Request& request, v1::Job& response);
  absl::Status Update(const v1::UpdateJobRequest& request, v1::Job& response);
  absl::Status Delete(const v1::DeleteJobRequest& request);

  const spec::PolicyOptions default_graph_cache_;
  jobs::JobManager& jobs_;
  StreamSet& streams_;
  CallLimits& limits_;
  ChangeHub evaluation_hub_;
  std::atomic<uint64_t> evaluations_ = 0;  // evaluations begun so far; each new count is a key in the hub
};

}  // namespace permafrost::api
