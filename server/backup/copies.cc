#include "backup/copies.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_database.h"
#include "train/checkpoint_files.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{1} << 20;

// Opens a regular file. With O_NONBLOCK, a named pipe at this path cannot hang the backup.
absl::StatusOr<Descriptor> OpenRegular(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.valid()) return SystemError(errno, path, "open");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return SystemError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path.string(), ": is no regular file: move it away"));
  }
  return file;
}

}  // namespace

Copier::Copier(fs::path from, fs::path to, int64_t total, DiskReserve reserve, OnProgress on_progress)
    : from_(std::move(from)),
      to_(std::move(to)),
      reserve_(std::move(reserve)),
      on_progress_(std::move(on_progress)),
      total_(total) {}

absl::Status Copier::Tell(int64_t bytes) {
  done_ += bytes;
  total_ = std::max(total_, done_);
  return on_progress_(done_, total_) ? absl::OkStatus() : absl::CancelledError("the backup was given up");
}

absl::Status Copier::CopyFile(const std::string& from, const std::string& to) {
  const fs::path source = from_ / from, target = to_ / to;
  PF_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(source));
  PF_RETURN_IF_ERROR(CreateDirectories(target.parent_path()));
  PF_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(target));
  StreamHash hash;
  const auto write = [&](std::string_view piece) -> absl::Status {
    // Checks the reserve for each piece, because other processes may write to this disk meanwhile.
    PF_RETURN_IF_ERROR(reserve_.Check(piece.size()));
    hash.Update(piece.data(), piece.size());
    PF_RETURN_IF_ERROR(writer.Append(piece.data(), piece.size()));
    return Tell(static_cast<int64_t>(piece.size()));
  };
  PF_RETURN_IF_ERROR(ReadPieces(file, source, kPieceBytes, write));
  const uint64_t bytes = writer.size();
  PF_RETURN_IF_ERROR(writer.SyncAndClose());
  files_[to] = {.bytes = bytes, .xxh3 = HashHex(hash.Digest())};
  return absl::OkStatus();
}

absl::Status Copier::CopyFolder(const std::string& from, const std::string& to) {
  PF_ASSIGN_OR_RETURN(auto names, ListDirectory(from_ / from));
  if (!names) return absl::NotFoundError(absl::StrCat((from_ / from).string(), ": is not there"));
  std::ranges::sort(*names);
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    const std::string source = absl::StrCat(from, "/", name), target = absl::StrCat(to, "/", name);
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from_ / source, error);
    if (fs::is_directory(status)) {
      PF_RETURN_IF_ERROR(CopyFolder(source, target));
    } else if (fs::is_regular_file(status) || !fs::exists(status)) {
      PF_RETURN_IF_ERROR(CopyFile(source, target));
    }
  }
  return absl::OkStatus();
}

absl::Status Copier::Take(const std::string& path) {
  const fs::path target = to_ / path;
  PF_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(target));
  StreamHash hash;
  uint64_t bytes = 0;
  PF_RETURN_IF_ERROR(ReadPieces(file, target, kPieceBytes, [&](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    bytes += piece.size();
    return absl::OkStatus();
  }));
  if (fsync(file.get()) != 0) return SystemError(errno, target, "sync");
  files_[path] = {.bytes = bytes, .xxh3 = HashHex(hash.Digest())};
  return Tell(static_cast<int64_t>(bytes));
}

absl::Status Copier::Drop(const std::string& path) {
  PF_RETURN_IF_ERROR(RemoveAll(to_ / path));
  const std::string below = absl::StrCat(path, "/");
  std::erase_if(files_, [&](const auto& file) { return file.first == path || file.first.starts_with(below); });
  return absl::OkStatus();
}

absl::Status Copier::SyncFolders() const {
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(to_, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (it->is_directory(error)) PF_RETURN_IF_ERROR(SyncDirectory(it->path()));
  }
  if (error) return SystemError(error.value(), to_, "list");
  return absl::OkStatus();
}

int64_t Copier::bytes() const {
  uint64_t sum = 0;
  for (const auto& [path, file] : files_) sum += file.bytes;
  return static_cast<int64_t>(sum);
}

int64_t BytesBelow(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(path, error))) {
    const uintmax_t bytes = fs::file_size(path, error);
    return error ? 0 : static_cast<int64_t>(bytes);
  }
  int64_t sum = 0;
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_symlink(ignored) && it->is_regular_file(ignored)) {
      const uintmax_t bytes = it->file_size(ignored);
      if (!ignored) sum += static_cast<int64_t>(bytes);
    }
  }
  return sum;
}

