#include "data/catalog/catalog_files.h"

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr char kImports[] = ".imports";
constexpr char kTemporaryPrefix[] = ".tmp-";
constexpr char kRecordFile[] = "dataset.json";
constexpr char kRecordSuffix[] = ".json";

absl::StatusOr<std::vector<std::string>> Names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return absl::InternalError(absl::StrCat(directory.string(), ": cannot list: ", error.message()));
  return names;
}

absl::StatusOr<ImportRecord> ReadRecord(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto record = RecordFromJson(text);
  if (!record.ok()) return Annotate(record.status(), path.string());
  return record;
}

}  // namespace

fs::path CatalogFiles::ImportPath(const DatasetId& id) const {
  return directory_ / kImports / absl::StrCat(id.value(), kRecordSuffix);
}

fs::path CatalogFiles::TemporaryPath(const DatasetId& id) const {
  return directory_ / absl::StrCat(kTemporaryPrefix, id.value());
}

absl::Status CatalogFiles::Prepare() const {
  PF_RETURN_IF_ERROR(CreateDirectories(directory_ / kImports));
  PF_RETURN_IF_ERROR(SyncDirectory(directory_));
  PF_ASSIGN_OR_RETURN(const auto datasets, Names(directory_));
  for (const std::string& name : datasets) {
    if (absl::StartsWith(name, kTemporaryPrefix)) PF_RETURN_IF_ERROR(RemoveAll(directory_ / name));
  }
  // WriteFileAtomic leaves NAME.json.tmp.* when it is killed.
  PF_ASSIGN_OR_RETURN(const auto imports, Names(directory_ / kImports));
  for (const std::string& name : imports) {
    if (absl::StrContains(name, ".tmp.")) PF_RETURN_IF_ERROR(RemoveAll(directory_ / kImports / name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> CatalogFiles::ReadDatasets() const {
  PF_ASSIGN_OR_RETURN(const auto names, Names(directory_));
  std::map<DatasetId, absl::StatusOr<ImportRecord>> datasets;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (!CheckIdSyntax("name", name).ok() || !fs::is_directory(directory_ / name, ignored)) continue;  // not ours
    datasets.emplace(DatasetId(name), ReadRecord(directory_ / name / kRecordFile));
  }
  return datasets;
}

absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> CatalogFiles::ReadImports() const {
  PF_ASSIGN_OR_RETURN(const auto names, Names(directory_ / kImports));
  std::map<DatasetId, absl::StatusOr<ImportRecord>> imports;
  for (const std::string& name : names) {
    const DatasetId id(std::string(absl::StripSuffix(name, kRecordSuffix)));
    if (id.value() == name || !CheckIdSyntax("name", id.value()).ok()) continue;  // not ours
    std::error_code ignored;
    if (fs::exists(DatasetPath(id), ignored)) {
      PF_RETURN_IF_ERROR(RemoveImport(id));
      continue;
    }
    imports.emplace(id, ReadRecord(ImportPath(id)));
  }
  return imports;
}

absl::Status CatalogFiles::WriteImport(const DatasetId& id, const ImportRecord& record) const {
  return WriteFileAtomic(ImportPath(id), RecordToJson(record));
}

absl::Status CatalogFiles::RemoveImport(const DatasetId& id) const {
  PF_RETURN_IF_ERROR(RemoveAll(ImportPath(id)));
  return SyncDirectory(directory_ / kImports);
}

absl::StatusOr<fs::path> CatalogFiles::BeginDataset(const DatasetId& id) const {
  fs::path path = TemporaryPath(id);
  PF_RETURN_IF_ERROR(RemoveAll(path));
  PF_RETURN_IF_ERROR(CreateDirectories(path));
  return path;
}

absl::Status CatalogFiles::PublishDataset(const DatasetId& id, const ImportRecord& record) const {
  const fs::path path = TemporaryPath(id);
  PF_RETURN_IF_ERROR(WriteFileSynced(path / kRecordFile, RecordToJson(record)));
  return PublishDirectory(path, DatasetPath(id));
}

absl::Status CatalogFiles::DiscardDataset(const DatasetId& id) const { return RemoveAll(TemporaryPath(id)); }

absl::StatusOr<fs::path> CatalogFiles::UnpublishDataset(const DatasetId& id, int64_t serial) const {
  // The serial keeps it from an earlier deletion of the same name that has not ended.
  fs::path path = directory_ / absl::StrCat(kTemporaryPrefix, "deleted-", serial, "-", id.value());
  PF_RETURN_IF_ERROR(PublishDirectory(DatasetPath(id), path));
  return path;
}

}  // namespace permafrost::data
