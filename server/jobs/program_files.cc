#include "jobs/program_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "spec/stored_fields.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

struct RecordSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<StoredProgram>& p) {
    a("create_time", p.create_time);
    a("bytes", p.bytes);
    a("xxh3", p.xxh3);
    a("etag", p.etag);
    a("description", p.description);
  }
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& options) { spec::StoredFields(a, options); }
};

// Calls visit(piece) for all bytes of the file, in order.
template <class Visit>
absl::Status ReadPieces(const fs::path& path, const Visit& visit) {
  const Descriptor file = OpenRetrying(path, O_RDONLY | O_NOFOLLOW);
  if (!file.valid()) return SystemError(errno, path, "open");
  std::string piece(size_t{1} << 20, '\0');
  for (;;) {
    const ssize_t read = ::read(file.get(), piece.data(), piece.size());
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError(errno, path, "read");
    if (read == 0) return absl::OkStatus();
    PF_RETURN_IF_ERROR(visit(std::string_view(piece.data(), static_cast<size_t>(read))));
  }
}

absl::Status CheckHash(const fs::path& path, const StreamHash& hash, const std::string& wanted) {
  const std::string found = HashHex(hash.Digest());
  if (found == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path.string(), ": has XXH3 ", found, ", not ", wanted));
}

// True for errors after which a copy may work: no hard links here, too many of them, or another file system.
bool CannotLink(int error) {
  return error == EXDEV || error == EPERM || error == EMLINK || error == ENOTSUP || error == ENOSYS || error == EACCES;
}

}  // namespace

bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

bool IsHash(const std::string& text) {
  constexpr size_t kHexDigits = 16;
  return text.size() == kHexDigits && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

std::string ProgramToJson(const StoredProgram& program) { return WriteJson<RecordSchema>(program) + "\n"; }

bool HoldsOnlyAProgram(const fs::path& folder) {
  if (!IsFolder(folder)) return false;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != kProgramArchive && name != kProgramRecord) return false;
    if (!fs::is_regular_file(it->symlink_status(error))) return false;
  }
  return !error;
}

absl::Status RemoveProgram(const fs::path& folder) {
  PF_RETURN_IF_ERROR(RemoveAll(folder / kProgramArchive));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kProgramRecord));
  std::error_code error;
  fs::remove(folder, error);
  return error ? SystemError(error.value(), folder, "remove") : absl::OkStatus();
}

absl::StatusOr<StoredProgram> ReadProgram(const ProgramId& id, const fs::path& folder) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder / kProgramRecord));
  absl::StatusOr<StoredProgram> program = ReadJson<RecordSchema, StoredProgram>("program record", text);
  if (!program.ok()) return Annotate(program.status(), (folder / kProgramRecord).string());
  program->id = id;
  struct stat file {};
  if (lstat((folder / kProgramArchive).c_str(), &file) != 0) {
    return SystemError(errno, folder / kProgramArchive, "look at");
  }
  const bool is_whole = S_ISREG(file.st_mode) && file.st_size == program->bytes;
  if (!is_whole || !IsHash(program->xxh3) || program->etag.empty()) {
    return absl::DataLossError(
        absl::StrCat((folder / kProgramArchive).string(), ": is not the archive of ", kProgramRecord));
  }
  return program;
}

absl::Status LinkOrCopy(const fs::path& folder, const fs::path& to, const StoredProgram& program,
                        const DiskReserve& reserve) {
  const fs::path from = folder / kProgramArchive;
  StreamHash hash;
  const auto take = [&hash](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    return absl::OkStatus();
  };
  if (link(from.c_str(), to.c_str()) == 0) {
    PF_RETURN_IF_ERROR(ReadPieces(to, take));
    return CheckHash(from, hash, program.xxh3);
  }
  if (!CannotLink(errno)) return SystemError(errno, from, absl::StrCat("link to ", to.string()));
  PF_RETURN_IF_ERROR(reserve.Check(static_cast<uint64_t>(program.bytes)));
  PF_ASSIGN_OR_RETURN(FileWriter copy, FileWriter::Create(to));
  PF_RETURN_IF_ERROR(ReadPieces(from, [&](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    return copy.Append(piece.data(), piece.size());
  }));
  PF_RETURN_IF_ERROR(CheckHash(from, hash, program.xxh3));
  return copy.SyncAndClose();
}

}  // namespace permafrost::jobs
