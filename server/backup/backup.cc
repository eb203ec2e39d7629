#include "backup/backup.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backup/database_copy.h"
#include "backup/manifest.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/checkpoint_files.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;

constexpr char kDatabaseFile[] = "permafrost.db";
constexpr char kInTheMaking[] = ".tmp-";
constexpr size_t kMaxNameBytes = 128;
// Tries of what may be removed while it is copied.
constexpr int kTries = 20;
// Between two looks that find no checkpoint where there may be one.
constexpr absl::Duration kLookAgain = absl::Milliseconds(5);
// What is left free of the disk beside the backup.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;

bool IsBackupName(const std::string& name) {
  const auto is_plain = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' && std::ranges::all_of(name, is_plain);
}

absl::StatusOr<fs::path> TargetOf(const Request& request) {
  if (request.root.empty()) {
    return WithReason(absl::FailedPreconditionError("the server was started without --backup-root DIR, which names the "
                                                    "directory of its machine that backups are written below"),
                      "NO_BACKUP_ROOT");
  }
  fs::path name = request.directory;
  if (name.is_absolute() && name.lexically_normal().parent_path() == request.root) name = name.filename();
  if (!IsBackupName(name.string())) {
    Violations violations;
    violations.Add("directory",
                   absl::StrCat("\"", request.directory, "\": accepted: a name of letters, digits, '.', '-' and '_' ",
                                "that does not begin with '.', or that name below ", request.root.string()));
    return violations.ToStatus();
  }
  fs::path target = request.root / name;
  std::error_code error;
  if (fs::exists(fs::symlink_status(target, error)) &&
      !(fs::is_directory(target, error) && fs::is_empty(target, error))) {
    return absl::AlreadyExistsError(absl::StrCat(target.string(), " is there already, and not an empty directory"));
  }
  return target;
}

// One backup in the making.
class Maker {
 public:
  Maker(const Request& request, fs::path target, fs::path temporary, const OnProgress& on_progress)
      : request_(request),
        target_(std::move(target)),
        temporary_(std::move(temporary)),
        copier_(request_.state_dir, temporary_, Expected(request_), on_progress) {}

  absl::Status CheckRoom() const {
    std::error_code error;
    const fs::space_info space = fs::space(request_.root, error);
    const auto wanted = static_cast<uint64_t>(Expected(request_)) + kSpareBytes;
    if (error || space.available >= wanted) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(request_.root.string(), ": ", space.available,
                                                     " bytes are free, and the backup takes about ", wanted));
  }
  absl::StatusOr<Summary> Make();

 private:
  static int64_t Expected(const Request& request);
  fs::path DatabasePath() const { return request_.state_dir / kDatabaseFile; }

  absl::Status CopyJobs(std::vector<JobRow>& rows);
  absl::Status CopyOneDatabase();
  absl::Status CopyJob(const JobId& id, bool with_checkpoint);
  absl::Status CopyCheckpoint(const JobId& id);
  absl::Status CopyIfThere(const std::string& path, bool folder);
  absl::Status CopyDatasets(std::vector<std::string>& copied);

  const Request& request_;
  const fs::path target_, temporary_;
  Copier copier_;
};

int64_t Maker::Expected(const Request& request) {
  int64_t bytes = BytesBelow(request.state_dir / kDatabaseFile) + BytesBelow(request.state_dir / "plans");
  if (request.with_datasets) bytes += BytesBelow(request.state_dir / "datasets");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(request.state_dir / "jobs", error)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    for (const char* part : {"log", "initial.safetensors", "artifacts"}) bytes += BytesBelow(entry.path() / part);
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
    // A file of the folder was replaced or removed meanwhile.
    PF_RETURN_IF_ERROR(copier_.Drop(path));
  }
  return copied;
}

