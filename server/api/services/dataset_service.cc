#include "api/services/dataset_service.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/services/unary.h"
#include "api/streams/client_stream.h"
#include "api/streams/server_stream.h"
#include "api/streams/stream_sources.h"
#include "api/wire/convert_dataset.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_values.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/catalog/upload_store.h"
#include "jobs/job_store.h"
#include "jobs/request_log.h"

namespace permafrost::api {
namespace {

// A sample is small, and the cores belong to the training job.
constexpr int kSampleThreads = 1;

// Opens a dataset of one large graph. `what` names the purpose in the error: "samples are drawn".
absl::StatusOr<std::shared_ptr<const data::Graph>> OpenGraph(const data::Catalog& catalog, const DatasetId& id,
                                                             std::string_view what) {
  PF_ASSIGN_OR_RETURN(const data::OpenedDataset opened, catalog.Open(id));
  if (const auto* graph = std::get_if<std::shared_ptr<const data::Graph>>(&opened)) return *graph;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("dataset ", id.value(), " holds many small graphs; ",
                                                               AbslView(what), " of one large graph")),
                    "DATASET_IS_GRAPH_SET", {{"dataset", id.value()}});
}

absl::StatusOr<v1::SampleDatasetResponse> DrawSample(const data::Catalog& catalog, const DatasetId& id,
                                                     const data::SampleQuery& query) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<const data::Graph> graph, OpenGraph(catalog, id, "samples are drawn"));
  const absl::StatusOr<data::SampleAnswer> answer = data::Sample(*graph, query, kSampleThreads);
  if (!answer.ok()) return SampleErrorToWire(query, answer.status());
  return SampleAnswerToWire(*answer);
}

absl::StatusOr<v1::PlanDatasetResponse> MakePlan(const data::Catalog& catalog, const DatasetId& id,
                                                 const data::ReadPlanQuery& query,
                                                 const std::function<bool()>& keep_going) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<const data::Graph> graph, OpenGraph(catalog, id, "plans are made"));
  const absl::StatusOr<data::ReadPlan> plan = data::PlanDataset(*graph, query, keep_going);
  if (!plan.ok()) return ReadPlanErrorToWire(id, plan.status());
  return ReadPlanToWire(*plan);
}

std::vector<data::UploadFile> FilesFromWire(const v1::UploadStart& wire) {
  std::vector<data::UploadFile> files;
  files.reserve(static_cast<size_t>(wire.files_size()));
  for (const auto& file : wire.files())
    files.push_back({.path = file.path(), .bytes = file.bytes(), .xxh3 = file.xxh3()});
  return files;
}

// Fills in the answer to a start message if all its files have arrived already.
void AllReceived(const std::vector<data::UploadFile>& files, v1::Upload& wire) {
  for (const data::UploadFile& received : files) {
    auto* file = wire.add_files();
    file->set_path(ValidUtf8(received.path));
    file->set_bytes(received.bytes);
    file->set_received_bytes(received.bytes);
  }
  wire.set_complete(true);
}

void UploadToWire(const data::UploadWriter& writer, v1::Upload& wire) {
  for (size_t i = 0; i < writer.files().size(); ++i) {
    auto* file = wire.add_files();
    file->set_path(ValidUtf8(writer.files()[i].path));
    file->set_bytes(writer.files()[i].bytes);
    file->set_received_bytes(writer.received()[i]);
  }
  wire.set_complete(writer.complete());
}

// One call of UploadDataset (see ClientStream): streams a client's chunks into an UploadStore. Also borrows the store
// and the request log.
class UploadCall final : public ClientStream<v1::UploadDatasetRequest, data::UploadWriter> {
 public:
  UploadCall(grpc::CallbackServerContext& context, CallLimit::Slot slot, data::UploadStore& store,
             jobs::RequestLog& requests, StreamSet& streams, absl::Duration unread, v1::Upload& response)
      : ClientStream(context, std::move(slot), streams, unread),
        store_(store),
        requests_(requests),
        response_(response) {}

 private:
  absl::StatusOr<std::unique_ptr<data::UploadWriter>> Begin(const v1::UploadDatasetRequest& start) override;
  absl::Status Append(data::UploadWriter& writer, const v1::UploadDatasetRequest& data) override {
    const v1::UploadChunk& chunk = data.chunk();
    return writer.Append(chunk.file(), chunk.offset(), chunk.data(), chunk.xxh3());
  }
  absl::Status End(data::UploadWriter& writer) override;

