#include "backup/side_copies.h"

#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;

constexpr char kDatasetsFolder[] = "datasets", kRecordFile[] = "dataset.json";
constexpr int kDatasetTries = 20;

// Returns the uid of the dataset in a folder. It is empty where the dataset's record is not there, cannot be read, or
// comes from a version without uids.
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
    const absl::Status copied = copier_.CopyFolder(path);
    if (!copied.ok() && !absl::IsNotFound(copied)) return copied;
    // Deleted meanwhile, or replaced: then some files may be of the one dataset and some of the other.
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

// By number, the oldest first, the newest last: the names of one moment.
absl::StatusOr<std::vector<std::string>> AuditNames(const fs::path& state_dir) {
  PF_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> names, ListDirectory(state_dir));
  std::vector<std::string> logs = std::move(names).value_or(std::vector<std::string>());
  std::erase_if(logs, [](const std::string& name) { return name != kAuditFile && !name.starts_with(kOlderAudit); });
  std::ranges::sort(logs, std::ranges::greater());
  return logs;
}

// Another file has the name after each rotation.
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
    if (absl::IsNotFound(copied)) continue;  // it has ended meanwhile
    PF_RETURN_IF_ERROR(copied);
    datasets.push_back(name.substr(0, name.size() - (sizeof kImportSuffix - 1)));
  }
  std::ranges::sort(datasets);
  return datasets;
}

}  // namespace permafrost::backup
