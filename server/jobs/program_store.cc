#include "jobs/program_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "base/string_view.h"
#include "spec/field.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kUploadPrefix = ".upload-", kDeletedPrefix = ".deleted-";
// The most bytes of program.json. The JSON of a program is longer than the message that describes the program to a
// client. So the message stays below the 4 MiB that a client accepts.
constexpr size_t kMostRecordBytes = size_t{3} << 20;

std::string NewEtag() {
  std::random_device random;
  std::uniform_int_distribution<uint64_t> bits;
  return HashHex(bits(random));
}

std::string NameOf(const ProgramId& id) { return absl::StrCat("programs/", id.value()); }

absl::Status NotFoundError(const ProgramId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat(NameOf(id), ": not found")), "PROGRAM_NOT_FOUND",
                    {{"program", id.value()}});
}

// Returns true for a name such as "12-NAME", as NewFolder makes it after the prefix.
bool IsNumberedId(absl::string_view name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0) return false;
  name.remove_prefix(digits);
  if (!absl::ConsumePrefix(&name, "-")) return false;
  return CheckIdSyntax("name", StdView(name)).ok();
}

// Returns the program as List does, without forms and tensors.
StoredProgram Summary(StoredProgram program) {
  program.description.forms.clear();
  program.description.tensors.clear();
  return program;
}

absl::StatusOr<StoredProgram> CheckEqual(StoredProgram program, const ProgramArchive& archive) {
  if (program.bytes == archive.bytes && program.xxh3 == archive.xxh3) return program;
  return WithReason(
      absl::AlreadyExistsError(absl::StrCat(NameOf(program.id), ": is another archive, of ", program.bytes,
                                            " bytes and XXH3 ", program.xxh3, "; take another name, or delete it")),
      "PROGRAM_ALREADY_EXISTS", {{"program", program.id.value()}});
}

constexpr char kProgramArchive[] = "program.pt2";
constexpr char kProgramRecord[] = "program.json";

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

// Calls `take` with each piece of the file. A symbolic link is an error.
absl::Status ReadWithoutLinks(const fs::path& path, const std::function<absl::Status(std::string_view)>& take) {
  const Descriptor file = OpenRetrying(path, O_RDONLY | O_NOFOLLOW);
  if (!file.valid()) return SystemError(errno, path, "open");
  return ReadPieces(file, path, size_t{1} << 20, take);
}

absl::Status CheckHash(const fs::path& path, const StreamHash& hash, const std::string& wanted) {
  const std::string found = HashHex(hash.Digest());
  if (found == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path.string(), ": has XXH3 ", found, ", not ", wanted));
}

// Returns true for errors of link() after which a copy may succeed. They mean that the file system has no hard links,
// that the file has too many links, or that the target is on another file system.
bool CannotLink(int error) {
  return error == EXDEV || error == EPERM || error == EMLINK || error == ENOTSUP || error == ENOSYS || error == EACCES;
}

// Returns true for a folder, but not for a symbolic link to one.
bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Returns true for 16 lower-case hex digits.
bool IsHash(const std::string& text) {
  constexpr size_t kHexDigits = 16;
  return text.size() == kHexDigits && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

// Returns the text of program.json.
std::string ProgramToJson(const StoredProgram& program) { return WriteJson<RecordSchema>(program) + "\n"; }

// Returns true for a folder that holds nothing but some or all of a program's files.
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

// Removes a program's files, and then the folder. Fails if the folder holds anything else.
absl::Status RemoveProgram(const fs::path& folder) {
  PF_RETURN_IF_ERROR(RemoveAll(folder / kProgramArchive));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kProgramRecord));
  std::error_code error;
  fs::remove(folder, error);
  return error ? SystemError(error.value(), folder, "remove") : absl::OkStatus();
}

// Reads the program in a folder. Errors: those of SystemError; DataLoss if the files are not those of a program.
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

