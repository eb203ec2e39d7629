#include "data/catalog/upload_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <optional>
#include <set>
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

// The layout of an upload's folder, for the store and its writers. Threads: safe anywhere.
constexpr char kUploadFiles[] = "files";
constexpr char kUploadComplete[] = "complete";
constexpr size_t kMostUploadPathBytes = 255;

// Returns the size of the file at `path`, or 0 if there is none. Follows no link. Errors: those of SystemError.
absl::StatusOr<int64_t> BytesAt(const fs::path& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) return S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : 0;
  if (errno == ENOENT || errno == ENOTDIR) return int64_t{0};
  return SystemError(errno, path, "look at");
}

// Returns true if `path` is a file. Follows no link.
bool IsRegular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

constexpr char kDeclaration[] = "upload.json";
constexpr size_t kHexDigits = 16;

// The content of upload.json.
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

// Returns why `path` is not accepted, or an empty string if it is accepted.
std::string WhyBadPath(const std::string& path) {
  if (path.empty() || path.size() > kMostUploadPathBytes) {
    return absl::StrCat("has ", path.size(), " bytes; accepted: 1 to ", kMostUploadPathBytes);
  }
  for (const absl::string_view name : absl::StrSplit(path, '/')) {
    // This test also refuses "", "." and "..".
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

// Returns the time of the last change, in whole seconds, or nullopt if there is nothing at `path`.
std::optional<absl::Time> LastChange(const fs::path& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return std::nullopt;
  return absl::FromTimeT(found.st_mtime);
}

absl::Status BeingWritten(const UploadId& id) {
  return absl::UnavailableError(absl::StrCat("uploads/", id.value(), ": another call sends to it; try again"));
}

absl::Status BeingImported(const UploadId& id) {
  return absl::UnavailableError(
      absl::StrCat("uploads/", id.value(), ": an import reads it; try again when it has ended"));
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

absl::Status UploadStore::TakeUp(const UploadId& id) {
  const auto files = Declared(id);
  if (files.ok()) {
    uint64_t received = 0;
    for (const UploadFile& file : *files) {
      // If the machine cannot tell a file's size now, the file counts as empty. Its size is found when the upload
      // goes on.
      const auto bytes = BytesAt(FolderOf(id) / kUploadFiles / file.path);
      received += static_cast<uint64_t>(std::min(bytes.value_or(0), file.bytes));
    }
    account_.Put(id, SumOfBytes(*files), received);
  }
  if (IsTransient(files.status())) {
    unread_.insert(id);
  } else {
    unread_.erase(id);
  }
  return files.status();
}

absl::Status UploadStore::FindUploads() {
  PF_ASSIGN_OR_RETURN(const auto names, ListDirectory(options_.directory));
  if (!names) return absl::OkStatus();
  for (const std::string& name : *names) {
    const absl::Status found =
        CheckIdSyntax("name", name).ok() ? TakeUp(UploadId(name)) : absl::InvalidArgumentError("no upload's name");
    if (!found.ok() && !IsTransient(found)) {
      options_.warn(absl::StrCat((options_.directory / name).string(),
                                 ": not known to be an upload, and left as it is: ", found.message()));
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
  const uint64_t taken = account_.CountedBeside(id);
  uint64_t left = options_.max_bytes - std::min(options_.max_bytes, taken);
  for (const UploadFile& file : files) {
    const auto bytes = static_cast<uint64_t>(file.bytes);
    if (bytes > left) {
      return too_large(taken == 0 ? absl::StrCat("has more bytes than are accepted")
                                  : absl::StrCat("has more bytes than are left beside other uploads, which take ",
                                                 taken, " (ListUploads tells them)"));
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
    if (IsSending(id)) return BeingWritten(id);
    if (!account_.Find(id)) {
      if (absl::Status found = TakeUp(id); IsTransient(found)) return found;
    }
    if (const auto known = account_.Find(id)) {
      PF_ASSIGN_OR_RETURN(const std::vector<UploadFile> declared, Declared(id));
      if (declared != files) {
        return absl::AlreadyExistsError(absl::StrCat("uploads/", id.value(), ": is there with other files"));
      }
      if (known->counted < known->declared) {
        // Other uploads may have taken this upload's room by now.
        PF_RETURN_IF_ERROR(CheckRoom(id, files));
        PF_RETURN_IF_ERROR(options_.reserve.Check(known->declared - known->received));
      }
    } else {
      RemoveOld();
      PF_RETURN_IF_ERROR(CheckRoom(id, files));
      PF_RETURN_IF_ERROR(options_.reserve.Check(SumOfBytes(files)));
      std::error_code ignored;
      const fs::path folder = FolderOf(id);
      if (fs::exists(fs::symlink_status(folder / kUploadFiles, ignored)) ||
          fs::exists(fs::symlink_status(folder / kDeclaration, ignored))) {
        return absl::AlreadyExistsError(
            absl::StrCat(folder.string(), " is there, which is no upload; take another id"));
      }
      if (absl::Status declared = Declare(id, files); !declared.ok()) {
        unread_.insert(id);  // the declaration may be on disk although Declare failed
        return declared;
      }
      account_.Put(id, SumOfBytes(files), 0);
    }
    account_.SetSending(id, true);
    writer.reset(new UploadWriter(*this, id, files));
  }
  PF_RETURN_IF_ERROR(writer->Load());
  return writer;
}

absl::StatusOr<fs::path> UploadStore::Source(const UploadId& id) {
  // Holds the lock until the upload's age is restarted, so that RemoveOld cannot remove the upload in between.
  const absl::MutexLock lock(&mu_);
  const auto files = Declared(id);
  if (IsTransient(files.status())) return files.status();
  if (!files.ok()) return absl::NotFoundError(absl::StrCat("uploads/", id.value(), ": not found"));
  const fs::path folder = FolderOf(id);
  bool complete = IsRegular(folder / kUploadComplete);
  for (const UploadFile& file : *files) {
    PF_ASSIGN_OR_RETURN(const int64_t bytes, BytesAt(folder / kUploadFiles / file.path));
    complete = complete && bytes == file.bytes;
  }
  if (!complete) {
    return absl::FailedPreconditionError(absl::StrCat("uploads/", id.value(), ": not all of its files have come"));
  }
  std::error_code error;
  fs::last_write_time(folder / kUploadComplete, fs::file_time_type::clock::now(), error);
  account_.Use(id);
  return folder / kUploadFiles;
}

absl::Status UploadStore::Remove(const UploadId& id) {
  const fs::path folder = FolderOf(id);
  // Removes the declaration last, so that whatever a crash leaves is still recognised as an upload.
  PF_RETURN_IF_ERROR(RemoveAll(folder / kUploadFiles));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kUploadComplete));
  PF_RETURN_IF_ERROR(RemoveAll(folder / kDeclaration));
  account_.Erase(id);
  // Removes the folder only if it is empty, since other files in it are not the store's.
  std::error_code ignored;
  fs::remove(folder, ignored);
  return absl::OkStatus();
}

absl::Status UploadStore::Delete(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  if (IsSending(id)) return BeingWritten(id);
  if (!account_.Find(id)) {
    if (absl::Status found = TakeUp(id); IsTransient(found)) return found;
  }
  if (options_.in_use(FolderOf(id))) return BeingImported(id);
  return account_.Find(id) ? Remove(id) : absl::OkStatus();
}

bool UploadStore::IsSending(const UploadId& id) const {
  const auto known = account_.Find(id);
  return known && known->sending;
}

absl::Time UploadStore::LastUse(const UploadId& id, const std::vector<UploadFile>& files) const {
  absl::Time newest = absl::InfinitePast();
  const auto look = [&newest](const fs::path& path) {
    newest = std::max(newest, LastChange(path).value_or(absl::InfinitePast()));
  };
  for (const char* name : {kDeclaration, kUploadComplete}) look(FolderOf(id) / name);
  for (const UploadFile& file : files) look(FolderOf(id) / kUploadFiles / file.path);
  return newest;
}

std::vector<UploadStore::Listed> UploadStore::List(const UploadId& after, size_t most) {
  const absl::MutexLock lock(&mu_);
  RemoveOld();
  std::vector<Listed> list;
  for (const auto& [id, account] : account_.All()) {
    if (list.size() == most) break;
    if (id <= after) continue;
    const auto files = Declared(id);
    if (!files.ok()) continue;
    list.push_back({.id = id,
                    .files = std::ssize(*files),
                    .account = account,
                    .complete = IsRegular(FolderOf(id) / kUploadComplete) && account.received == account.declared,
                    .last_use = LastUse(id, *files)});
  }
  return list;
}

void UploadStore::RemoveOld() {
  for (const UploadId& id : std::set<UploadId>(unread_)) TakeUp(id).IgnoreError();
  const std::optional<absl::Time> now = options_.now();
  std::vector<UploadId> old;
  for (const auto& [id, account] : account_.All()) {
    if (account.sending) continue;
    const auto files = Declared(id);
    if (!files.ok()) continue;
    // A wrong clock may have given a file a time in the future. So an upload is also old if it was idle for long in
    // this process.
    const bool is_old = account.idle >= options_.max_age || (now && *now - LastUse(id, *files) > options_.max_age);
    if (is_old && !options_.in_use(FolderOf(id))) old.push_back(id);
  }
  for (const UploadId& id : old) {
    const absl::Status removed = Remove(id);
    options_.warn(absl::StrCat("uploads/", id.value(), ": nothing was done with it for ",
                               absl::FormatDuration(options_.max_age), "; ",
                               removed.ok() ? "removed" : removed.message()));
  }
}

void UploadAccount::Put(const UploadId& id, uint64_t declared, uint64_t received) {
  const absl::MutexLock lock(&mu_);
  records_[id] = {.declared = declared, .received = received, .sending = false, .since_use = Stopwatch()};
}

void UploadAccount::Erase(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  records_.erase(id);
}

void UploadAccount::SetReceived(const UploadId& id, uint64_t received) {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  if (it == records_.end()) return;
  it->second.received = received;
  it->second.since_use.Restart();
}

void UploadAccount::SetSending(const UploadId& id, bool sending) {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  if (it == records_.end()) return;
  it->second.sending = sending;
  // The end of a call does not restart the idle time: a call that sent nothing for minutes must not keep room longer.
  if (sending) it->second.since_use.Restart();
}

void UploadAccount::Use(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  if (const auto it = records_.find(id); it != records_.end()) it->second.since_use.Restart();
}

std::optional<UploadAccount::Entry> UploadAccount::Find(const UploadId& id) const {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  return it == records_.end() ? std::nullopt : std::optional(Of(it->second));
}

std::map<UploadId, UploadAccount::Entry> UploadAccount::All() const {
  const absl::MutexLock lock(&mu_);
  std::map<UploadId, Entry> all;
  for (const auto& [id, record] : records_) all[id] = Of(record);
  return all;
}

UploadAccount::Totals UploadAccount::totals() const {
  const absl::MutexLock lock(&mu_);
  Totals totals;
  for (const auto& [id, record] : records_) {
    ++totals.uploads;
    totals.received += record.received;
    totals.counted += Of(record).counted;
  }
  return totals;
}

uint64_t UploadAccount::CountedBeside(const UploadId& id) const {
  const absl::MutexLock lock(&mu_);
  uint64_t counted = 0;
  for (const auto& [other, record] : records_) counted += other == id ? 0 : Of(record).counted;
  return counted;
}

UploadAccount::Entry UploadAccount::Of(const Record& record) const {
  const absl::Duration idle = record.since_use.Elapsed();
  return {.declared = record.declared,
          .received = record.received,
          .counted = record.sending || idle < keep_room_ ? record.declared : record.received,
          .sending = record.sending,
          .idle = idle};
}

namespace {

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

}  // namespace

UploadWriter::UploadWriter(UploadStore& store, UploadId id, std::vector<UploadFile> files)
    : store_(store), id_(std::move(id)), files_(std::move(files)), received_(files_.size()) {}

UploadWriter::~UploadWriter() {
  const absl::MutexLock lock(&store_.mu_);
  store_.account_.SetSending(id_, false);
}

void UploadWriter::CountReceived() {
  store_.account_.SetReceived(id_,
                              static_cast<uint64_t>(std::accumulate(received_.begin(), received_.end(), int64_t{0})));
}

fs::path UploadWriter::PathOf(size_t file) const { return store_.FolderOf(id_) / kUploadFiles / files_[file].path; }

absl::Status UploadWriter::Load() {
  bool all = true;
  for (size_t i = 0; i < files_.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const int64_t bytes, BytesAt(PathOf(i)));
    // A file with more bytes than declared was not sent by a client, so it counts as empty.
    received_[i] = bytes > files_[i].bytes ? 0 : bytes;
    all = all && received_[i] == files_[i].bytes;
  }
  CountReceived();
  const fs::path marker = store_.FolderOf(id_) / kUploadComplete;
  complete_ = all && IsRegular(marker);
  // If bytes are missing, removes the marker. Otherwise the marker would vouch for bytes that arrive later, before
  // their checksum is verified.
  return all ? absl::OkStatus() : RemoveAll(marker);
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
  PF_ASSIGN_OR_RETURN(const int64_t bytes, BytesAt(path));
  return bytes == received_[file] ? absl::OkStatus() : Cut(file, received_[file]);
}

absl::Status UploadWriter::Cut(size_t file, int64_t bytes) {
  const fs::path path = PathOf(file);
  struct stat info {};
  if (fstat(descriptor_->get(), &info) != 0) return SystemError(errno, path, "look at");
  if (info.st_nlink > 1) {
    // A dataset shares the file (ImportLimits::own_files) and keeps it. The client must send the whole file again.
    PF_RETURN_IF_ERROR(RemoveAll(path));
    descriptor_ = std::make_unique<Descriptor>(OpenRetrying(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
    received_[file] = 0;
    CountReceived();
    if (descriptor_->valid()) return absl::OkStatus();
    descriptor_.reset();
    return SystemError(errno, path, "open");
  }
  return ftruncate(descriptor_->get(), bytes) == 0 ? absl::OkStatus() : SystemError(errno, path, "cut");
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
  CountReceived();
  return absl::OkStatus();
}

absl::Status UploadWriter::CheckFile(size_t file) {
  PF_RETURN_IF_ERROR(OpenFile(file));
  const fs::path path = PathOf(file);
  PF_ASSIGN_OR_RETURN(const uint64_t hash, HashOf(*descriptor_, path));
  if (HashHex(hash) != files_[file].xxh3) {
    received_[file] = 0;
    CountReceived();
    PF_RETURN_IF_ERROR(Cut(file, 0));
    return absl::DataLossError(absl::StrCat(files_[file].path, ": has XXH3 ", HashHex(hash), ", and ",
                                            files_[file].xxh3, " was declared; send it again"));
  }
  return fsync(descriptor_->get()) == 0 ? absl::OkStatus() : SystemError(errno, path, "sync");
}

absl::Status UploadWriter::SyncFolders() const {
  const fs::path folder = store_.FolderOf(id_);
  std::set<fs::path> folders = {folder};
  for (size_t i = 0; i < files_.size(); ++i) {
    for (fs::path at = PathOf(i).parent_path(); folders.insert(at).second;) at = at.parent_path();
  }
  for (const fs::path& path : folders) PF_RETURN_IF_ERROR(SyncDirectory(path));
  return absl::OkStatus();
}

absl::Status UploadWriter::Finish() {
  if (complete_) return absl::OkStatus();
  for (size_t i = 0; i < files_.size(); ++i) {
    if (received_[i] != files_[i].bytes) return absl::OkStatus();
  }
  for (size_t i = 0; i < files_.size(); ++i) PF_RETURN_IF_ERROR(CheckFile(i));
  PF_RETURN_IF_ERROR(SyncFolders());
  PF_RETURN_IF_ERROR(WriteFileAtomic(store_.FolderOf(id_) / kUploadComplete, ""));
  complete_ = true;
  return absl::OkStatus();
}

}  // namespace permafrost::data
