#include "backup/backup.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backup/copies.h"
#include "backup/manifest.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"
#include "train/checkpoint_files.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;

constexpr char kDatabaseFile[] = "permafrost.db";
constexpr char kLogFile[] = "log", kOlderLog[] = "log.";
// The number of tries to copy something that may be removed during the copy.
constexpr int kTries = 20;

// Returns the names of a job's log and of the older parts of this log (telemetry/log.h), sorted.
absl::StatusOr<std::vector<std::string>> LogNames(const fs::path& job) {
  PF_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> names, ListDirectory(job));
  std::vector<std::string> logs = std::move(names).value_or(std::vector<std::string>());
  std::erase_if(logs, [](const std::string& name) {
    if (name == kLogFile) return false;
    return !name.starts_with(kOlderLog) || !std::ranges::all_of(name.substr(sizeof kOlderLog - 1), absl::ascii_isdigit);
  });
  std::ranges::sort(logs);
  return logs;
}

Summary SummaryOf(const fs::path& target, const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [path, file] : manifest.files) bytes += static_cast<int64_t>(file.bytes);
  return {.path = target,
          .files = static_cast<int64_t>(manifest.files.size()),
          .bytes = bytes,
          .jobs = manifest.jobs,
          .datasets_wanted = manifest.datasets_wanted,
          .jobs_anew = manifest.jobs_anew,
          .imports = manifest.imports};
}

constexpr char kInTheMaking[] = ".tmp-";
constexpr char kRootLock[] = ".lock";
constexpr size_t kMaxNameBytes = 128;

bool IsBackupName(const std::string& name) {
  const auto is_plain = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' && std::ranges::all_of(name, is_plain);
}

fs::path MakingOf(const fs::path& target) {
  return target.parent_path() / absl::StrCat(kInTheMaking, target.filename().string());
}

bool IsRealDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

// Removes the folder of an unfinished backup. Removes the mark last, because it shows that the folder is part of a
// backup.
absl::Status RemoveMaking(const fs::path& making) {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(making));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name != kManifestFile) PF_RETURN_IF_ERROR(RemoveAll(making / name));
  }
  return RemoveAll(making);
}

// Returns ROOT/NAME for the `directory` of a request. Errors: FailedPrecondition (reason NO_BACKUP_ROOT) if there is
// no root; InvalidArgument with a violation of "directory".
absl::StatusOr<fs::path> TargetOf(const fs::path& root, const std::string& directory) {
  if (root.empty()) {
    return WithReason(absl::FailedPreconditionError("the server was started without --backup-root DIR, which names the "
                                                    "directory of its machine that backups are written below"),
                      "NO_BACKUP_ROOT");
  }
  fs::path name = directory;
  if (name.is_absolute() && name.lexically_normal().parent_path() == root) name = name.filename();
  if (IsBackupName(name.string())) return root / name;
  Violations violations;
  violations.Add("directory",
                 absl::StrCat("\"", directory, "\": accepted: a name of letters, digits, '.', '-' and '_' ",
                              "that does not begin with '.', or that name below ", root.string()));
  return violations.ToStatus();
}

// Checks that the target does not exist, or is an empty directory (not a link to one). Errors: AlreadyExists.
absl::Status CheckFree(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return SystemError(error.value(), target, "stat");
  if (fs::is_symlink(status)) {
    return absl::AlreadyExistsError(absl::StrCat(
        target.string(), " is a symbolic link: name what is not there, or an empty directory of --backup-root itself"));
  }
  if (fs::is_directory(status) && fs::is_empty(target, error)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(target.string(), " is there already, and not an empty directory"));
}

// Locks the root while a backup is made, so that two daemons with one root do not make backups at the same time.
// Errors: FailedPrecondition (reason BACKUP_UNDER_WAY) if another process, or another call in this process, is making
// a backup.
absl::StatusOr<FileLock> LockRoot(const fs::path& root) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(root / kRootLock);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return WithReason(Annotate(lock.status(), "another backup is made below this --backup-root; try again once it is"),
                    "BACKUP_UNDER_WAY");
}

