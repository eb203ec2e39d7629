// Programs between the wire and the domain.
// Threads: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "base/id.h"
#include "jobs/program_store.h"
#include "permafrost/v1/program.pb.h"

namespace permafrost::api {

struct ProgramUploadStart {
  ProgramId id;
  jobs::ProgramArchive archive;
};

// Errors: InvalidArgument with a violation for each bad field ("start.bytes").
absl::StatusOr<ProgramUploadStart> ProgramStartFromWire(const v1::ProgramStart& wire);

v1::Program ProgramToWire(const jobs::StoredProgram& program);

}  // namespace permafrost::api
