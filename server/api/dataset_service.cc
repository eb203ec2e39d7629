#include "api/dataset_service.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/convert_dataset.h"
#include "api/convert_import.h"
#include "api/convert_sample.h"
#include "api/paging.h"
#include "api/resource_name.h"
#include "api/sample_call.h"
#include "api/unary.h"
#include "api/watch.h"

namespace permafrost::api {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::ServerWriteReactor;

ServerUnaryReactor* DatasetService::ImportDataset(CallbackServerContext* context,
                                                  const v1::ImportDatasetRequest* request, v1::Dataset* response) {
  return Reply(context, Import(*request, *response));
}

ServerUnaryReactor* DatasetService::GetDataset(CallbackServerContext* context, const v1::GetDatasetRequest* request,
                                               v1::Dataset* response) {
  return Reply(context, Get(*request, *response));
}

ServerUnaryReactor* DatasetService::ListDatasets(CallbackServerContext* context, const v1::ListDatasetsRequest* request,
                                                 v1::ListDatasetsResponse* response) {
  return Reply(context, List(*request, *response));
}

ServerUnaryReactor* DatasetService::DeleteDataset(CallbackServerContext* context,
                                                  const v1::DeleteDatasetRequest* request,
                                                  google::protobuf::Empty* /*response*/) {
  return Reply(context, Delete(*request));
}

ServerWriteReactor<v1::Dataset>* DatasetService::WatchDataset(CallbackServerContext* /*context*/,
                                                              const v1::WatchDatasetRequest* request) {
  absl::StatusOr<DatasetId> id = ParseDatasetName("name", request->name());
  if (!id.ok()) return new FailedStream<v1::Dataset>(id.status());
  return StreamReactor<v1::Dataset>::Start(std::make_unique<DatasetWatch>(catalog_, *std::move(id)), streams_);
}

ServerWriteReactor<v1::VerifyDatasetResponse>* DatasetService::VerifyDataset(CallbackServerContext* /*context*/,
                                                                             const v1::VerifyDatasetRequest* request) {
  absl::StatusOr<std::unique_ptr<VerifyStream>> stream = OpenVerify(*request);
  if (!stream.ok()) return new FailedStream<v1::VerifyDatasetResponse>(stream.status());
  return StreamReactor<v1::VerifyDatasetResponse>::Start(*std::move(stream), streams_);
}

ServerUnaryReactor* DatasetService::SampleDataset(CallbackServerContext* context,
                                                  const v1::SampleDatasetRequest* request,
                                                  v1::SampleDatasetResponse* response) {
  Violations violations;
  absl::StatusOr<DatasetId> id = ParseDatasetName("name", request->name());
  absl::StatusOr<data::SampleQuery> query = SampleQueryFromWire(*request);
  for (const absl::Status& status : {id.status(), query.status()}) {
    for (const FieldViolation& v : GetViolations(status)) violations.Add(v.field, v.description);
  }
  if (!violations.empty()) return Reply(context, violations.ToStatus());
  absl::StatusOr<std::unique_ptr<SlowCalls::Slot>> slot = slow_calls_.Take();
  if (!slot.ok()) return Reply(context, slot.status());
  return StartSampleCall(catalog_, *std::move(id), *std::move(query), *std::move(slot), response);
}

absl::StatusOr<std::unique_ptr<VerifyStream>> DatasetService::OpenVerify(const v1::VerifyDatasetRequest& request) {
  PF_ASSIGN_OR_RETURN(const DatasetId id, ParseDatasetName("name", request.name()));
  PF_ASSIGN_OR_RETURN(data::OpenedDataset dataset, catalog_.Open(id));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<SlowCalls::Slot> slot, slow_calls_.Take());
  return std::make_unique<VerifyStream>(std::move(dataset), std::move(slot), verify_hub_,
                                        std::to_string(++verifications_));
}

absl::Status DatasetService::Import(const v1::ImportDatasetRequest& request, v1::Dataset& response) {
  PF_ASSIGN_OR_RETURN(ImportRequest import, ImportRequestFromWire(request));
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Import(import.id, std::move(import.options)));
  response = DatasetToWire(dataset);
  return absl::OkStatus();
}

absl::Status DatasetService::Get(const v1::GetDatasetRequest& request, v1::Dataset& response) {
  PF_ASSIGN_OR_RETURN(const DatasetId id, ParseDatasetName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(id));
  response = DatasetToWire(dataset);
  return absl::OkStatus();
}

absl::Status DatasetService::List(const v1::ListDatasetsRequest& request, v1::ListDatasetsResponse& response) {
  Violations violations;
  const int64_t page_size = ReadPageSize(request.page_size(), violations);
  const DatasetId after = ReadDatasetPageToken(request.page_token(), violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const std::vector<data::Dataset> all = catalog_.List();
  const auto is_before = [](const DatasetId& id, const data::Dataset& dataset) { return id < dataset.id; };
  const auto begin = std::upper_bound(all.begin(), all.end(), after, is_before);
  const auto end = begin + std::min<int64_t>(page_size, all.end() - begin);
  for (auto it = begin; it != end; ++it) *response.add_datasets() = DatasetToWire(*it);
  if (end != all.end()) response.set_next_page_token(MakeDatasetPageToken(std::prev(end)->id));
  return absl::OkStatus();
}

absl::Status DatasetService::Delete(const v1::DeleteDatasetRequest& request) {
  PF_ASSIGN_OR_RETURN(const DatasetId id, ParseDatasetName("name", request.name()));
  return catalog_.Delete(id, [this, &id] { return jobs_.CheckDatasetUnused(id); });
}

}  // namespace permafrost::api