// Removes unfinished backups whose daemon died. The caller holds the root's lock. A leftover that cannot be removed
// is logged.
void RemoveLeftovers(const fs::path& root) {
  const auto names = ListDirectory(root);
  if (!names.ok()) return telemetry::Log(telemetry::Severity::kWarning, StdView(names.status().message()));
  for (const std::string& name : names->value_or(std::vector<std::string>())) {
    const fs::path path = root / name;
    if (!name.starts_with(kInTheMaking) || !IsRealDirectory(path)) continue;
    if (!IsInTheMaking(path)) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat(path.string(), " stays: nothing in it says that it is a part of a backup"));
      continue;
    }
    const absl::Status removed = RemoveMaking(path);
    if (!removed.ok()) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat("a backup that was not finished stays: ", removed.message()));
      continue;
    }
    telemetry::Log(telemetry::Severity::kInfo,
                   absl::StrCat("removed ", path.string(), ", a backup that was not finished"));
  }
}

// Renames the finished backup to `target`, after removing an empty directory there. Fails if something else is there.
absl::Status PublishMaking(const fs::path& making, const fs::path& target) {
  // rmdir removes only an empty directory. Anything else stays, and makes the rename fail.
  rmdir(target.c_str());
  return PublishDirectory(making, target);
}

// Makes one backup.
class Maker {
 public:
  Maker(const Request& request, fs::path target, fs::path temporary, const OnProgress& on_progress)
      : request_(request),
        target_(std::move(target)),
        temporary_(std::move(temporary)),
        copier_(request_.state_dir, temporary_, Expected(request_), request_.reserve, on_progress),
        datasets_(request_.state_dir, temporary_, copier_) {}

  absl::Status CheckRoom() const { return request_.reserve.Check(static_cast<uint64_t>(Expected(request_))); }
  absl::StatusOr<Summary> Make();

 private:
  static int64_t Expected(const Request& request);
  fs::path DatabasePath() const { return request_.state_dir / kDatabaseFile; }

  absl::Status CopyUnfinished(std::vector<JobRow>& rows);
  absl::Status CopyJobs(std::vector<JobRow>& rows);
  absl::Status CopyOneDatabase();
  absl::Status CopyJob(const JobRow& row);
  absl::Status CopyLogs(const JobId& id);
  absl::Status CopyIfThere(const std::string& path, bool folder);
  // Returns the names of datasets that unfinished jobs use, but which the backup lacks or holds under another uid.
  absl::StatusOr<std::set<std::string>> FindWanted(const std::vector<JobRow>& rows);

  const Request& request_;
  const fs::path target_, temporary_;
  Copier copier_;
  DatasetCopies datasets_;
  std::map<JobId, CheckpointCopy> checkpoints_;  // by copied job: what became of its checkpoints
};

int64_t Maker::Expected(const Request& request) {
  int64_t bytes = BytesBelow(request.state_dir / kDatabaseFile) + BytesBelow(request.state_dir / "plans");
  bytes += BytesBelow(request.state_dir / "programs");
  if (request.with_datasets) bytes += BytesBelow(request.state_dir / "datasets");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(request.state_dir / "jobs", error)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    for (const char* part : {"initial.safetensors", "program.pt2", "artifacts"})
      bytes += BytesBelow(entry.path() / part);
    for (const std::string& name : LogNames(entry.path()).value_or(std::vector<std::string>())) {
      bytes += BytesBelow(entry.path() / name);
    }
    const auto checkpoints = train::ListCheckpoints(entry.path() / train::kCheckpointsFolder, /*verify=*/false);
    if (checkpoints.ok() && !checkpoints->empty()) bytes += static_cast<int64_t>(checkpoints->front().bytes);
  }
  return bytes;
}

