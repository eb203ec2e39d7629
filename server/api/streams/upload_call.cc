#include "api/streams/upload_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/wire/convert_time.h"
#include "api/wire/paging.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "api/wire/text.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

std::vector<data::UploadFile> FilesFromWire(const v1::UploadStart& wire) {
  std::vector<data::UploadFile> files;
  files.reserve(static_cast<size_t>(wire.files_size()));
  for (const auto& file : wire.files())
    files.push_back({.path = file.path(), .bytes = file.bytes(), .xxh3 = file.xxh3()});
  return files;
}

// The answer to a start whose files had all come.
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

}  // namespace

grpc::ServerReadReactor<v1::UploadDatasetRequest>* UploadCall::Start(grpc::CallbackServerContext& context,
                                                                     CallLimit::Slot slot, data::UploadStore& store,
                                                                     jobs::RequestLog& requests, StreamSet& streams,
                                                                     absl::Duration unread, v1::Upload& response) {
  return ClientStream::Start(new UploadCall(context, std::move(slot), store, requests, streams, unread, response),
                             "the upload");
}

absl::Status UploadCall::Receive() {
  std::unique_ptr<data::UploadWriter> writer;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const bool more, NextRequest());
    if (!more) break;
    PF_RETURN_IF_ERROR(Take(request(), writer));
    if (response_.name().empty()) response_.set_name(request().start().name());
    if (response_.complete()) return absl::OkStatus();  // it had come, all of it, before
  }
  PF_RETURN_IF_ERROR(CheckClient());
  if (!writer) return absl::InvalidArgumentError("start: is missing; it comes before the chunks");
  PF_RETURN_IF_ERROR(writer->Finish());
  UploadToWire(*writer, response_);
  if (response_.complete()) requests_.Remember(key_);
  return absl::OkStatus();
}

absl::Status UploadCall::Take(const v1::UploadDatasetRequest& request, std::unique_ptr<data::UploadWriter>& writer) {
  if (request.has_start() == (writer != nullptr)) {
    return absl::InvalidArgumentError(writer ? "start: comes once, before the chunks"
                                             : "start: is missing; it comes before the chunks");
  }
  if (request.has_start()) {
    Violations violations;
    const auto id = ParseUploadName("start.name", request.start().name());
    const std::vector<data::UploadFile> files = FilesFromWire(request.start());
    violations.AddMissing(id.status());
    violations.AddMissing(data::CheckUpload(files));
    PF_RETURN_IF_ERROR(violations.ToStatus());
    key_ = KeyOf(request.start());
    PF_ASSIGN_OR_RETURN(const bool answered, requests_.IsAnswered(key_));
    // A daemon that goes on from a backup knows of uploads that are not there.
    if (answered && store_.Source(*id).ok()) {
      AllReceived(files, response_);
      return absl::OkStatus();
    }
    PF_ASSIGN_OR_RETURN(writer, store_.Open(*id, files));
    return absl::OkStatus();
  }
  const v1::UploadChunk& chunk = request.chunk();
  return writer->Append(chunk.file(), chunk.offset(), chunk.data(), chunk.xxh3());
}

absl::Status ListUploadsOf(data::UploadStore& store, const v1::ListUploadsRequest& request,
                           v1::ListUploadsResponse& response) {
  Violations violations;
  const auto page_size = static_cast<size_t>(ReadPageSize(request.page_size(), violations));
  const UploadId after = ReadUploadPageToken(request.page_token(), violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  // One more tells whether this is the last page.
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

}  // namespace permafrost::api
