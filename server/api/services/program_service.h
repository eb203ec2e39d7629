// ProgramService converts requests and passes them to the ProgramStore. Borrows the store, the request log, the
// stream set and the limits.
// Threads: gRPC's threads, which never wait for a disk. Uploads and deletions have their own threads; Get and List run
// on workers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "base/id.h"
#include "jobs/program_store.h"
#include "jobs/request_log.h"
#include "permafrost/v1/program.grpc.pb.h"

namespace permafrost::api {

class ProgramService final : public v1::ProgramService::CallbackService {
 public:
  // If `programs` is null, each call is UNIMPLEMENTED. An upload that sends nothing for `unread` is ended.
  ProgramService(jobs::ProgramStore* programs, jobs::RequestLog& requests, StreamSet& streams, CallLimits& limits,
                 absl::Duration unread)
      : programs_(programs), requests_(requests), streams_(streams), limits_(limits), unread_(unread) {}

  grpc::ServerReadReactor<v1::UploadProgramRequest>* UploadProgram(grpc::CallbackServerContext* context,
                                                                   v1::Program* response) override;
  grpc::ServerUnaryReactor* GetProgram(grpc::CallbackServerContext* context, const v1::GetProgramRequest* request,
                                       v1::Program* response) override;
  grpc::ServerUnaryReactor* ListPrograms(grpc::CallbackServerContext* context, const v1::ListProgramsRequest* request,
                                         v1::ListProgramsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteProgram(grpc::CallbackServerContext* context, const v1::DeleteProgramRequest* request,
                                          google::protobuf::Empty* response) override;

 private:
  absl::Status Get(const v1::GetProgramRequest& request, v1::Program& response) const;
  absl::Status List(const v1::ListProgramsRequest& request, v1::ListProgramsResponse& response) const;
  absl::Status DeleteOnce(const ProgramId& id, const std::string& etag, const jobs::RequestKey& request);
  // Returns a text that distinguishes the program from earlier and later programs of the same name. Returns an empty
  // text if there is no program of this name.
  std::string IdentityOf(const ProgramId& id) const;

  jobs::ProgramStore* const programs_;
  jobs::RequestLog& requests_;
  StreamSet& streams_;
  CallLimits& limits_;
  const absl::Duration unread_;
};

}  // namespace permafrost::api