namespace {

// The number of times that a folder of checkpoints is listed before its copy is given up.
constexpr int kLooks = 50;
// The time between two listings. It is longer than a tick of the clock from which file systems take their times. So a
// folder whose time is the same before and after a listing has not changed.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(20);
// The folder for hard links, inside the folder of checkpoints. CopyStep removes it at the end. If that fails, the
// next run of the job removes it, along with every other name that begins with ".tmp-".
constexpr char kHold[] = ".tmp-backup";

// Returns the time when an entry was last added to or removed from the folder; nullopt: there is no such folder.
std::optional<int64_t> TimeOf(const fs::path& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) return std::nullopt;
  return ModifiedNanoseconds(info);
}

struct Look {
  std::vector<int64_t> steps;  // steps of checkpoints, newest first
  bool set_aside = false;      // some checkpoints were set aside as damaged
};

absl::StatusOr<Look> LookAt(const fs::path& folder) {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(folder));
  Look look;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    int64_t step = 0;
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data(), last, step);
    if (error == std::errc() && end == last) look.steps.push_back(step);
    look.set_aside = look.set_aside || name.starts_with(train::kDamagedCheckpointPrefix);
  }
  std::ranges::sort(look.steps, std::greater());
  return look;
}

enum class Held { kAll, kGone, kImpossible };

// Makes hard links to a checkpoint's files in the new folder `hold`.
Held HoldFiles(const fs::path& checkpoint, const fs::path& hold) {
  const auto why = [] { return errno == ENOENT ? Held::kGone : Held::kImpossible; };
  if (mkdir(hold.c_str(), 0700) != 0) return why();
  const auto names = ListDirectory(checkpoint);
  if (!names.ok()) return Held::kImpossible;
  if (!*names) return Held::kGone;
  for (const std::string& name : **names) {
    if (name.starts_with('.')) continue;
    if (link((checkpoint / name).c_str(), (hold / name).c_str()) != 0) return why();
  }
  return Held::kAll;
}

class CheckpointCopier {
 public:
  CheckpointCopier(const fs::path& state_dir, const fs::path& backup, const JobId& id, Copier& copier)
      : id_(id),
        path_(absl::StrCat("jobs/", id.value(), "/", AbslView(train::kCheckpointsFolder))),
        from_(state_dir / path_),
        to_(backup / path_),
        copier_(copier) {}

  absl::StatusOr<CheckpointCopy> Copy(bool had_one) {
    for (int i = 0; i < kLooks; ++i) {
      const std::optional<int64_t> before = TimeOf(from_);
      if (!before) return had_one ? CheckpointCopy::kLost : CheckpointCopy::kNone;
      if (i > 0) absl::SleepFor(kBetweenLooks);
      PF_ASSIGN_OR_RETURN(const Look look, LookAt(from_));
      PF_ASSIGN_OR_RETURN(const bool copied, CopyOneOf(look.steps));
      if (copied) return CheckpointCopy::kWhole;
      // While the folder is read, a new checkpoint may appear and the one before it may disappear. The list may then
      // hold neither, so an empty list counts only if the folder did not change.
      if (i == 0 || TimeOf(from_) != before) continue;
      const bool had_some = had_one || look.set_aside || !look.steps.empty();
      return had_some ? CheckpointCopy::kLost : CheckpointCopy::kNone;
    }
    return absl::UnavailableError(absl::StrCat(
        "job ", id_.value(), " wrote checkpoints faster than one could be copied: try again, or pause the job before"));
  }

 private:
  // Copies the newest whole checkpoint. Returns false if none is whole, or if the chosen checkpoint has disappeared.
  absl::StatusOr<bool> CopyOneOf(const std::vector<int64_t>& steps) {
    for (const int64_t step : steps) {
      if (damaged_.contains(step)) continue;
      PF_ASSIGN_OR_RETURN(const bool copied, CopyStep(step));
      if (copied) return true;
      if (!damaged_.contains(step)) return false;
    }
    return false;
  }

  // Copies one checkpoint. Returns false if it has disappeared. If it is damaged, adds it to damaged_ and returns
  // false.
  absl::StatusOr<bool> CopyStep(int64_t step) {
    const fs::path checkpoint = from_ / absl::StrCat(step), hold = from_ / kHold;
    const std::string target = absl::StrCat(path_, "/", step);
    // A backup whose daemon died may have left this folder.
    RemoveAll(hold).IgnoreError();
    const absl::Cleanup let_go = [&hold] { RemoveAll(hold).IgnoreError(); };
    const Held held = HoldFiles(checkpoint, hold);
    if (held == Held::kGone) return false;
    const std::optional<int64_t> held_at = TimeOf(hold);
    const std::string source = held == Held::kAll ? absl::StrCat(path_, "/", kHold) : target;
    absl::Status copied = copier_.CopyFolder(source, target);
    if (copied.ok()) {
      // Compares the copy with the checksums that the run wrote, so that a backup never holds a damaged checkpoint.
      PF_ASSIGN_OR_RETURN(const auto copy, train::ListCheckpoints(to_, /*verify=*/true));
      if (copy.size() == 1 && copy.front().damage.empty()) return true;
    } else if (!absl::IsNotFound(copied)) {
      return copied;
    }
    PF_RETURN_IF_ERROR(copier_.Drop(path_));
    // If hard links were made, the checkpoint counts as damaged only if they existed during the whole copy. Otherwise
    // files may be missing because the run removed some before they were linked, or because a run just began and
    // removed the folder of the links.
    const bool held_all_along = held != Held::kAll || TimeOf(hold) == held_at;
    if (copied.ok() && held_all_along && TimeOf(checkpoint)) damaged_.insert(step);
    return false;
  }