// Makes `to` a hard link to the archive in `folder`, or a copy of it, and compares its bytes with the checksum. After
// an error `to` may exist, whole or in part. Errors: same as ProgramStore::CopyTo.
absl::Status LinkOrCopy(const fs::path& folder, const fs::path& to, const StoredProgram& program,
                        const DiskReserve& reserve) {
  const fs::path from = folder / kProgramArchive;
  StreamHash hash;
  const auto take = [&hash](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    return absl::OkStatus();
  };
  if (link(from.c_str(), to.c_str()) == 0) {
    PF_RETURN_IF_ERROR(ReadWithoutLinks(to, take));
    return CheckHash(from, hash, program.xxh3);
  }
  if (!CannotLink(errno)) return SystemError(errno, from, absl::StrCat("link to ", to.string()));
  PF_RETURN_IF_ERROR(reserve.Check(static_cast<uint64_t>(program.bytes)));
  PF_ASSIGN_OR_RETURN(FileWriter copy, FileWriter::Create(to));
  PF_RETURN_IF_ERROR(ReadWithoutLinks(from, [&](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    return copy.Append(piece.data(), piece.size());
  }));
  PF_RETURN_IF_ERROR(CheckHash(from, hash, program.xxh3));
  return copy.SyncAndClose();
}

}  // namespace

absl::Status CheckProgramArchive(const ProgramArchive& archive) {
  Violations violations;
  if (archive.bytes < 1) violations.Add("start.bytes", absl::StrCat(archive.bytes, " is not 1 or more"));
  if (!IsHash(archive.xxh3)) violations.Add("start.xxh3", "is not 16 lower-case hex digits");
  return violations.ToStatus();
}

ProgramUpload::~ProgramUpload() {
  file_.reset();
  // If the program was published, the folder has its final name, and nothing is left to remove.
  if (IsFolder(folder_)) {
    if (const absl::Status removed = RemoveProgram(folder_); !removed.ok()) {
      store_.options_.warn(absl::StrCat("what is left of an upload cannot be removed: ", removed.message()));
    }
  }
  store_.EndUpload(archive_);
}

absl::Status ProgramUpload::Append(std::string_view data) {
  const int64_t end = static_cast<int64_t>(file_->size() + data.size());
  if (end > archive_.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(id_), ": data: ", end, " bytes came, and start.bytes told ", archive_.bytes));
  }
  PF_RETURN_IF_ERROR(store_.options_.reserve.Check(data.size()));
  hash_.Update(data.data(), data.size());
  return file_->Append(data.data(), data.size());
}

absl::StatusOr<StoredProgram> ProgramUpload::Finish() {
  if (static_cast<int64_t>(file_->size()) != archive_.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(id_), ": data: ", file_->size(), " bytes came, and start.bytes told ", archive_.bytes));
  }
  if (const std::string found = HashHex(hash_.Digest()); found != archive_.xxh3) {
    return absl::DataLossError(absl::StrCat(NameOf(id_), ": the bytes that came have XXH3 ", found,
                                            ", and start.xxh3 told ", archive_.xxh3, "; send them again"));
  }
  PF_RETURN_IF_ERROR(file_->SyncAndClose());
  StoredProgram program{.id = id_,
                        .create_time = absl::Now(),
                        .bytes = archive_.bytes,
                        .xxh3 = archive_.xxh3,
                        .etag = NewEtag(),
                        .description = {}};
  absl::StatusOr<spec::ProgramDescription> description = store_.options_.describe(folder_ / kProgramArchive);
  if (!description.ok()) return Annotate(description.status(), NameOf(id_));
  program.description = *std::move(description);
  const std::string record = ProgramToJson(program);
  if (record.size() > kMostRecordBytes) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(id_), ": the names and types of its ",
                                                   program.description.tensors.size(), " tensors take ", record.size(),
                                                   " bytes; accepted: at most ", kMostRecordBytes));
  }
  PF_RETURN_IF_ERROR(WriteFileSynced(folder_ / kProgramRecord, record));
  return store_.Publish(folder_, std::move(program));
}

absl::StatusOr<std::unique_ptr<ProgramStore>> ProgramStore::Open(ProgramStoreOptions options) {
  std::unique_ptr<ProgramStore> store(new ProgramStore(std::move(options)));
  const fs::path& directory = store->options_.directory;
  PF_RETURN_IF_ERROR(CreateDirectories(directory));
  PF_ASSIGN_OR_RETURN(const auto names, ListDirectory(directory));
  const absl::MutexLock lock(&store->mu_);
  for (const std::string& name : names.value_or(std::vector<std::string>())) PF_RETURN_IF_ERROR(store->TakeUp(name));
  return store;
}

