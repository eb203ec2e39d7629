// The files of one program, in its folder: program.pt2 and program.json.
// Threads: safe anywhere; callers keep two writers from one folder.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/resources.h"
#include "jobs/program_store.h"

namespace permafrost::jobs {

inline constexpr char kProgramArchive[] = "program.pt2";
inline constexpr char kProgramRecord[] = "program.json";

// True for a folder, not for a link to one.
bool IsFolder(const std::filesystem::path& path);
// True for 16 lower-case hex digits.
bool IsHash(const std::string& text);

// The text of program.json.
std::string ProgramToJson(const StoredProgram& program);
// Returns the program whose folder it is. Errors: those of SystemError; DataLoss where the files are not a program's.
absl::StatusOr<StoredProgram> ReadProgram(const ProgramId& id, const std::filesystem::path& folder);
// True for a folder that holds nothing but a program's files, or some of them.
bool HoldsOnlyAProgram(const std::filesystem::path& folder);
// Removes a program's files, and then the folder, which fails if something else lies in it.
absl::Status RemoveProgram(const std::filesystem::path& folder);
// Makes `to` a hard link to the archive in `folder`, or a copy, and compares its bytes with the checksum. After an
// error a part of it may be there. Errors: as ProgramStore::CopyTo.
absl::Status LinkOrCopy(const std::filesystem::path& folder, const std::filesystem::path& to,
                        const StoredProgram& program, const DiskReserve& reserve);

}  // namespace permafrost::jobs
