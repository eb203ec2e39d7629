#include "api/services/job_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/services/unary.h"
#include "api/streams/server_stream.h"
#include "api/streams/stream_sources.h"
#include "api/streams/stream_work.h"
#include "api/wire/convert_job.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"

namespace permafrost::api {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::ServerWriteReactor;

absl::StatusOr<std::unique_ptr<StreamSource<v1::ExportJobResponse>>> OpenExport(jobs::JobManager& jobs,
                                                                                const v1::ExportJobRequest& request) {
  PF_ASSIGN_OR_RETURN(const JobId id, ParseJobName("name", request.name()));
  Violations violations;
  const jobs::Artifact artifact = ArtifactFromWire(request.artifact(), violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_ASSIGN_OR_RETURN(const std::filesystem::path path, jobs.ArtifactPath(id, artifact));
  return ExportSource::Open(path);
}

}  // namespace

ServerUnaryReactor* JobService::CreateJob(CallbackServerContext* context, const v1::CreateJobRequest* request,
                                          v1::Job* response) {
  return ReplyLater(context, limits_.submitters, [=, this] { return Create(*request, *response); });
}

ServerUnaryReactor* JobService::GetJob(CallbackServerContext* context, const v1::GetJobRequest* request,
                                       v1::Job* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Get(*request, *response); });
}

ServerUnaryReactor* JobService::ListJobs(CallbackServerContext* context, const v1::ListJobsRequest* request,
                                         v1::ListJobsResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return List(*request, *response); });
}

ServerUnaryReactor* JobService::CancelJob(CallbackServerContext* context, const v1::CancelJobRequest* request,
                                          v1::Job* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Do(&jobs::JobManager::Cancel, *request, *response); });
}

ServerUnaryReactor* JobService::UpdateJob(CallbackServerContext* context, const v1::UpdateJobRequest* request,
                                          v1::Job* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Update(*request, *response); });
}

ServerUnaryReactor* JobService::PauseJob(CallbackServerContext* context, const v1::PauseJobRequest* request,
                                         v1::Job* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Do(&jobs::JobManager::Pause, *request, *response); });
}

ServerUnaryReactor* JobService::ResumeJob(CallbackServerContext* context, const v1::ResumeJobRequest* request,
                                          v1::Job* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Do(&jobs::JobManager::Resume, *request, *response); });
}

ServerUnaryReactor* JobService::RetryJob(CallbackServerContext* context, const v1::RetryJobRequest* request,
                                         v1::Job* response) {
  return ReplyLater(context, limits_.submitters,
                    [=, this] { return Do(&jobs::JobManager::Retry, *request, *response); });
}

ServerUnaryReactor* JobService::ListCheckpoints(CallbackServerContext* context,
                                                const v1::ListCheckpointsRequest* request,
                                                v1::ListCheckpointsResponse* response) {
  absl::StatusOr<JobId> id = ParseJobName("parent", request->parent());
  if (!id.ok()) return Reply(context, id.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.checkpoint_lists.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "the list of checkpoints", *std::move(slot),
                           [this, id = *std::move(id), verify = request->verify(), response]() -> absl::Status {
                             PF_ASSIGN_OR_RETURN(const std::vector<train::CheckpointInfo> checkpoints,
                                                 jobs_.Checkpoints(id, verify));
                             for (const train::CheckpointInfo& info : checkpoints)
                               *response->add_checkpoints() = CheckpointToWire(info);
                             return absl::OkStatus();
                           });
}

ServerUnaryReactor* JobService::DeleteJob(CallbackServerContext* context, const v1::DeleteJobRequest* request,
                                          google::protobuf::Empty* /*response*/) {
  return ReplyLater(context, limits_.submitters, [=, this] { return Delete(*request); });
}

ServerWriteReactor<v1::Job>* JobService::WatchJob(CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return StartStream<v1::Job>(*context, limits_.watches, streams_, [&]() -> absl::StatusOr<std::unique_ptr<JobWatch>> {
    PF_ASSIGN_OR_RETURN(JobId id, ParseJobName("name", request->name()));
    return std::make_unique<JobWatch>(jobs_, std::move(id));
  });
}

ServerWriteReactor<v1::StreamJobLogsResponse>* JobService::StreamJobLogs(CallbackServerContext* context,
                                                                         const v1::StreamJobLogsRequest* request) {
  return StartStream<v1::StreamJobLogsResponse>(
      *context, limits_.log_streams, streams_, [&]() -> absl::StatusOr<std::unique_ptr<LogSource>> {
        PF_ASSIGN_OR_RETURN(JobId id, ParseJobName("name", request->name()));
        return std::make_unique<LogSource>(jobs_, std::move(id), request->offset(), request->follow());
      });
}

