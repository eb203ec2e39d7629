#include "api/services/program_service.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/guard/call_limits.h"
#include "api/services/unary.h"
#include "api/streams/client_stream.h"
#include "api/streams/server_stream.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_fields.h"
#include "api/wire/wire_values.h"
#include "base/id.h"
#include "base/status.h"
#include "jobs/job_store.h"
#include "jobs/program_store.h"
#include "jobs/request_log.h"

namespace permafrost::api {
namespace {

struct ProgramUploadStart {
  ProgramId id;
  jobs::ProgramArchive archive;
};

// Errors: InvalidArgument with a violation for each bad field ("start.bytes").
absl::StatusOr<ProgramUploadStart> ProgramStartFromWire(const v1::ProgramStart& wire) {
  Violations violations;
  absl::StatusOr<ProgramId> id = ParseProgramName("start.name", wire.name());
  jobs::ProgramArchive archive{.bytes = wire.bytes(), .xxh3 = wire.xxh3()};
  violations.AddMissing(id.status());
  violations.AddMissing(jobs::CheckProgramArchive(archive));
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return ProgramUploadStart{.id = *std::move(id), .archive = std::move(archive)};
}

v1::Program ProgramToWire(const jobs::StoredProgram& program) {
  v1::Program wire;
  wire.set_name(FormatProgramName(program.id));
  SetTime(program.create_time, [&wire] { return wire.mutable_create_time(); });
  wire.set_bytes(program.bytes);
  wire.set_xxh3(program.xxh3);
  wire.set_etag(program.etag);
  WireWriter(wire).Write(program.description);
  return wire;
}

// One call of UploadProgram (see ClientStream): streams a client's bytes into a ProgramStore. Also borrows the store
// and the request log.
class ProgramUploadCall final : public ClientStream<v1::UploadProgramRequest, jobs::ProgramUpload> {
 public:
  ProgramUploadCall(grpc::CallbackServerContext& context, CallLimit::Slot slot, jobs::ProgramStore& store,
                    jobs::RequestLog& requests, StreamSet& streams, absl::Duration unread, v1::Program& response)
      : ClientStream(context, std::move(slot), streams, unread),
        store_(store),
        requests_(requests),
        response_(response) {}

 private:
  absl::StatusOr<std::unique_ptr<jobs::ProgramUpload>> Begin(const v1::UploadProgramRequest& start) override;
  absl::Status Append(jobs::ProgramUpload& upload, const v1::UploadProgramRequest& data) override {
    return upload.Append(data.data());
  }
  absl::Status End(jobs::ProgramUpload& upload) override;

  jobs::ProgramStore& store_;
  jobs::RequestLog& requests_;
  v1::Program& response_;
  jobs::RequestKey key_;  // key of the start
};

absl::StatusOr<std::unique_ptr<jobs::ProgramUpload>> ProgramUploadCall::Begin(const v1::UploadProgramRequest& start) {
  PF_ASSIGN_OR_RETURN(const ProgramUploadStart asked, ProgramStartFromWire(start.start()));
  key_ = KeyOf(start.start());
  PF_ASSIGN_OR_RETURN(const bool answered, requests_.IsAnswered(key_));
  const absl::StatusOr<jobs::StoredProgram> equal = store_.FindEqual(asked.id, asked.archive);
  if (!equal.ok() && (answered || !absl::IsNotFound(equal.status()))) return equal.status();
  if (equal.ok()) {
    response_ = ProgramToWire(*equal);
    requests_.Remember(key_);
    return nullptr;
  }
  return store_.BeginUpload(asked.id, asked.archive);
}

absl::Status ProgramUploadCall::End(jobs::ProgramUpload& upload) {
  PF_ASSIGN_OR_RETURN(const jobs::StoredProgram program, upload.Finish());
  response_ = ProgramToWire(program);
  requests_.Remember(key_);
  return absl::OkStatus();
}

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
  return ProgramUploadCall::Start(
      new ProgramUploadCall(*context, *std::move(slot), *programs_, requests_, streams_, unread_, *response),
      "the upload");
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
  // Asks for one program more than the page holds, to learn whether this is the last page.
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
    // If the name now belongs to a newer program, the program that the earlier call named is already deleted.
    const bool done =
        earlier.seen == Seen::kAnswered || (earlier.seen == Seen::kBegun && IdentityOf(id) != earlier.subject);
    return done ? absl::OkStatus() : programs_->Delete(id, etag);
  });
}

}  // namespace permafrost::api