  const JobId& id_;
  const std::string path_;  // the folder of checkpoints, relative to the state directory and to the backup
  const fs::path from_, to_;
  Copier& copier_;
  std::set<int64_t> damaged_;
};

}  // namespace

absl::StatusOr<CheckpointCopy> CopyNewestCheckpoint(const fs::path& state_dir, const fs::path& backup, const JobId& id,
                                                    bool had_one, Copier& copier) {
  return CheckpointCopier(state_dir, backup, id, copier).Copy(had_one);
}

namespace {

// The longest wait for another process that holds a lock on the file.
constexpr int kPatienceMilliseconds = 30'000;

absl::Status WithDatabase(const std::filesystem::path& path, int flags,
                          const std::function<absl::Status(SQLite::Database&)>& body) {
  std::optional<SQLite::Database> database;
  try {
    database.emplace(path.string(), flags, kPatienceMilliseconds);
    return body(*database);
  } catch (const SQLite::Exception& error) {
    const int system_error =
        database ? jobs::SystemErrorOf(database->getHandle(), error) : jobs::WhyNotOpened(path.string());
    return jobs::ToStatus(path.string(), error, system_error);
  }
}

// Returns the string member `name` of a JSON object; empty: there is none.
std::string TextOf(const nlohmann::json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

// Reads what a backup needs from a job's columns `spec` and `progress`. Fields that cannot be read are left empty.
void ReadColumns(const std::string& spec_text, const std::string& progress_text, JobRow& row) {
  const nlohmann::json spec = nlohmann::json::parse(spec_text, nullptr, /*allow_exceptions=*/false);
  row.dataset = DatasetId(TextOf(spec, "dataset"));
  row.dataset_uid = TextOf(spec, "dataset_uid");
  const nlohmann::json progress = nlohmann::json::parse(progress_text, nullptr, /*allow_exceptions=*/false);
  constexpr char kStep[] = "checkpoint_step";
  row.had_checkpoint = progress.is_object() && progress.contains(kStep) && progress[kStep].is_number() &&
                       progress[kStep].get<int64_t>() > 0;
}

}  // namespace

absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database) {
  std::vector<JobRow> rows;
  absl::Status read = WithDatabase(database, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    SQLite::Statement select(open, "SELECT id, state, spec, progress FROM jobs");
    while (select.executeStep()) {
      // A job whose state cannot be read is shown as failed, and never runs.
      const std::optional<jobs::JobState> state = jobs::kJobStateNames.Parse(select.getColumn(1).getString());
      JobRow row{.id = JobId(select.getColumn(0).getString()), .ended = !state || jobs::IsTerminal(*state)};
      ReadColumns(select.getColumn(2).getString(), select.getColumn(3).getString(), row);
      rows.push_back(std::move(row));
    }
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  return rows;
}

absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to) {
  // The copy is one read transaction. In WAL mode, the daemon's writes do not wait for it, and the copy does not
  // contain them.
  absl::Status copied = WithDatabase(from, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    SQLite::Statement copy(open, "VACUUM INTO ?");
    copy.bind(1, to.string());
    copy.exec();
    return absl::OkStatus();
  });
  if (!copied.ok()) return copied;
  return WithDatabase(to, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    const std::string found = open.execAndGet("PRAGMA integrity_check(1)").getString();
    return found == "ok" ? absl::OkStatus() : absl::DataLossError(absl::StrCat(from.string(), " is damaged: ", found));
  });
}

absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs) {
  if (jobs.empty()) return absl::OkStatus();
  return WithDatabase(database, SQLite::OPEN_READWRITE, [&](SQLite::Database& open) {
    open.exec("PRAGMA foreign_keys = ON");
    for (const JobId& id : jobs) {
      SQLite::Statement erase(open, "DELETE FROM jobs WHERE id = ?");
      erase.bind(1, id.value());
      erase.exec();
    }
    return absl::OkStatus();
  });
}