absl::Status Maker::CopyIfThere(const std::string& path, bool folder) {
  absl::Status copied;
  for (int i = 0; i < kTries; ++i) {
    copied = folder ? copier_.CopyFolder(path) : copier_.CopyFile(path);
    if (!absl::IsNotFound(copied)) return copied;
    std::error_code error;
    if (!fs::exists(request_.state_dir / path, error)) return copier_.Drop(path);
    // A file of the folder was replaced or removed meanwhile, so the folder is copied again.
    PF_RETURN_IF_ERROR(copier_.Drop(path));
  }
  return copied;
}

// During the copy, a log that grows too long may be renamed, and its older part removed. Then all parts are copied
// again.
absl::Status Maker::CopyLogs(const JobId& id) {
  const std::string folder = absl::StrCat("jobs/", id.value());
  for (int i = 0; i < kTries; ++i) {
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> logs, LogNames(request_.state_dir / folder));
    absl::Status copied;
    for (const std::string& name : logs) {
      copied = copier_.CopyFile(absl::StrCat(folder, "/", name));
      if (!copied.ok()) break;
    }
    if (!copied.ok() && !absl::IsNotFound(copied)) return copied;
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> now, LogNames(request_.state_dir / folder));
    if (copied.ok() && now == logs) return absl::OkStatus();
    for (const std::string& name : logs) PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat(folder, "/", name)));
  }
  return absl::UnavailableError(
      absl::StrCat("job ", id.value(), " rotated its log faster than it could be copied: try again"));
}

absl::Status Maker::CopyJob(const JobRow& row) {
  const JobId& id = row.id;
  const std::string folder = absl::StrCat("jobs/", id.value());
  PF_RETURN_IF_ERROR(copier_.Drop(folder));
  PF_RETURN_IF_ERROR(CreateDirectories(temporary_ / folder));
  PF_ASSIGN_OR_RETURN(checkpoints_[id],
                      CopyNewestCheckpoint(request_.state_dir, temporary_, id, row.had_checkpoint, copier_));
  PF_RETURN_IF_ERROR(CopyIfThere(absl::StrCat(folder, "/artifacts"), /*folder=*/true));
  PF_RETURN_IF_ERROR(CopyIfThere(absl::StrCat(folder, "/initial.safetensors"), /*folder=*/false));
  PF_RETURN_IF_ERROR(CopyIfThere(absl::StrCat(folder, "/program.pt2"), /*folder=*/false));
  return CopyLogs(id);
}

absl::Status Maker::CopyOneDatabase() {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
    PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat(kDatabaseFile, suffix)));
  }
  return CopyDatabase(DatabasePath(), temporary_ / kDatabaseFile);
}

// Copies the jobs that have not ended, and then the database. Repeats this until the copied database lists no
// unfinished job whose files are not copied.
absl::Status Maker::CopyUnfinished(std::vector<JobRow>& rows) {
  std::set<JobId> copied;
  bool all_copied = false;
  PF_ASSIGN_OR_RETURN(rows, ReadJobRows(DatabasePath()));
  for (int i = 0; i < kTries && !all_copied; ++i) {
    for (const JobRow& row : rows) {
      if (row.ended || !copied.insert(row.id).second) continue;
      PF_RETURN_IF_ERROR(CopyJob(row));
    }
    PF_RETURN_IF_ERROR(CopyOneDatabase());
    PF_ASSIGN_OR_RETURN(rows, ReadJobRows(temporary_ / kDatabaseFile));
    // If a job was created or queued again meanwhile, or has written its first checkpoint, it is copied in another
    // round. The files of a job must be older than the database, so the database is copied again too.
    for (const JobRow& row : rows) {
      if (row.had_checkpoint && copied.contains(row.id) && checkpoints_[row.id] == CheckpointCopy::kNone) {
        copied.erase(row.id);
      }
    }
    all_copied = std::ranges::all_of(rows, [&](const JobRow& row) { return row.ended || copied.contains(row.id); });
  }
  if (!all_copied) {
    return absl::UnavailableError(
        "jobs were created or queued again faster than they could be copied: try again when fewer are");
  }
  // These jobs were deleted before the database was copied. The daemon that goes on from the backup would quarantine
  // their files.
  for (const JobRow& row : rows) copied.erase(row.id);
  for (const JobId& id : copied) PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat("jobs/", id.value())));
  return absl::OkStatus();
}

