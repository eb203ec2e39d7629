// DatasetService: what the wire asks, converted and handed to the Catalog.
// Threads: gRPC's; no handler waits for an import, but DeleteDataset for a running one to stop.
// Borrows the catalog, the job manager (which datasets are in use) and the stream set.
#pragma once

#include "api/stream.h"
#include "data/catalog.h"
#include "jobs/job_manager.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::api {

class DatasetService final : public v1::DatasetService::CallbackService {
 public:
  DatasetService(data::Catalog& catalog, jobs::JobManager& jobs, StreamSet& streams)
      : catalog_(catalog), jobs_(jobs), streams_(streams) {}

  grpc::ServerUnaryReactor* ImportDataset(grpc::CallbackServerContext* context, const v1::ImportDatasetRequest* request,
                                          v1::Dataset* response) override;
  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context, const v1::GetDatasetRequest* request,
                                       v1::Dataset* response) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context, const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDataset(grpc::CallbackServerContext* context, const v1::DeleteDatasetRequest* request,
                                          google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::Dataset>* WatchDataset(grpc::CallbackServerContext* context,
                                                      const v1::WatchDatasetRequest* request) override;

 private:
  absl::Status Import(const v1::ImportDatasetRequest& request, v1::Dataset& response);
  absl::Status Get(const v1::GetDatasetRequest& request, v1::Dataset& response);
  absl::Status List(const v1::ListDatasetsRequest& request, v1::ListDatasetsResponse& response);
  absl::Status Delete(const v1::DeleteDatasetRequest& request);

  data::Catalog& catalog_;
  jobs::JobManager& jobs_;
  StreamSet& streams_;
};

}  // namespace permafrost::api