  data::UploadStore& store_;
  jobs::RequestLog& requests_;
  v1::Upload& response_;
  jobs::RequestKey key_;  // key of the start
};

absl::StatusOr<std::unique_ptr<data::UploadWriter>> UploadCall::Begin(const v1::UploadDatasetRequest& start) {
  Violations violations;
  const auto id = ParseUploadName("start.name", start.start().name());
  const std::vector<data::UploadFile> files = FilesFromWire(start.start());
  violations.AddMissing(id.status());
  violations.AddMissing(data::CheckUpload(files));
  PF_RETURN_IF_ERROR(violations.ToStatus());
  key_ = KeyOf(start.start());
  PF_ASSIGN_OR_RETURN(const bool answered, requests_.IsAnswered(key_));
  response_.set_name(start.start().name());
  // A daemon that was restored from a backup may have the call on record, but not the upload.
  if (answered && store_.Source(*id).ok()) {
    AllReceived(files, response_);
    return nullptr;
  }
  return store_.Open(*id, files);
}

absl::Status UploadCall::End(data::UploadWriter& writer) {
  PF_RETURN_IF_ERROR(writer.Finish());
  UploadToWire(writer, response_);
  if (response_.complete()) requests_.Remember(key_);
  return absl::OkStatus();
}

// Errors: InvalidArgument with a violation for each bad field.
absl::Status ListUploadsOf(data::UploadStore& store, const v1::ListUploadsRequest& request,
                           v1::ListUploadsResponse& response) {
  Violations violations;
  const auto page_size = static_cast<size_t>(ReadPageSize(request.page_size(), violations));
  const UploadId after = ReadUploadPageToken(request.page_token(), violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  // Asks for one upload more than the page holds, to learn whether this is the last page.
  const std::vector<data::UploadStore::Listed> list = store.List(after, page_size + 1);
  for (size_t i = 0; i < std::min(list.size(), page_size); ++i) {
    const data::UploadStore::Listed& listed = list[i];
    v1::Upload& wire = *response.add_uploads();
    wire.set_name(FormatUploadName(listed.id));
    wire.set_complete(listed.complete);
    wire.set_num_files(static_cast<int32_t>(listed.files));
    wire.set_bytes(static_cast<int64_t>(listed.account.declared));
    wire.set_received_bytes(static_cast<int64_t>(listed.account.received));
    wire.set_counted_bytes(static_cast<int64_t>(listed.account.counted));
    wire.set_sending(listed.account.sending);
    SetTime(listed.last_use, [&wire] { return wire.mutable_last_use_time(); });
  }
  if (list.size() > page_size) response.set_next_page_token(MakeUploadPageToken(list[page_size - 1].id));
  response.set_counted_bytes(static_cast<int64_t>(store.totals().counted));
  response.set_max_bytes(static_cast<int64_t>(store.max_bytes()));
  return absl::OkStatus();
}

absl::Status NoUploads() { return absl::UnimplementedError("this server takes no uploads"); }

}  // namespace

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::ServerWriteReactor;
using Seen = jobs::Earlier::Seen;

ServerUnaryReactor* DatasetService::ImportDataset(CallbackServerContext* context,
                                                  const v1::ImportDatasetRequest* request, v1::Dataset* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Import(*request, *response); });
}

ServerUnaryReactor* DatasetService::GetDataset(CallbackServerContext* context, const v1::GetDatasetRequest* request,
                                               v1::Dataset* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return Get(*request, *response); });
}

ServerUnaryReactor* DatasetService::ListDatasets(CallbackServerContext* context, const v1::ListDatasetsRequest* request,
                                                 v1::ListDatasetsResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this] { return List(*request, *response); });
}

ServerUnaryReactor* DatasetService::ListUploads(CallbackServerContext* context, const v1::ListUploadsRequest* request,
                                                v1::ListUploadsResponse* response) {
  return ReplyLater(context, limits_.workers, [=, this] {
    return uploads_ == nullptr ? absl::OkStatus() : ListUploadsOf(*uploads_, *request, *response);
  });
}