absl::Status Maker::CopyJobs(std::vector<JobRow>& rows) {
  PF_RETURN_IF_ERROR(CopyUnfinished(rows));
  std::vector<JobId> gone;
  for (const JobRow& row : rows) {
    if (!row.ended) continue;
    std::error_code error;
    if (!fs::is_directory(request_.state_dir / "jobs" / row.id.value(), error)) {
      // The job was deleted after the database was copied. A job whose files are merely missing is treated in the
      // same way, since it cannot be restored either.
      gone.push_back(row.id);
      PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat("jobs/", row.id.value())));
      continue;
    }
    PF_RETURN_IF_ERROR(CopyJob(row));
  }
  std::erase_if(rows, [&](const JobRow& row) { return std::ranges::find(gone, row.id) != gone.end(); });
  PF_RETURN_IF_ERROR(DropJobRows(temporary_ / kDatabaseFile, gone));
  return copier_.Take(kDatabaseFile);
}

absl::StatusOr<std::set<std::string>> Maker::FindWanted(const std::vector<JobRow>& rows) {
  std::set<std::string> wanted;
  for (const JobRow& row : rows) {
    // A job whose spec cannot be read never runs, so it needs no dataset.
    if (row.ended || row.dataset.empty()) continue;
    bool there = false;
    // If the dataset was imported or replaced after the datasets were copied, Pair copies it now.
    if (request_.with_datasets) {
      PF_ASSIGN_OR_RETURN(there, datasets_.Pair(row.dataset.value(), row.dataset_uid));
    }
    if (!there) wanted.insert(row.dataset.value());
  }
  return wanted;
}

absl::StatusOr<Summary> Maker::Make() {
  PF_ASSIGN_OR_RETURN(std::vector<std::string> imports, CopyImports(request_.state_dir, copier_));
  if (request_.with_datasets) PF_RETURN_IF_ERROR(datasets_.CopyAll());
  std::vector<JobRow> rows;
  PF_RETURN_IF_ERROR(CopyJobs(rows));
  PF_RETURN_IF_ERROR(CopyIfThere("tokens.json", /*folder=*/false));
  PF_RETURN_IF_ERROR(CopyIfThere("plans", /*folder=*/true));
  PF_RETURN_IF_ERROR(CopyIfThere("programs", /*folder=*/true));
  PF_RETURN_IF_ERROR(CopyAudit(request_.state_dir, copier_));
  // If a server goes on from an old backup, this file makes it ask before it deletes anything because of its age.
  PF_RETURN_IF_ERROR(CopyIfThere("clock.json", /*folder=*/false));
  PF_ASSIGN_OR_RETURN(const std::set<std::string> wanted, FindWanted(rows));
  // An ended job that lost its checkpoints is not listed, because it does not go on.
  std::vector<JobId> anew;
  for (const JobRow& row : rows) {
    if (row.ended || checkpoints_[row.id] != CheckpointCopy::kLost) continue;
    anew.push_back(row.id);
    telemetry::LogOfJob(telemetry::Severity::kWarning, row.id.value(),
                        absl::StrCat("is in the backup ", target_.string(),
                                     " without a checkpoint, as all are damaged or gone: a server that goes on from it "
                                     "starts the job anew"));
  }
  PF_RETURN_IF_ERROR(copier_.SyncFolders());
  const Manifest manifest{.version = request_.version,
                          .request_id = request_.request_id,
                          .create_time = absl::Now(),
                          .jobs = static_cast<int64_t>(rows.size()),
                          .datasets_wanted = {wanted.begin(), wanted.end()},
                          .jobs_anew = std::move(anew),
                          .imports = std::move(imports),
                          .files = copier_.files()};
  PF_RETURN_IF_ERROR(WriteManifest(temporary_, manifest));
  PF_RETURN_IF_ERROR(PublishMaking(temporary_, target_));
  return SummaryOf(target_, manifest);
}