namespace {

constexpr char kDatasetsFolder[] = "datasets", kRecordFile[] = "dataset.json";
constexpr int kDatasetTries = 20;

// Returns the uid of the dataset in a folder. The result is empty if the dataset's record is missing, cannot be read,
// or comes from a version without uids.
std::string UidIn(const fs::path& folder) {
  const absl::StatusOr<std::string> text = ReadFile(folder / kRecordFile);
  if (!text.ok()) return "";
  const nlohmann::json record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("uid") || !record["uid"].is_string()) return "";
  return record["uid"].get<std::string>();
}

}  // namespace

absl::Status DatasetCopies::CopyAll() {
  PF_ASSIGN_OR_RETURN(auto names, ListDirectory(state_dir_ / kDatasetsFolder));
  if (!names) return absl::OkStatus();
  std::ranges::sort(*names);
  for (const std::string& name : *names) {
    if (!name.starts_with('.')) PF_RETURN_IF_ERROR(Copy(name));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DatasetCopies::Pair(const std::string& name, const std::string& uid) {
  if (!Has(name, uid)) PF_RETURN_IF_ERROR(Copy(name));
  return Has(name, uid);
}

bool DatasetCopies::Has(const std::string& name, const std::string& uid) const {
  const auto it = uids_.find(name);
  return it != uids_.end() && (uid.empty() || it->second.empty() || it->second == uid);
}

absl::Status DatasetCopies::Copy(const std::string& name) {
  const std::string path = absl::StrCat(kDatasetsFolder, "/", name);
  for (int i = 0; i < kDatasetTries; ++i) {
    uids_.erase(name);
    PF_RETURN_IF_ERROR(copier_.Drop(path));
    std::error_code error;
    if (!fs::is_directory(state_dir_ / path, error)) return absl::OkStatus();
    absl::Status copied = copier_.CopyFolder(path);
    if (!copied.ok() && !absl::IsNotFound(copied)) return copied;
    // If the dataset was deleted or replaced meanwhile, the copy may mix files of two datasets.
    const std::string uid = UidIn(backup_ / path);
    if (!copied.ok() || UidIn(state_dir_ / path) != uid) continue;
    uids_[name] = uid;
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("dataset ", name, " was replaced faster than it could be copied: try again"));
}

namespace {

constexpr char kAuditFile[] = "audit.jsonl", kOlderAudit[] = "audit.jsonl.";
constexpr char kImportsFolder[] = "datasets/.imports";
constexpr char kImportSuffix[] = ".json";
constexpr int kAuditTries = 20;

// Returns the names of the audit logs, oldest first, as they are at one moment.
absl::StatusOr<std::vector<std::string>> AuditNames(const fs::path& state_dir) {
  PF_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> names, ListDirectory(state_dir));
  std::vector<std::string> logs = std::move(names).value_or(std::vector<std::string>());
  std::erase_if(logs, [](const std::string& name) { return name != kAuditFile && !name.starts_with(kOlderAudit); });
  std::ranges::sort(logs, std::ranges::greater());
  return logs;
}

// Returns the inode of a file. It changes with each rotation, because another file then has the name.
ino_t FileOf(const fs::path& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

absl::Status CopyAudit(const fs::path& state_dir, Copier& copier) {
  for (int i = 0; i < kAuditTries; ++i) {
    const ino_t newest = FileOf(state_dir / kAuditFile);
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> names, AuditNames(state_dir));
    absl::Status copied;
    for (const std::string& name : names) {
      copied = copier.CopyFile(name);
      if (!copied.ok()) break;
    }
    if (!copied.ok() && !absl::IsNotFound(copied)) return copied;
    if (copied.ok() && FileOf(state_dir / kAuditFile) == newest) return absl::OkStatus();
    for (const std::string& name : names) PF_RETURN_IF_ERROR(copier.Drop(name));
  }
  return absl::UnavailableError("the audit log was rotated faster than it could be copied: try again");
}

absl::StatusOr<std::vector<std::string>> CopyImports(const fs::path& state_dir, Copier& copier) {
  PF_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> names, ListDirectory(state_dir / kImportsFolder));
  std::vector<std::string> datasets;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name.starts_with('.') || !name.ends_with(kImportSuffix)) continue;
    const absl::Status copied = copier.CopyFile(absl::StrCat(kImportsFolder, "/", name));
    if (absl::IsNotFound(copied)) continue;  // the import has ended meanwhile
    PF_RETURN_IF_ERROR(copied);
    datasets.push_back(name.substr(0, name.size() - (sizeof kImportSuffix - 1)));
  }
  std::ranges::sort(datasets);
  return datasets;
}

}  // namespace permafrost::backup
