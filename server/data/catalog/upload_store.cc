#include "data/catalog/upload_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr char kDeclaration[] = "upload.json";
constexpr char kFiles[] = "files";
constexpr char kComplete[] = "complete";
constexpr size_t kHexDigits = 16;

// What upload.json holds.
struct Declaration {
  std::string kind;
  UploadId id;
  std::vector<UploadFile> files;
};
constexpr char kKind[] = "permafrost upload 1";

struct DeclarationSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<Declaration>& d) {
    a("kind", d.kind);
    a("id", d.id);
    a("files", d.files);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<UploadFile>& f) {
    a("path", f.path);
    a("bytes", f.bytes);
    a("xxh3", f.xxh3);
  }
};

// Why `path` is not accepted; empty: it is.
std::string WhyBadPath(const std::string& path) {
  if (path.empty() || path.size() > kMostUploadPathBytes) {
    return absl::StrCat("has ", path.size(), " bytes; accepted: 1 to ", kMostUploadPathBytes);
  }
  for (const absl::string_view name : absl::StrSplit(path, '/')) {
    // "", "." and ".." among them.
    if (name.empty() || name.front() == '.') {
      return "is not accepted: relative paths whose names are not empty and begin with no '.'";
    }
  }
  const bool strange =
      std::ranges::any_of(path, [](char c) { return c == '\\' || absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  return strange ? "holds a control character or a backslash" : "";
}

bool IsHash(const std::string& text) {
  return text.size() == kHexDigits && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

uint64_t SumOfBytes(const std::vector<UploadFile>& files) {
  uint64_t sum = 0;
  for (const UploadFile& file : files) sum += static_cast<uint64_t>(file.bytes);
  return sum;
}

// Seconds since 1970 of the last change; nullopt where there is nothing.
std::optional<absl::Time> LastChange(const fs::path& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return std::nullopt;
  return absl::FromTimeT(found.st_mtime);
}

absl::Status WriteAll(const Descriptor& file, const fs::path& path, std::string_view data, int64_t offset) {
  while (!data.empty()) {
    const ssize_t wrote = pwrite(file.get(), data.data(), data.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return SystemError(errno, path, "write");
    data.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HashOf(const Descriptor& file, const fs::path& path) {
  constexpr size_t kAtOnce = size_t{1} << 20;
  std::vector<char> piece(kAtOnce);
  StreamHash hash;
  for (int64_t offset = 0;;) {
    const ssize_t read = pread(file.get(), piece.data(), piece.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError(errno, path, "read");
    if (read == 0) return hash.Digest();
    hash.Update(piece.data(), static_cast<size_t>(read));
    offset += read;
  }
}

absl::Status BeingWritten(const UploadId& id) {
  return absl::UnavailableError(absl::StrCat("uploads/", id.value(), ": another call sends to it; try again"));
}

}  // namespace

absl::Status CheckUpload(const std::vector<UploadFile>& files) {
  Violations violations;
  if (files.empty() || files.size() > kMostUploadFiles) {
    violations.Add("start.files", absl::StrCat("has ", files.size(), " entries; accepted: 1 to ", kMostUploadFiles));
    return violations.ToStatus();
  }
  std::set<std::string> paths;
  for (const UploadFile& file : files) paths.insert(file.path);
  for (size_t i = 0; i < files.size(); ++i) {
    const UploadFile& file = files[i];
    const std::string field = absl::StrCat("start.files[", i, "]");
    std::string why = WhyBadPath(file.path);
    for (fs::path above = fs::path(file.path).parent_path(); why.empty() && !above.empty();
         above = above.parent_path()) {
      if (paths.contains(above.string())) why = absl::StrCat("lies below ", above.string(), ", which is a file");
    }
    if (!why.empty()) violations.Add(field + ".path", absl::StrCat("\"", absl::CHexEscape(file.path), "\" ", why));
    if (file.bytes < 0) violations.Add(field + ".bytes", absl::StrCat(file.bytes, " is below 0"));
    if (!IsHash(file.xxh3))
      violations.Add(field + ".xxh3", absl::StrCat("is not ", kHexDigits, " hex digits, 0-9 and a-f"));
  }
  if (paths.size() != files.size()) violations.Add("start.files", "names a path twice");
  return violations.ToStatus();
}

UploadWriter::UploadWriter(UploadStore& store, UploadId id, std::vector<UploadFile> files)
    : store_(store), id_(std::move(id)), files_(std::move(files)), received_(files_.size()) {}

UploadWriter::~UploadWriter() {
  const absl::MutexLock lock(&store_.mu_);
  store_.written_.erase(id_);
}

fs::path UploadWriter::PathOf(size_t file) const { return store_.FolderOf(id_) / kFiles / files_[file].path; }

absl::Status UploadWriter::Load() {
  std::error_code error;
  complete_ = fs::is_regular_file(fs::symlink_status(store_.FolderOf(id_) / kComplete, error));
  for (size_t i = 0; i < files_.size(); ++i) {
    const bool there = fs::is_regular_file(fs::symlink_status(PathOf(i), error));
    const auto bytes = there ? static_cast<int64_t>(fs::file_size(PathOf(i), error)) : 0;
    // More than was declared nobody sent.
    received_[i] = error || bytes > files_[i].bytes ? 0 : bytes;
    error.clear();
  }
  return absl::OkStatus();
}

absl::Status UploadWriter::OpenFile(size_t file) {
  if (descriptor_ && open_ == file) return absl::OkStatus();
  const fs::path path = PathOf(file);
  PF_RETURN_IF_ERROR(CreateDirectories(path.parent_path()));
  descriptor_ = std::make_unique<Descriptor>(OpenRetrying(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644));
  open_ = file;
  if (!descriptor_->valid()) {
    descriptor_.reset();
    return SystemError(errno, path, "open");
  }
  if (ftruncate(descriptor_->get(), received_[file]) != 0) return SystemError(errno, path, "cut");
  return absl::OkStatus();
}

absl::Status UploadWriter::Append(int64_t file, int64_t offset, std::string_view data, uint64_t xxh3) {
  if (file < 0 || file >= std::ssize(files_)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk.file: ", file, " is outside 0..", files_.size() - 1));
  }
  const auto i = static_cast<size_t>(file);
  if (offset != received_[i]) {
    return absl::FailedPreconditionError(absl::StrCat(files_[i].path, ": chunk.offset: ", offset, " is not ",
                                                      received_[i], ", what was received of it"));
  }
  const auto bytes = static_cast<int64_t>(data.size());
  if (bytes > files_[i].bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat(files_[i].path, ": chunk.data: ends at byte ", offset + bytes,
                                                   " of ", files_[i].bytes, " that were declared"));
  }
  if (Hash64(data) != xxh3) {
    return absl::DataLossError(
        absl::StrCat(files_[i].path, ": chunk.data: from byte ", offset, " on is not what its checksum says"));
  }
  PF_RETURN_IF_ERROR(store_.options_.reserve.Check(data.size()));
  PF_RETURN_IF_ERROR(OpenFile(i));
  PF_RETURN_IF_ERROR(WriteAll(*descriptor_, PathOf(i), data, offset));
  received_[i] += bytes;
  return absl::OkStatus();
}

absl::Status UploadWriter::CheckFile(size_t file) {
  PF_RETURN_IF_ERROR(OpenFile(file));
  const fs::path path = PathOf(file);
  PF_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(*descriptor_, path));
  if (HashHex(hash) != files_[file].xxh3) {
    received_[file] = 0;
    if (ftruncate(descriptor_->get(), 0) != 0) return SystemError(errno, path, "cut");
    return absl::DataLossError(absl::StrCat(files_[file].path, ": has XXH3 ", HashHex(hash), ", and ",
                                            files_[file].xxh3, " was declared; send it again"));
  }
  return fsync(descriptor_->get()) == 0 ? absl::OkStatus() : SystemError(errno, path, "sync");
}

absl::Status UploadWriter::Finish() {
  if (complete_) return absl::OkStatus();
  for (size_t i = 0; i < files_.size(); ++i) {
    if (received_[i] != files_[i].bytes) return absl::OkStatus();
  }
  for (size_t i = 0; i < files_.size(); ++i) PF_RETURN_IF_ERROR(CheckFile(i));
  PF_RETURN_IF_ERROR(WriteFileAtomic(store_.FolderOf(id_) / kComplete, ""));
  complete_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<UploadStore>> UploadStore::Create(UploadOptions options) {
  std::unique_ptr<UploadStore> store(new UploadStore(std::move(options)));
  const absl::MutexLock lock(&store->mu_);
  PF_RETURN_IF_ERROR(CreateDirectories(store->options_.directory));
  PF_RETURN_IF_ERROR(store->FindUploads());
  store->RemoveOld();
  return store;
}

absl::StatusOr<std::vector<UploadFile>> UploadStore::Declared(const UploadId& id) const {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(FolderOf(id) / kDeclaration));
  PF_ASSIGN_OR_RETURN(Declaration declaration, (ReadJson<DeclarationSchema, Declaration>(kDeclaration, text)));
  if (declaration.kind != kKind || declaration.id != id || !CheckUpload(declaration.files).ok()) {
    return absl::DataLossError(absl::StrCat((FolderOf(id) / kDeclaration).string(), ": is not of this upload"));
  }
  return std::move(declaration.files);
}

absl::Status UploadStore::FindUploads() {
  PF_ASSIGN_OR_RETURN(const auto names, ListDirectory(options_.directory));
  if (!names) return absl::OkStatus();
  for (const std::string& name : *names) {
    const UploadId id(name);
    const auto files = CheckIdSyntax("name", name).ok() ? Declared(id) : absl::InvalidArgumentError("no upload's name");
    if (files.ok()) {
      declared_bytes_[id] = SumOfBytes(*files);
    } else if (!IsTransient(files.status())) {
      options_.warn(absl::StrCat((options_.directory / name).string(),
                                 ": not known to be an upload, and left as it is: ", files.status().message()));
    }
  }
  return absl::OkStatus();
}

absl::Status UploadStore::Declare(const UploadId& id, const std::vector<UploadFile>& files) {
  PF_RETURN_IF_ERROR(CreateDirectories(FolderOf(id)));
  return WriteFileAtomic(FolderOf(id) / kDeclaration,
                         WriteJson<DeclarationSchema>(Declaration{.kind = kKind, .id = id, .files = files}));
}

absl::Status UploadStore::CheckRoom(const UploadId& id, const std::vector<UploadFile>& files) const {
  const auto too_large = [&](std::string_view why) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat("uploads/", id.value(), ": ", AbslView(why),
                                                                "; accepted: ", options_.max_bytes,
                                                                " bytes of all uploads together (--max-upload)")),
                      "UPLOAD_TOO_LARGE", {{"limit", absl::StrCat(options_.max_bytes)}});
  };
  uint64_t left = options_.max_bytes;
  for (const auto& [other, bytes] : declared_bytes_) left -= std::min(left, bytes);
  for (const UploadFile& file : files) {
    const auto bytes = static_cast<uint64_t>(file.bytes);
    if (bytes > left) {
      return too_large(declared_bytes_.empty()
                           ? absl::StrCat("has more bytes than are accepted")
                           : absl::StrCat("has more bytes than are left beside ", declared_bytes_.size(), " others"));
    }
    left -= bytes;
  }
  return options_.max_bytes == 0 ? too_large("uploads are turned off") : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<UploadWriter>> UploadStore::Open(const UploadId& id,
                                                                const std::vector<UploadFile>& files) {
  PF_RETURN_IF_ERROR(CheckUpload(files));
  std::unique_ptr<UploadWriter> writer;
  {
    const absl::MutexLock lock(&mu_);
    if (written_.contains(id)) return BeingWritten(id);
    if (declared_bytes_.contains(id)) {
      PF_ASSIGN_OR_RETURN(const std::vector<UploadFile> declared, Declared(id));
      if (declared != files) {
        return absl::AlreadyExistsError(absl::StrCat("uploads/", id.value(), ": is there with other files"));
      }
    } else {
      RemoveOld();
      PF_RETURN_IF_ERROR(CheckRoom(id, files));
      PF_RETURN_IF_ERROR(options_.reserve.Check(SumOfBytes(files)));
      std::error_code ignored;
      const fs::path folder = FolderOf(id);
      if (fs::exists(fs::symlink_status(folder / kFiles, ignored)) ||
          fs::exists(fs::symlink_status(folder / kDeclaration, ignored))) {
        return absl::AlreadyExistsError(
            absl::StrCat(folder.string(), " is there, which is no upload; take another id"));
      }
      PF_RETURN_IF_ERROR(Declare(id, files));
      declared_bytes_[id] = SumOfBytes(files);
    }
    written_.insert(id);
    writer.reset(new UploadWriter(*this, id, files));
  }
  PF_RETURN_IF_ERROR(writer->Load());
  return writer;
}

absl::StatusOr<fs::path> UploadStore::Source(const UploadId& id) const {
  {
    const absl::MutexLock lock(&mu_);
    if (!declared_bytes_.contains(id)) return absl::NotFoundError(absl::StrCat("uploads/", id.value(), ": not found"));
  }
  std::error_code error;
  const fs::path folder = FolderOf(id);
  if (!fs::is_regular_file(fs::symlink_status(folder / kComplete, error))) {
    return absl::FailedPreconditionError(absl::StrCat("uploads/", id.value(), ": not all of its files have come"));
  }
  fs::last_write_time(folder / kComplete, fs::file_time_type::clock::now(), error);
  return folder / kFiles;
}

absl::Status UploadStore::Remove(const UploadId& id) {
  const fs::path folder = FolderOf(id);
  // The declaration last: what is left over by a crash is still known.
  PF_RETURN_IF_ERROR(RemoveAll(folder / kFiles));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kComplete));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kDeclaration));
  declared_bytes_.erase(id);
  // Whatever else lies there is not the store's.
  std::error_code ignored;
  fs::remove(folder, ignored);
  return absl::OkStatus();
}

absl::Status UploadStore::Delete(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  if (written_.contains(id)) return BeingWritten(id);
  return declared_bytes_.contains(id) ? Remove(id) : absl::OkStatus();
}

void UploadStore::RemoveOld() {
  const absl::Time oldest = absl::Now() - options_.max_age;
  std::vector<UploadId> old;
  for (const auto& [id, bytes] : declared_bytes_) {
    if (written_.contains(id)) continue;
    const auto files = Declared(id);
    if (!files.ok()) continue;
    absl::Time newest = absl::InfinitePast();
    const auto look = [&newest](const fs::path& path) {
      newest = std::max(newest, LastChange(path).value_or(absl::InfinitePast()));
    };
    for (const char* name : {kDeclaration, kComplete}) look(FolderOf(id) / name);
    for (const UploadFile& file : *files) look(FolderOf(id) / kFiles / file.path);
    if (newest < oldest) old.push_back(id);
  }
  for (const UploadId& id : old) {
    const absl::Status removed = Remove(id);
    options_.warn(absl::StrCat("uploads/", id.value(), ": nothing was done with it for ",
                               absl::FormatDuration(options_.max_age), "; ",
                               removed.ok() ? "removed" : removed.message()));
  }
}

}  // namespace permafrost::data
