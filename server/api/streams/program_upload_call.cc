#include "api/streams/program_upload_call.h"

#include "api/wire/convert_program.h"
#include "api/wire/request_key.h"
#include "base/status.h"

namespace permafrost::api {

grpc::ServerReadReactor<v1::UploadProgramRequest>* ProgramUploadCall::Start(
    grpc::CallbackServerContext& context, CallLimit::Slot slot, jobs::ProgramStore& store, jobs::RequestLog& requests,
    StreamSet& streams, absl::Duration unread, v1::Program& response) {
  return ClientStream::Start(
      new ProgramUploadCall(context, std::move(slot), store, requests, streams, unread, response), "the upload");
}

absl::Status ProgramUploadCall::Begin(const v1::ProgramStart& start, std::unique_ptr<jobs::ProgramUpload>& upload) {
  PF_ASSIGN_OR_RETURN(const ProgramUploadStart asked, ProgramStartFromWire(start));
  key_ = KeyOf(start);
  PF_ASSIGN_OR_RETURN(const bool answered, requests_.IsAnswered(key_));
  const absl::StatusOr<jobs::StoredProgram> equal = store_.FindEqual(asked.id, asked.archive);
  if (!equal.ok() && (answered || !absl::IsNotFound(equal.status()))) return equal.status();
  if (equal.ok()) {
    response_ = ProgramToWire(*equal);
    requests_.Remember(key_);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(upload, store_.BeginUpload(asked.id, asked.archive));
  return absl::OkStatus();
}

absl::Status ProgramUploadCall::Receive() {
  std::unique_ptr<jobs::ProgramUpload> upload;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const bool more, NextRequest());
    if (!more) break;
    if (request().has_start() == (upload != nullptr)) {
      return absl::InvalidArgumentError(upload ? "start: comes once, before the data"
                                               : "start: is missing; it comes before the data");
    }
    if (upload) {
      PF_RETURN_IF_ERROR(upload->Append(request().data()));
    } else {
      PF_RETURN_IF_ERROR(Begin(request().start(), upload));
      if (!upload) return absl::OkStatus();
    }
  }
  PF_RETURN_IF_ERROR(CheckClient());
  if (!upload) return absl::InvalidArgumentError("start: is missing; it comes before the data");
  PF_ASSIGN_OR_RETURN(const jobs::StoredProgram program, upload->Finish());
  response_ = ProgramToWire(program);
  requests_.Remember(key_);
  return absl::OkStatus();
}

}  // namespace permafrost::api