absl::Status ProgramStore::TakeUp(const std::string& name) {
  const fs::path path = options_.directory / name;
  absl::string_view rest = name;
  if (absl::ConsumePrefix(&rest, kUploadPrefix) || absl::ConsumePrefix(&rest, kDeletedPrefix)) {
    if (!IsNumberedId(rest) || !HoldsOnlyAProgram(path)) {
      return Quarantine(path, "has a name of the server's own, which did not make it");
    }
    const absl::Status removed = RemoveProgram(path);
    // A failure only leads to a warning, because new folders avoid the names of existing ones.
    if (!removed.ok()) options_.warn(absl::StrCat("what is left of a program cannot be removed: ", removed.message()));
    return absl::OkStatus();
  }
  if (!CheckIdSyntax("name", name).ok()) return absl::OkStatus();  // not an entry of the store
  const ProgramId id(name);
  const absl::StatusOr<StoredProgram> program =
      IsFolder(path) ? ReadProgram(id, path) : absl::DataLossError("is no folder");
  if (IsTransient(program.status())) {
    options_.warn(absl::StrCat(NameOf(id), ": cannot be read, and is not served: ", program.status().message()));
    return absl::OkStatus();
  }
  if (!program.ok()) return Quarantine(path, absl::StrCat("is not a whole program: ", program.status().message()));
  bytes_ += static_cast<uint64_t>(program->bytes);
  programs_.emplace(id, Summary(*program));
  return absl::OkStatus();
}

absl::Status ProgramStore::Quarantine(const fs::path& path, std::string_view why) const {
  PF_ASSIGN_OR_RETURN(const fs::path to, MoveToQuarantine(options_.directory, path));
  options_.warn(absl::StrCat(path.string(), ": ", AbslView(why), "; moved to ", to.string()));
  return absl::OkStatus();
}

absl::StatusOr<StoredProgram> ProgramStore::Find(const ProgramId& id) const {
  const absl::MutexLock lock(&mu_);
  const auto found = programs_.find(id);
  if (found == programs_.end()) return NotFoundError(id);
  return found->second;
}

absl::StatusOr<StoredProgram> ProgramStore::Get(const ProgramId& id) const {
  PF_RETURN_IF_ERROR(Find(id).status());
  absl::StatusOr<StoredProgram> program = ReadProgram(id, options_.directory / id.value());
  // The program may have been deleted meanwhile.
  if (!program.ok() && !Find(id).ok()) return NotFoundError(id);
  return program;
}

std::vector<StoredProgram> ProgramStore::List(const ProgramId& after, size_t most) const {
  const absl::MutexLock lock(&mu_);
  std::vector<StoredProgram> list;
  list.reserve(std::min(most, programs_.size()));
  for (auto it = programs_.upper_bound(after); it != programs_.end() && list.size() < most; ++it) {
    list.push_back(it->second);
  }
  return list;
}

absl::StatusOr<StoredProgram> ProgramStore::FindEqual(const ProgramId& id, const ProgramArchive& archive) const {
  absl::StatusOr<StoredProgram> program = Get(id);
  return program.ok() ? CheckEqual(*std::move(program), archive) : program;
}

fs::path ProgramStore::NewFolder(absl::string_view prefix, const ProgramId& id) {
  fs::path folder;
  std::error_code ignored;
  do {
    folder = options_.directory / absl::StrCat(prefix, ++last_number_, "-", id.value());
  } while (fs::exists(fs::symlink_status(folder, ignored)));
  return folder;
}

absl::StatusOr<std::unique_ptr<ProgramUpload>> ProgramStore::BeginUpload(const ProgramId& id,
                                                                         const ProgramArchive& archive) {
  PF_RETURN_IF_ERROR(CheckProgramArchive(archive));
  if (const auto equal = FindEqual(id, archive); absl::IsAlreadyExists(equal.status())) return equal.status();
  std::unique_ptr<ProgramUpload> upload;
  {
    const absl::MutexLock lock(&mu_);
    const uint64_t taken = bytes_ + uploading_bytes_;
    if (taken > options_.max_bytes || static_cast<uint64_t>(archive.bytes) > options_.max_bytes - taken) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              NameOf(id), ": has ", archive.bytes, " bytes, and all programs may take ", options_.max_bytes,
              ", of which ", taken, " are taken; delete programs, or raise the server's --max-program-bytes")),
          "PROGRAMS_TOO_LARGE", {{"limit", absl::StrCat(options_.max_bytes)}});
    }
    PF_RETURN_IF_ERROR(options_.reserve.Check(static_cast<uint64_t>(archive.bytes)));
    upload.reset(new ProgramUpload(*this, id, archive, NewFolder(kUploadPrefix, id)));
    uploading_bytes_ += static_cast<uint64_t>(archive.bytes);
  }
  PF_RETURN_IF_ERROR(CreateDirectories(upload->folder_));
  PF_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(upload->folder_ / kProgramArchive));
  upload->file_ = std::make_unique<FileWriter>(std::move(file));
  return upload;
}

