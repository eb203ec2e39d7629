#include "api/services/program_service.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "api/services/unary.h"
#include "api/streams/client_stream.h"
#include "api/streams/program_upload_call.h"
#include "api/wire/convert_program.h"
#include "api/wire/paging.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

absl::Status NoPrograms() { return absl::UnimplementedError("this server keeps no programs"); }

}  // namespace

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using Seen = jobs::Earlier::Seen;

grpc::ServerReadReactor<v1::UploadProgramRequest>* ProgramService::UploadProgram(CallbackServerContext* context,
                                                                                 v1::Program* response) {
  using Refused = RefusedStream<v1::UploadProgramRequest>;
  if (programs_ == nullptr) return new Refused(NoPrograms());
  absl::StatusOr<CallLimit::Slot> slot = limits_.uploads.Take(*context);
  if (!slot.ok()) return new Refused(slot.status());
  return ProgramUploadCall::Start(*context, *std::move(slot), *programs_, requests_, streams_, unread_, *response);
}

ServerUnaryReactor* ProgramService::GetProgram(CallbackServerContext* context, const v1::GetProgramRequest* request,
                                               v1::Program* response) {
  if (programs_ == nullptr) return Reply(context, NoPrograms());
  return ReplyLater(context, limits_.workers, [=, this] { return Get(*request, *response); });
}

ServerUnaryReactor* ProgramService::ListPrograms(CallbackServerContext* context, const v1::ListProgramsRequest* request,
                                                 v1::ListProgramsResponse* response) {
  if (programs_ == nullptr) return Reply(context, NoPrograms());
  return ReplyLater(context, limits_.workers, [=, this] { return List(*request, *response); });
}

ServerUnaryReactor* ProgramService::DeleteProgram(CallbackServerContext* context,
                                                  const v1::DeleteProgramRequest* request,
                                                  google::protobuf::Empty* /*response*/) {
  if (programs_ == nullptr) return Reply(context, NoPrograms());
  absl::StatusOr<ProgramId> id = ParseProgramName("name", request->name());
  if (!id.ok()) return Reply(context, id.status());
  absl::StatusOr<CallLimit::Slot> slot = limits_.deletions.Take(*context);
  if (!slot.ok()) return Reply(context, slot.status());
  return StartThreadedCall(
      context, "the deletion", *std::move(slot),
      [this, id = *std::move(id), etag = request->etag(), key = KeyOf(*request)] { return DeleteOnce(id, etag, key); });
}

absl::Status ProgramService::Get(const v1::GetProgramRequest& request, v1::Program& response) const {
  PF_ASSIGN_OR_RETURN(const ProgramId id, ParseProgramName("name", request.name()));
  PF_ASSIGN_OR_RETURN(const jobs::StoredProgram program, programs_->Get(id));
  response = ProgramToWire(program);
  return absl::OkStatus();
}

absl::Status ProgramService::List(const v1::ListProgramsRequest& request, v1::ListProgramsResponse& response) const {
  Violations violations;
  const auto page_size = static_cast<size_t>(ReadPageSize(request.page_size(), violations));
  const ProgramId after = ReadProgramPageToken(request.page_token(), violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  // One more tells whether this is the last page.
  const std::vector<jobs::StoredProgram> list = programs_->List(after, page_size + 1);
  for (size_t i = 0; i < std::min(list.size(), page_size); ++i) *response.add_programs() = ProgramToWire(list[i]);
  if (list.size() > page_size) response.set_next_page_token(MakeProgramPageToken(list[page_size - 1].id));
  return absl::OkStatus();
}

std::string ProgramService::IdentityOf(const ProgramId& id) const {
  const absl::StatusOr<jobs::StoredProgram> program = programs_->Get(id);
  return program.ok() ? program->etag : "";
}

absl::Status ProgramService::DeleteOnce(const ProgramId& id, const std::string& etag, const jobs::RequestKey& request) {
  return requests_.Once(request, IdentityOf(id), [&](const jobs::Earlier& earlier) {
    // A program uploaded under its name since is not the one that was meant.
    const bool done =
        earlier.seen == Seen::kAnswered || (earlier.seen == Seen::kBegun && IdentityOf(id) != earlier.subject);
    return done ? absl::OkStatus() : programs_->Delete(id, etag);
  });
}

}  // namespace permafrost::api