// The newest that is whole. One that goes while it is copied was removed for a newer one.
absl::Status Maker::CopyCheckpoint(const JobId& id) {
  const std::string folder = absl::StrCat("jobs/", id.value(), "/", AbslView(train::kCheckpointsFolder));
  std::error_code error;
  if (!fs::exists(request_.state_dir / folder, error)) return absl::OkStatus();
  std::set<int64_t> damaged;
  std::optional<std::vector<int64_t>> first;  // steps of the first look
  for (int i = 0; i < kTries; ++i) {
    PF_ASSIGN_OR_RETURN(const auto found, train::ListCheckpoints(request_.state_dir / folder, /*verify=*/false));
    const auto whole = [&](const train::CheckpointInfo& info) {
      return info.damage.empty() && !damaged.contains(info.step);
    };
    const auto newest = std::ranges::find_if(found, whole);
    std::vector<int64_t> steps;
    for (const train::CheckpointInfo& info : found) steps.push_back(info.step);
    if (!first) first = steps;
    if (newest == found.end()) {
      // A list that was begun before one came and ended after the other went has neither. Where nothing moves, there is
      // none, or all are damaged, which are worth nothing to another daemon either.
      if (i + 1 == kTries && steps == *first) return absl::OkStatus();
      absl::SleepFor(kLookAgain);
      continue;
    }
    absl::Status copied = copier_.CopyFolder(absl::StrCat(folder, "/", newest->step));
    if (copied.ok()) {
      // Against the sums that the run wrote, so that a backup is never of damage.
      PF_ASSIGN_OR_RETURN(const auto copy, train::ListCheckpoints(temporary_ / folder, /*verify=*/true));
      if (copy.size() == 1 && copy.front().damage.empty()) return absl::OkStatus();
      damaged.insert(newest->step);
    } else if (!absl::IsNotFound(copied)) {
      return copied;
    }
    PF_RETURN_IF_ERROR(copier_.Drop(folder));
  }
  return absl::UnavailableError(absl::StrCat(
      "job ", id.value(), " wrote checkpoints faster than one could be copied: try again, or pause the job before"));
}

absl::Status Maker::CopyJob(const JobId& id, bool with_checkpoint) {
  const std::string folder = absl::StrCat("jobs/", id.value());
  PF_RETURN_IF_ERROR(copier_.Drop(folder));
  PF_RETURN_IF_ERROR(CreateDirectories(temporary_ / folder));
  if (with_checkpoint) PF_RETURN_IF_ERROR(CopyCheckpoint(id));
  PF_RETURN_IF_ERROR(CopyIfThere(absl::StrCat(folder, "/artifacts"), /*folder=*/true));
  for (const char* file : {"initial.safetensors", "log"}) {
    PF_RETURN_IF_ERROR(CopyIfThere(absl::StrCat(folder, "/", file), /*folder=*/false));
  }
  return absl::OkStatus();
}

absl::Status Maker::CopyOneDatabase() {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
    PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat(kDatabaseFile, suffix)));
  }
  return CopyDatabase(DatabasePath(), temporary_ / kDatabaseFile);
}

absl::Status Maker::CopyJobs(std::vector<JobRow>& rows) {
  std::set<JobId> copied;  // before the database, which they had not ended by then
  PF_ASSIGN_OR_RETURN(rows, ReadJobRows(DatabasePath()));
  for (int i = 0; i < kTries; ++i) {
    for (const JobRow& row : rows) {
      if (row.ended || !copied.insert(row.id).second) continue;
      PF_RETURN_IF_ERROR(CopyJob(row.id, /*with_checkpoint=*/true));
    }
    PF_RETURN_IF_ERROR(CopyOneDatabase());
    PF_ASSIGN_OR_RETURN(rows, ReadJobRows(temporary_ / kDatabaseFile));
    // One that was created or queued again meanwhile: its files must be older than the database, so both again.
    if (std::ranges::all_of(rows, [&](const JobRow& row) { return row.ended || copied.contains(row.id); })) break;
  }
  std::vector<JobId> gone;
  for (const JobRow& row : rows) {
    if (!row.ended) continue;
    std::error_code error;
    if (!fs::is_directory(request_.state_dir / "jobs" / row.id.value(), error)) {
      // Deleted since the database was copied. Of one that is only missing nothing can be restored either.
      gone.push_back(row.id);
      PF_RETURN_IF_ERROR(copier_.Drop(absl::StrCat("jobs/", row.id.value())));
      continue;
    }
    PF_RETURN_IF_ERROR(CopyJob(row.id, /*with_checkpoint=*/true));
  }
  std::erase_if(rows, [&](const JobRow& row) { return std::ranges::find(gone, row.id) != gone.end(); });
  PF_RETURN_IF_ERROR(DropJobRows(temporary_ / kDatabaseFile, gone));
  return copier_.Take(kDatabaseFile);
}

