#include "api/wire/convert_program.h"

#include <utility>

#include "api/wire/convert_time.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_fields.h"
#include "base/status.h"

namespace permafrost::api {

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

}  // namespace permafrost::api