void ProgramStore::EndUpload(const ProgramArchive& archive) {
  const absl::MutexLock lock(&mu_);
  uploading_bytes_ -= static_cast<uint64_t>(archive.bytes);
}

absl::StatusOr<StoredProgram> ProgramStore::Publish(const fs::path& folder, StoredProgram program) {
  const fs::path path = options_.directory / program.id.value();
  const absl::MutexLock lock(&mu_);
  if (programs_.contains(program.id)) {
    PF_ASSIGN_OR_RETURN(StoredProgram earlier, ReadProgram(program.id, path));
    return CheckEqual(std::move(earlier), {.bytes = program.bytes, .xxh3 = program.xxh3});
  }
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    return AsTransient(absl::InternalError(
        absl::StrCat(path.string(), ": is there, and is not a program that can be read; take another name")));
  }
  if (absl::Status published = PublishDirectory(folder, path); !published.ok()) {
    // Undoes the rename, so that a failed upload does not appear at the next start.
    fs::rename(path, folder, ignored);
    return published;
  }
  bytes_ += static_cast<uint64_t>(program.bytes);
  programs_.emplace(program.id, Summary(program));
  return program;
}

absl::Status ProgramStore::Delete(const ProgramId& id, const std::string& etag) {
  fs::path deleted;
  {
    const absl::MutexLock lock(&mu_);
    const auto found = programs_.find(id);
    if (found == programs_.end()) return NotFoundError(id);
    const StoredProgram& program = found->second;
    if (!etag.empty() && etag != program.etag) {
      return WithReason(absl::AbortedError(absl::StrCat(NameOf(id), ": has the etag ", program.etag, ", not ", etag)),
                        "ETAG_MISMATCH", {{"program", id.value()}});
    }
    const fs::path path = options_.directory / id.value();
    deleted = NewFolder(kDeletedPrefix, id);
    if (absl::Status moved = PublishDirectory(path, deleted); !moved.ok()) {
      // Undoes the rename, so that a deletion that failed does not happen at the next start.
      std::error_code ignored;
      fs::rename(deleted, path, ignored);
      return moved;
    }
    bytes_ -= static_cast<uint64_t>(program.bytes);
    programs_.erase(found);
  }
  if (const absl::Status removed = RemoveProgram(deleted); !removed.ok()) {
    options_.warn(absl::StrCat(NameOf(id), " is deleted, but its files cannot be removed: ", removed.message()));
  }
  return absl::OkStatus();
}

absl::Status ProgramStore::CopyTo(const ProgramId& id, const fs::path& to) const {
  PF_ASSIGN_OR_RETURN(const StoredProgram program, Find(id));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(to, ignored))) return SystemError(EEXIST, to, "make");
  absl::Status made = LinkOrCopy(options_.directory / id.value(), to, program, options_.reserve);
  if (made.ok()) made = SyncDirectory(to.parent_path());
  if (made.ok()) return made;
  fs::remove(to, ignored);
  // The program may have been deleted meanwhile.
  const auto now = Find(id);
  return now.ok() && now->etag == program.etag ? made : NotFoundError(id);
}

absl::StatusOr<fs::path> ProgramStore::PathOf(const ProgramId& id) const {
  PF_RETURN_IF_ERROR(Find(id).status());
  return options_.directory / id.value() / kProgramArchive;
}

ProgramStore::Usage ProgramStore::usage() const {
  const absl::MutexLock lock(&mu_);
  return {.programs = std::ssize(programs_), .bytes = bytes_, .uploading_bytes = uploading_bytes_};
}

}  // namespace permafrost::jobs