absl::Status Maker::CopyDatasets(std::vector<std::string>& copied) {
  PF_ASSIGN_OR_RETURN(auto names, ListDirectory(request_.state_dir / "datasets"));
  if (!names) return absl::OkStatus();
  std::ranges::sort(*names);
  for (const std::string& name : *names) {
    const std::string path = absl::StrCat("datasets/", name);
    std::error_code error;
    if (name.starts_with('.') || !fs::is_directory(request_.state_dir / path, error)) continue;
    const absl::Status copy = copier_.CopyFolder(path);
    // Deleted meanwhile.
    if (absl::IsNotFound(copy)) {
      PF_RETURN_IF_ERROR(copier_.Drop(path));
      continue;
    }
    PF_RETURN_IF_ERROR(copy);
    copied.push_back(name);
  }
  return absl::OkStatus();
}

absl::StatusOr<Summary> Maker::Make() {
  std::vector<std::string> datasets;
  if (request_.with_datasets) PF_RETURN_IF_ERROR(CopyDatasets(datasets));
  std::vector<JobRow> rows;
  PF_RETURN_IF_ERROR(CopyJobs(rows));
  PF_RETURN_IF_ERROR(CopyIfThere("tokens.json", /*folder=*/false));
  PF_RETURN_IF_ERROR(CopyIfThere("plans", /*folder=*/true));
  std::set<std::string> wanted;
  for (const JobRow& row : rows) {
    if (!row.ended && std::ranges::find(datasets, row.dataset.value()) == datasets.end())
      wanted.insert(row.dataset.value());
  }
  Summary summary{.path = target_,
                  .files = static_cast<int64_t>(copier_.files().size()),
                  .bytes = copier_.bytes(),
                  .jobs = static_cast<int64_t>(rows.size()),
                  .datasets_wanted = {wanted.begin(), wanted.end()}};
  PF_RETURN_IF_ERROR(WriteManifest(temporary_, {.version = request_.version, .files = copier_.files()}));
  PF_RETURN_IF_ERROR(copier_.SyncFolders());
  // An empty folder of the name makes room; one that is no longer empty stays, and is then in the way.
  std::error_code ignored;
  fs::remove(target_, ignored);
  PF_RETURN_IF_ERROR(PublishDirectory(temporary_, target_));
  return summary;
}

}  // namespace

absl::StatusOr<Summary> Make(const Request& request, const OnProgress& on_progress) {
  PF_ASSIGN_OR_RETURN(const fs::path target, TargetOf(request));
  const fs::path temporary = request.root / absl::StrCat(kInTheMaking, target.filename().string());
  // What a server that died left.
  PF_RETURN_IF_ERROR(RemoveAll(temporary));
  PF_RETURN_IF_ERROR(CreateDirectories(temporary));
  absl::Cleanup remove_half_made = [&temporary] { RemoveAll(temporary).IgnoreError(); };
  Maker maker(request, target, temporary, on_progress);
  PF_RETURN_IF_ERROR(maker.CheckRoom());
  return maker.Make();
}

absl::StatusOr<bool> CheckRestored(const fs::path& state_dir) {
  PF_ASSIGN_OR_RETURN(const std::optional<Manifest> manifest, ReadManifest(state_dir));
  if (!manifest) return false;
  PF_RETURN_IF_ERROR(CheckFiles(state_dir, *manifest));
  return true;
}

absl::Status MarkRestored(const fs::path& state_dir) {
  return Rename(state_dir / kManifestFile, state_dir / kRestoredFile);
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