// Returns the summary of the backup that an earlier call with this request_id made; nullopt: there is none.
absl::StatusOr<std::optional<Summary>> FindMade(const Request& request, const fs::path& target) {
  if (request.request_id.empty()) return std::nullopt;
  const absl::StatusOr<std::optional<Manifest>> manifest = ReadManifest(target);
  if (manifest.ok() && *manifest && (*manifest)->request_id == request.request_id) return SummaryOf(target, **manifest);
  if (!request.answered) return std::nullopt;
  return absl::NotFoundError(absl::StrCat("the backup ", target.string(), " that request_id ", request.request_id,
                                          " made is gone; use a new one for a new backup"));
}

}  // namespace

absl::StatusOr<Summary> Make(const Request& request, const OnProgress& on_progress) {
  PF_ASSIGN_OR_RETURN(const fs::path target, TargetOf(request.root, request.directory));
  PF_ASSIGN_OR_RETURN(const std::optional<Summary> made, FindMade(request, target));
  if (made) return *made;
  PF_ASSIGN_OR_RETURN(const FileLock lock, LockRoot(request.root));
  PF_RETURN_IF_ERROR(CheckFree(target));
  RemoveLeftovers(request.root);
  PF_ASSIGN_OR_RETURN(const fs::path temporary, CreateMaking(target));
  absl::Cleanup remove_half_made = [&temporary] { RemoveMaking(temporary).IgnoreError(); };
  Maker maker(request, target, temporary, on_progress);
  PF_RETURN_IF_ERROR(maker.CheckRoom());
  return maker.Make();
}

absl::StatusOr<bool> BeginRestore(const fs::path& state_dir) {
  PF_ASSIGN_OR_RETURN(const std::optional<Manifest> manifest, ReadManifest(state_dir));
  if (!manifest) {
    std::error_code error;
    const bool begun = fs::exists(state_dir / kRestoringFile, error);
    if (error) return SystemError(error.value(), state_dir / kRestoringFile, "stat");
    return begun;
  }
  PF_RETURN_IF_ERROR(CheckFiles(state_dir, *manifest));
  PF_RETURN_IF_ERROR(Rename(state_dir / kManifestFile, state_dir / kRestoringFile));
  return true;
}

absl::Status EndRestore(const fs::path& state_dir) {
  return Rename(state_dir / kRestoringFile, state_dir / kRestoredFile);
}

absl::StatusOr<fs::path> CreateMaking(const fs::path& target) {
  fs::path making = MakingOf(target);
  std::error_code error;
  if (!fs::create_directory(making, error)) {
    if (error) return SystemError(error.value(), making, "create");
    return absl::AlreadyExistsError(
        absl::StrCat(making.string(), " is there, and no part of a backup: move it away, or choose another name"));
  }
  absl::Status marked = MarkInTheMaking(making);
  if (marked.ok()) return making;
  RemoveMaking(making).IgnoreError();
  return marked;
}

fs::path FindNewest(const fs::path& root) {
  fs::path newest;
  fs::file_time_type newest_time;
  std::error_code error;
  if (root.empty()) return newest;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    std::error_code ignored;
    const auto time = fs::last_write_time(entry.path() / kManifestFile, ignored);
    if (ignored || entry.path().filename().string().starts_with('.')) continue;
    if (newest.empty() || time > newest_time) {
      newest = entry.path();
      newest_time = time;
    }
  }
  return newest;
}

}  // namespace permafrost::backup
