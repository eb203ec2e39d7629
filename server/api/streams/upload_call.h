// UploadDataset: a client's stream of chunks into an UploadStore, and the wire's words for uploads.
// Threads: a call has one of its own, which alone waits for the disk; gRPC's only tell it that a message has come.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "data/catalog/upload_store.h"
#include "jobs/job_store.h"
#include "jobs/request_log.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// One call. A client that sends nothing for `unread` loses it, with ABORTED. Owns itself: deleted in OnDone. Borrows
// the store and the stream set.
class UploadCall final : public grpc::ServerReadReactor<v1::UploadDatasetRequest>, private StreamSet::Member {
 public:
  // For a service's handler to return.
  static grpc::ServerReadReactor<v1::UploadDatasetRequest>* Start(grpc::CallbackServerContext& context,
                                                                  CallLimit::Slot slot, data::UploadStore& store,
                                                                  jobs::RequestLog& requests, StreamSet& streams,
                                                                  absl::Duration unread, v1::Upload& response);
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  UploadCall(grpc::CallbackServerContext& context, CallLimit::Slot slot, data::UploadStore& store,
             jobs::RequestLog& requests, StreamSet& streams, absl::Duration unread, v1::Upload& response)
      : context_(context),
        slot_(std::move(slot)),
        store_(store),
        requests_(requests),
        streams_(streams),
        unread_(unread),
        admitted_(streams.AdmissionOf(context)),
        response_(response) {}
  void Stop() override;
  // Its thread waits with a limit of its own.
  void EndIfUnread(absl::Duration /*limit*/) override {}
  void EndIfRefused() override;
  absl::Status Receive();
  // Returns whether there is another message, which is then in request_.
  absl::StatusOr<bool> NextRequest();
  absl::Status Take(const v1::UploadDatasetRequest& request, std::unique_ptr<data::UploadWriter>& writer);

  grpc::CallbackServerContext& context_;
  const CallLimit::Slot slot_;
  data::UploadStore& store_;
  jobs::RequestLog& requests_;
  StreamSet& streams_;
  const absl::Duration unread_;
  const std::function<absl::Status()> admitted_;
  v1::Upload& response_;
  v1::UploadDatasetRequest request_;
  jobs::RequestKey key_;  // of the start
  std::thread thread_;

  absl::Mutex mu_;
  std::optional<bool> read_ ABSL_GUARDED_BY(mu_);  // how the read that was asked for ended
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);  // of its caller, by now
};

// DatasetService.ListUploads. Errors: InvalidArgument with a violation for each bad field.
absl::Status ListUploadsOf(data::UploadStore& store, const v1::ListUploadsRequest& request,
                           v1::ListUploadsResponse& response);

}  // namespace permafrost::api
