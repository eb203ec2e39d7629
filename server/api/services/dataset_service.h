// DatasetService converts requests and passes them to the Catalog. Borrows the catalog, the uploads, the job manager
// (which knows the datasets in use), the stream set and the limits.
// Threads: gRPC's threads, which never wait for a disk. Verifications, samples, plans, uploads and deletions have their
// own threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "api/guard/call_limits.h"
#include "api/streams/server_stream.h"
#include "api/streams/stream_work.h"
#include "base/change_hub.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::api {

class DatasetService final : public v1::DatasetService::CallbackService {
 public:
  // `uploads` is null if the server takes no uploads. An upload that sends nothing for `unread` is ended.
  DatasetService(data::Catalog& catalog, data::UploadStore* uploads, jobs::JobManager& jobs, StreamSet& streams,
                 CallLimits& limits, absl::Duration unread)
      : catalog_(catalog), uploads_(uploads), jobs_(jobs), streams_(streams), limits_(limits), unread_(unread) {}

  grpc::ServerUnaryReactor* ImportDataset(grpc::CallbackServerContext* context, const v1::ImportDatasetRequest* request,
                                          v1::Dataset* response) override;
  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context, const v1::GetDatasetRequest* request,
                                       v1::Dataset* response) override;
  grpc::ServerReadReactor<v1::UploadDatasetRequest>* UploadDataset(grpc::CallbackServerContext* context,
                                                                   v1::Upload* response) override;
  grpc::ServerUnaryReactor* DeleteUpload(grpc::CallbackServerContext* context, const v1::DeleteUploadRequest* request,
                                         google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListUploads(grpc::CallbackServerContext* context, const v1::ListUploadsRequest* request,
                                        v1::ListUploadsResponse* response) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context, const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDataset(grpc::CallbackServerContext* context, const v1::DeleteDatasetRequest* request,
                                          google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::Dataset>* WatchDataset(grpc::CallbackServerContext* context,
                                                      const v1::WatchDatasetRequest* request) override;
  grpc::ServerWriteReactor<v1::VerifyDatasetResponse>* VerifyDataset(grpc::CallbackServerContext* context,
                                                                     const v1::VerifyDatasetRequest* request) override;
  grpc::ServerUnaryReactor* SampleDataset(grpc::CallbackServerContext* context, const v1::SampleDatasetRequest* request,
                                          v1::SampleDatasetResponse* response) override;
  grpc::ServerUnaryReactor* PlanDataset(grpc::CallbackServerContext* context, const v1::PlanDatasetRequest* request,
                                        v1::PlanDatasetResponse* response) override;

 private:
  absl::Status Import(const v1::ImportDatasetRequest& request, v1::Dataset& response);
  absl::Status DeleteOnce(const DatasetId& id, const std::string& etag, const jobs::RequestKey& request);
  absl::Status DeleteUploadOnce(const UploadId& id, const jobs::RequestKey& request);
  // Returns a text that distinguishes the dataset from earlier and later datasets of the same name. Returns an empty
  // text if there is no dataset of this name.
  std::string IdentityOf(const DatasetId& id) const;
  absl::Status Get(const v1::GetDatasetRequest& request, v1::Dataset& response);
  absl::Status List(const v1::ListDatasetsRequest& request, v1::ListDatasetsResponse& response);
  absl::Status FindUploaded(const std::string& upload, data::ImportOptions& options) const;
  absl::StatusOr<std::unique_ptr<StreamSource<v1::VerifyDatasetResponse>>> OpenVerify(
      const v1::VerifyDatasetRequest& request);

  data::Catalog& catalog_;
  data::UploadStore* const uploads_;
  jobs::JobManager& jobs_;
  StreamSet& streams_;
  CallLimits& limits_;
  const absl::Duration unread_;
  ChangeHub verify_hub_;
  std::atomic<int64_t> verifications_{0};  // verifications begun so far; each new count is a key in the hub
};

}  // namespace permafrost::api
