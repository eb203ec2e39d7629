// ProgramService: what the wire asks, converted and handed to the ProgramStore. Threads: gRPC's threads never wait for
// a disk. Uploads and deletions have threads of their own; Get and List run on workers. Borrows the store, the log of
// requests, the stream set and the limits.
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
  // `programs`: null where there are none; then each call is UNIMPLEMENTED. `unread`: how long an upload may send
  // nothing.
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
  // Returns what tells a program from another one of its name; empty: there is none.
  std::string IdentityOf(const ProgramId& id) const;

  jobs::ProgramStore* const programs_;
  jobs::RequestLog& requests_;
  StreamSet& streams_;
  CallLimits& limits_;
  const absl::Duration unread_;
};

}  // namespace permafrost::api