ServerUnaryReactor* DatasetService::DeleteDataset(CallbackServerContext* context,
                                                  const v1::DeleteDatasetRequest* request,
                                                  google::protobuf::Empty* /*response*/) {
  absl::StatusOr<DatasetId> id = ParseDatasetName("name", request->name());
  if (!id.ok()) return Reply(context, id.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.deletions.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  // The call has its own thread, because it waits for the disk.
  return StartThreadedCall(
      context, "the deletion", *std::move(slot),
      [this, id = *std::move(id), etag = request->etag(), key = KeyOf(*request)] { return DeleteOnce(id, etag, key); });
}

grpc::ServerReadReactor<v1::UploadDatasetRequest>* DatasetService::UploadDataset(CallbackServerContext* context,
                                                                                 v1::Upload* response) {
  if (uploads_ == nullptr) return new RefusedStream<v1::UploadDatasetRequest>(NoUploads());
  absl::StatusOr<CallLimit::Slot> slot = limits_.uploads.Take(*context);
  if (!slot.ok()) return new RefusedStream<v1::UploadDatasetRequest>(slot.status());
  return UploadCall::Start(
      new UploadCall(*context, *std::move(slot), *uploads_, jobs_.requests(), streams_, unread_, *response),
      "the upload");
}

ServerUnaryReactor* DatasetService::DeleteUpload(CallbackServerContext* context, const v1::DeleteUploadRequest* request,
                                                 google::protobuf::Empty* /*response*/) {
  absl::StatusOr<UploadId> id = ParseUploadName("name", request->name());
  if (!id.ok()) return Reply(context, id.status());
  if (uploads_ == nullptr) return Reply(context, NoUploads());
  absl::StatusOr<CallLimit::Slot> slot = limits_.deletions.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "the deletion", *std::move(slot),
                           [this, id = *std::move(id), key = KeyOf(*request)] { return DeleteUploadOnce(id, key); });
}

ServerWriteReactor<v1::Dataset>* DatasetService::WatchDataset(CallbackServerContext* context,
                                                              const v1::WatchDatasetRequest* request) {
  return StartStream<v1::Dataset>(*context, limits_.watches, streams_,
                                  [&]() -> absl::StatusOr<std::unique_ptr<DatasetWatch>> {
                                    PF_ASSIGN_OR_RETURN(DatasetId id, ParseDatasetName("name", request->name()));
                                    return std::make_unique<DatasetWatch>(catalog_, std::move(id));
                                  });
}

ServerWriteReactor<v1::VerifyDatasetResponse>* DatasetService::VerifyDataset(CallbackServerContext* context,
                                                                             const v1::VerifyDatasetRequest* request) {
  return StartStream<v1::VerifyDatasetResponse>(
      *context, limits_.dataset_reads, streams_,
      [&]() -> absl::StatusOr<std::unique_ptr<DeferredSource<v1::VerifyDatasetResponse>>> {
        return std::make_unique<DeferredSource<v1::VerifyDatasetResponse>>(
            [this, request = *request] { return OpenVerify(request); });
      });
}

ServerUnaryReactor* DatasetService::SampleDataset(CallbackServerContext* context,
                                                  const v1::SampleDatasetRequest* request,
                                                  v1::SampleDatasetResponse* response) {
  Violations violations;
  absl::StatusOr<DatasetId> id = ParseDatasetName("name", request->name());
  absl::StatusOr<data::SampleQuery> query = SampleQueryFromWire(*request);
  violations.AddMissing(id.status());
  violations.AddMissing(query.status());
  if (!violations.empty()) return Reply(context, violations.ToStatus());
  absl::StatusOr<CallLimit::Slot> slot = limits_.dataset_reads.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(context, "the sample", *std::move(slot),
                           [this, id = *std::move(id), query = *std::move(query), response]() -> absl::Status {
                             PF_ASSIGN_OR_RETURN(*response, DrawSample(catalog_, id, query));
                             return absl::OkStatus();
                           });
}

