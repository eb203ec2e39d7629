// UploadDataset: a client's stream of chunks into an UploadStore, and the wire's words for uploads.
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
#include "data/catalog/upload_store.h"
#include "jobs/job_store.h"
#include "jobs/request_log.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// One call, as ClientStream. Borrows the store and the log too.
class UploadCall final : public ClientStream<v1::UploadDatasetRequest> {
 public:
  // For a service's handler to return.
  static grpc::ServerReadReactor<v1::UploadDatasetRequest>* Start(grpc::CallbackServerContext& context,
                                                                  CallLimit::Slot slot, data::UploadStore& store,
                                                                  jobs::RequestLog& requests, StreamSet& streams,
                                                                  absl::Duration unread, v1::Upload& response);

 private:
  UploadCall(grpc::CallbackServerContext& context, CallLimit::Slot slot, data::UploadStore& store,
             jobs::RequestLog& requests, StreamSet& streams, absl::Duration unread, v1::Upload& response)
      : ClientStream(context, std::move(slot), streams, unread),
        store_(store),
        requests_(requests),
        response_(response) {}
  absl::Status Receive() override;
  absl::Status Take(const v1::UploadDatasetRequest& request, std::unique_ptr<data::UploadWriter>& writer);

  data::UploadStore& store_;
  jobs::RequestLog& requests_;
  v1::Upload& response_;
  jobs::RequestKey key_;  // of the start
};

// DatasetService.ListUploads. Errors: InvalidArgument with a violation for each bad field.
absl::Status ListUploadsOf(data::UploadStore& store, const v1::ListUploadsRequest& request,
                           v1::ListUploadsResponse& response);

}  // namespace permafrost::api
