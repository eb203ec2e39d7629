// UploadProgram: a client's stream of bytes into a ProgramStore.
// Threads: those of client_stream.h.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/streams/client_stream.h"
#include "api/streams/server_stream.h"
#include "jobs/job_store.h"
#include "jobs/program_store.h"
#include "jobs/request_log.h"
#include "permafrost/v1/program.pb.h"

namespace permafrost::api {

// One call, as ClientStream. Borrows the store and the log too.
class ProgramUploadCall final : public ClientStream<v1::UploadProgramRequest> {
 public:
  // For a service's handler to return.
  static grpc::ServerReadReactor<v1::UploadProgramRequest>* Start(grpc::CallbackServerContext& context,
                                                                  CallLimit::Slot slot, jobs::ProgramStore& store,
                                                                  jobs::RequestLog& requests, StreamSet& streams,
                                                                  absl::Duration unread, v1::Program& response);

 private:
  ProgramUploadCall(grpc::CallbackServerContext& context, CallLimit::Slot slot, jobs::ProgramStore& store,
                    jobs::RequestLog& requests, StreamSet& streams, absl::Duration unread, v1::Program& response)
      : ClientStream(context, std::move(slot), streams, unread),
        store_(store),
        requests_(requests),
        response_(response) {}
  absl::Status Receive() override;
  // Begins the upload, or answers the call: then `upload` stays null.
  absl::Status Begin(const v1::ProgramStart& start, std::unique_ptr<jobs::ProgramUpload>& upload);

  jobs::ProgramStore& store_;
  jobs::RequestLog& requests_;
  v1::Program& response_;
  jobs::RequestKey key_;  // of the start
};

}  // namespace permafrost::api