ServerWriteReactor<v1::ExportJobResponse>* JobService::ExportJob(CallbackServerContext* context,
                                                                 const v1::ExportJobRequest* request) {
  return StartStream<v1::ExportJobResponse>(
      *context, limits_.exports, streams_,
      [&]() -> absl::StatusOr<std::unique_ptr<DeferredSource<v1::ExportJobResponse>>> {
        return std::make_unique<DeferredSource<v1::ExportJobResponse>>(
            [this, request = *request] { return OpenExport(jobs_, request); });
      });
}

ServerWriteReactor<v1::EvaluateJobResponse>* JobService::EvaluateJob(CallbackServerContext* context,
                                                                     const v1::EvaluateJobRequest* request) {
  return StartStream<v1::EvaluateJobResponse>(
      *context, limits_.evaluations, streams_, [&]() -> absl::StatusOr<std::unique_ptr<EvaluateSource>> {
        PF_ASSIGN_OR_RETURN(jobs::EvaluationRequest evaluation, EvaluationFromWire(*request));
        return std::make_unique<EvaluateSource>(jobs_, std::move(evaluation), evaluation_hub_,
                                                std::to_string(++evaluations_));
      });
}

absl::Status JobService::Create(const v1::CreateJobRequest& request, v1::Job& response) {
  LevelOf level_of = LevelsOf(jobs_);
  std::string asked;
  // An invalid id is reported later, together with the other bad fields.
  if (!request.request_id().empty() && jobs::CheckRequestId(request.request_id()).ok()) {
    asked = HashOfAsked(request);
    PF_ASSIGN_OR_RETURN(const std::optional<jobs::CreatedBefore> earlier,
                        jobs_.FindCreated(request.request_id(), asked));
    if (earlier && earlier->same) {
      response = JobToWire(earlier->job);
      return absl::OkStatus();
    }
    // The existing job keeps its dataset, which may be deleted or replaced by now.
    if (earlier) level_of = LevelsOf(std::move(level_of), earlier->job);
  }
  PF_ASSIGN_OR_RETURN(jobs::CreateRequest create, CreateRequestFromWire(request, default_graph_cache_, level_of));
  create.asked = std::move(asked);
  PF_ASSIGN_OR_RETURN(const jobs::Job job, jobs_.Create(create));
  response = JobToWire(job);
  return absl::OkStatus();
}

absl::Status JobService::Get(const v1::GetJobRequest& request, v1::Job& response) {
  PF_ASSIGN_OR_RETURN(const JobId id, ParseJobName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const jobs::Job job, jobs_.Get(id));
  response = JobToWire(job);
  return absl::OkStatus();
}

absl::Status JobService::List(const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
  Violations violations;
  const int64_t page_size = ReadPageSize(request.page_size(), violations);
  const jobs::JobQuery query{.states = JobStatesFromWire(request, violations), .filter = request.filter()};
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_ASSIGN_OR_RETURN(jobs::JobPage page, jobs_.List(page_size, request.page_token(), query));
  for (const jobs::Job& job : page.jobs) *response.add_jobs() = JobToWire(job);
  response.set_next_page_token(std::move(page.next_page_token));
  return absl::OkStatus();
}

template <class Request>
absl::Status JobService::Do(Verb verb, const Request& request, v1::Job& response) {
  PF_ASSIGN_OR_RETURN(const JobId id, ParseJobName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const jobs::Job job, (jobs_.*verb)(id, request.request_id()));
  response = JobToWire(job);
  return absl::OkStatus();
}

absl::Status JobService::Update(const v1::UpdateJobRequest& request, v1::Job& response) {
  PF_ASSIGN_OR_RETURN(const JobId id, ParseJobName("job.name", request.job().name()));
  PF_ASSIGN_OR_RETURN(const jobs::JobUpdate update, UpdateFromWire(request));
  PF_ASSIGN_OR_RETURN(const jobs::Job job, jobs_.Update(id, update, request.request_id()));
  response = JobToWire(job);
  return absl::OkStatus();
}

absl::Status JobService::Delete(const v1::DeleteJobRequest& request) {
  PF_ASSIGN_OR_RETURN(const JobId id, ParseJobName("name", request.name()));
  return jobs_.Delete(id, request.request_id());
}

}  // namespace permafrost::api