ServerUnaryReactor* DatasetService::PlanDataset(CallbackServerContext* context, const v1::PlanDatasetRequest* request,
                                                v1::PlanDatasetResponse* response) {
  Violations violations;
  absl::StatusOr<DatasetId> id = ParseDatasetName("name", request->name());
  violations.AddMissing(id.status());
  absl::StatusOr<data::ReadPlanQuery> query = ReadPlanQueryFromWire(*request);
  violations.AddMissing(query.status());
  if (query.ok()) violations.AddMissing(ReadPlanErrorToWire({}, data::CheckReadPlanQuery(*query)));
  if (!violations.empty()) return Reply(context, violations.ToStatus());
  absl::StatusOr<CallLimit::Slot> slot = limits_.dataset_reads.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the plan", *std::move(slot),
      [this, id = *std::move(id), query = *std::move(query), context, response]() -> absl::Status {
        PF_ASSIGN_OR_RETURN(*response, MakePlan(catalog_, id, query, [context] { return !context->IsCancelled(); }));
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<StreamSource<v1::VerifyDatasetResponse>>> DatasetService::OpenVerify(
    const v1::VerifyDatasetRequest& request) {
  PF_ASSIGN_OR_RETURN(const DatasetId id, ParseDatasetName("name", request.name()));
  PF_ASSIGN_OR_RETURN(data::OpenedDataset dataset, catalog_.Open(id));
  return std::make_unique<VerifySource>(std::move(dataset), verify_hub_, std::to_string(++verifications_));
}

absl::Status DatasetService::Import(const v1::ImportDatasetRequest& request, v1::Dataset& response) {
  PF_ASSIGN_OR_RETURN(ImportRequest import, ImportRequestFromWire(request));
  if (request.validate_only()) {
    if (!request.upload().empty()) PF_RETURN_IF_ERROR(FindUploaded(request.upload(), import.options));
    PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Validate(import.id, std::move(import.options)));
    response = DatasetToWire(dataset);
    return absl::OkStatus();
  }
  return jobs_.requests().Once(
      KeyOf(request), IdentityOf(import.id), [&](const jobs::Earlier& earlier) -> absl::Status {
        // If the earlier call was begun, and a new dataset has appeared since then, the catalog had accepted the
        // earlier call.
        const std::string now = IdentityOf(import.id);
        const bool done =
            earlier.seen == Seen::kAnswered || (earlier.seen == Seen::kBegun && !now.empty() && now != earlier.subject);
        absl::StatusOr<data::Dataset> dataset;
        if (done) {
          dataset = catalog_.Get(import.id);
        } else {
          if (!request.upload().empty()) PF_RETURN_IF_ERROR(FindUploaded(request.upload(), import.options));
          dataset = catalog_.Import(import.id, std::move(import.options));
        }
        PF_RETURN_IF_ERROR(dataset.status());
        response = DatasetToWire(*dataset);
        return absl::OkStatus();
      });
}

std::string DatasetService::IdentityOf(const DatasetId& id) const {
  const absl::StatusOr<data::Dataset> dataset = catalog_.Get(id);
  return dataset.ok() ? dataset->uid : "";
}

absl::Status DatasetService::DeleteOnce(const DatasetId& id, const std::string& etag, const jobs::RequestKey& request) {
  return jobs_.requests().Once(request, IdentityOf(id), [&](const jobs::Earlier& earlier) {
    // If the name now belongs to a newer dataset, the dataset that the earlier call named is already deleted.
    const bool done =
        earlier.seen == Seen::kAnswered || (earlier.seen == Seen::kBegun && IdentityOf(id) != earlier.subject);
    return done ? absl::OkStatus() : catalog_.Delete(id, etag, [this, &id] { return jobs_.CheckDatasetUnused(id); });
  });
}

absl::Status DatasetService::DeleteUploadOnce(const UploadId& id, const jobs::RequestKey& request) {
  return jobs_.requests().Once(request, "", [&](const jobs::Earlier& earlier) {
    if (earlier.seen == Seen::kAnswered) return absl::OkStatus();
    const absl::Status deleted = uploads_->Delete(id);
    return earlier.seen == Seen::kBegun && absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
  });
}

absl::Status DatasetService::FindUploaded(const std::string& upload, data::ImportOptions& options) const {
  PF_ASSIGN_OR_RETURN(const UploadId id, ParseUploadName("upload", upload));
  if (uploads_ == nullptr) return NoUploads();
  // The path must lie inside the upload's directory. A lexical check is enough, because this directory has no
  // symlinks.
  const std::filesystem::path path = options.source.lexically_normal();
  if (path.is_absolute() || (!path.empty() && *path.begin() == "..")) {
    Violations violations;
    violations.Add("options.source_path", absl::StrCat(ValidUtf8(path.string()), " is not a path in the upload"));
    return violations.ToStatus();
  }
  PF_ASSIGN_OR_RETURN(const std::filesystem::path folder, uploads_->Source(id));
  options.source = path.empty() ? folder : folder / path;
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

}  // namespace permafrost::api
