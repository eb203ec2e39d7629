#include "data/catalog/catalog_files.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr char kImports[] = ".imports";
constexpr absl::string_view kTemporaryPrefix = ".tmp-";
constexpr absl::string_view kDeletedPrefix = ".deleted-";
// Older versions gave deleted datasets names that begin like this. The directory of an import can have such a name
// too.
constexpr absl::string_view kOldDeletedPrefix = ".tmp-deleted-";
constexpr char kRecordFile[] = "dataset.json";
constexpr absl::string_view kRecordSuffix = ".json";
constexpr absl::string_view kDeletedSuffix = ".deleted";

absl::StatusOr<std::vector<std::string>> Names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return SystemError(error.value(), directory, "list");
  return names;
}

absl::StatusOr<ImportRecord> ReadRecord(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto record = RecordFromJson(text);
  if (!record.ok()) return Annotate(record.status(), path.string());
  return record;
}

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

bool IsDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Returns the id of "NAME" + `suffix`, or an empty id if the name has another form.
DatasetId IdBefore(absl::string_view name, absl::string_view suffix) {
  if (!absl::ConsumeSuffix(&name, suffix)) return DatasetId();
  const std::string id(name);
  return CheckIdSyntax("name", id).ok() ? DatasetId(id) : DatasetId();
}

// Matches "12-NAME", which UnpublishDataset makes.
bool IsNumberedId(absl::string_view name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits > 0 && absl::ConsumePrefix(&(name = name.substr(digits)), "-") && !IdBefore(name, "").empty();
}

// Returns true if the directory holds only files of a dataset, or no files.
bool HoldsOnlyADataset(const fs::path& directory) {
  std::error_code error;
  if (!IsDirectory(directory)) return false;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != GraphSet::kFileName && name != Graph::kFileName && name != kRecordFile) return false;
    if (!IsFile(it->path())) return false;
  }
  return !error;
}

// Matches "NAME.json.tmp.XXXXXX", which WriteFileAtomic leaves if it is killed.
bool IsHalfWrittenRecord(absl::string_view name) {
  constexpr absl::string_view kInfix = ".json.tmp.";
  constexpr size_t kRandom = 6;
  const size_t at = name.find(kInfix);
  return at != name.npos && name.size() == at + kInfix.size() + kRandom && !IdBefore(name.substr(0, at), "").empty();
}

}  // namespace

fs::path CatalogFiles::DeletedImportPath(const DatasetId& id) const {
  return directory_ / kImports / absl::StrCat(id.value(), kDeletedSuffix);
}

fs::path CatalogFiles::ImportPath(const DatasetId& id) const {
  return directory_ / kImports / absl::StrCat(id.value(), kRecordSuffix);
}

fs::path CatalogFiles::TemporaryPath(const DatasetId& id) const {
  return directory_ / absl::StrCat(kTemporaryPrefix, id.value());
}

bool CatalogFiles::IsLeaving(const std::string& name) const {
  const fs::path path = directory_ / name;
  absl::string_view rest = name;
  if (absl::ConsumePrefix(&rest, kTemporaryPrefix)) {
    const DatasetId id = IdBefore(rest, "");
    if (!id.empty() && IsDirectory(path) && (IsFile(ImportPath(id)) || IsFile(DeletedImportPath(id)))) return true;
  }
  rest = name;
  const bool deleted = absl::ConsumePrefix(&rest, kDeletedPrefix) || absl::ConsumePrefix(&rest, kOldDeletedPrefix);
  return deleted && IsNumberedId(rest) && HoldsOnlyADataset(path);
}

absl::Status CatalogFiles::Quarantine(const fs::path& path, std::string_view why) const {
  PF_ASSIGN_OR_RETURN(const fs::path to, MoveToQuarantine(directory_, path));
  if (warn_) warn_(absl::StrCat(path.string(), ": ", AbslView(why), "; moved to ", to.string()));
  return absl::OkStatus();
}

absl::Status CatalogFiles::Prepare() const {
  PF_RETURN_IF_ERROR(CreateDirectories(directory_ / kImports));
  PF_RETURN_IF_ERROR(SyncDirectory(directory_));
  PF_ASSIGN_OR_RETURN(const auto datasets, Names(directory_));
  for (const std::string& name : datasets) {
    if (!absl::StartsWith(name, kTemporaryPrefix) && !absl::StartsWith(name, kDeletedPrefix)) continue;
    if (!IsLeaving(name)) {
      PF_RETURN_IF_ERROR(Quarantine(directory_ / name, "has a name of the server's own, which did not make it"));
    } else if (const absl::Status gone = RemoveAll(directory_ / name); !gone.ok()) {
      // Leftovers of a deletion block nothing, since they no longer have the name of the dataset. Leftovers of an
      // import would block the next import of this name.
      if (!absl::StartsWith(name, kDeletedPrefix)) return gone;
      if (warn_) warn_(absl::StrCat("what is left of a deleted dataset cannot be removed: ", gone.message()));
    }
  }
  // Records are removed last, because the loop above uses them as proof of what is the catalog's own.
  PF_ASSIGN_OR_RETURN(const auto imports, Names(directory_ / kImports));
  for (const std::string& name : imports) {
    const fs::path path = directory_ / kImports / name;
    if (IsHalfWrittenRecord(name) && IsFile(path)) PF_RETURN_IF_ERROR(RemoveAll(path));
    if (const DatasetId id = IdBefore(name, kDeletedSuffix); !id.empty()) PF_RETURN_IF_ERROR(EndDeletedImport(id));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> CatalogFiles::ReadDatasets() const {
  PF_ASSIGN_OR_RETURN(const auto names, Names(directory_));
  std::map<DatasetId, absl::StatusOr<ImportRecord>> datasets;
  for (const std::string& name : names) {
    std::error_code ignored;
    if (!CheckIdSyntax("name", name).ok() || !fs::is_directory(directory_ / name, ignored)) continue;  // not ours
    datasets.emplace(DatasetId(name), ReadDataset(DatasetId(name)));
  }
  return datasets;
}

absl::StatusOr<ImportRecord> CatalogFiles::ReadDataset(const DatasetId& id) const {
  return ReadRecord(DatasetPath(id) / kRecordFile);
}

bool CatalogFiles::IsImportOf(const DatasetId& id, const fs::path& record) const {
  const auto import = ReadRecord(record), dataset = ReadRecord(DatasetPath(id) / kRecordFile);
  return import.ok() && dataset.ok() && import->uid == dataset->uid;
}

absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> CatalogFiles::ReadImports() const {
  PF_ASSIGN_OR_RETURN(const auto names, Names(directory_ / kImports));
  std::map<DatasetId, absl::StatusOr<ImportRecord>> imports;
  for (const std::string& name : names) {
    const DatasetId id = IdBefore(name, kRecordSuffix);
    if (id.empty()) continue;  // not ours
    std::error_code ignored;
    if (!fs::exists(DatasetPath(id), ignored)) {
      imports.emplace(id, ReadRecord(ImportPath(id)));
    } else if (IsImportOf(id, ImportPath(id))) {
      PF_RETURN_IF_ERROR(RemoveImport(id));
    } else {
      PF_RETURN_IF_ERROR(
          Quarantine(ImportPath(id), absl::StrCat("its import cannot go on, as ", DatasetPath(id).string(),
                                                  " is not its own; import under another name to have it")));
    }
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

absl::Status CatalogFiles::MarkImportDeleted(const DatasetId& id) const {
  std::error_code error;
  fs::rename(ImportPath(id), DeletedImportPath(id), error);
  if (error) return SystemError(error.value(), ImportPath(id), "rename");
  const absl::Status synced = SyncDirectory(directory_ / kImports);
  // A deletion that fails must not take effect at the next start.
  if (!synced.ok()) fs::rename(DeletedImportPath(id), ImportPath(id), error);
  return synced;
}

absl::Status CatalogFiles::EndDeletedImport(const DatasetId& id) const {
  PF_RETURN_IF_ERROR(DiscardDataset(id));
  // Another dataset may have this name by now.
  if (IsImportOf(id, DeletedImportPath(id))) {
    PF_ASSIGN_OR_RETURN(const fs::path removed, UnpublishDataset(id));
    PF_RETURN_IF_ERROR(RemoveAll(removed));
  }
  PF_RETURN_IF_ERROR(RemoveAll(DeletedImportPath(id)));
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

absl::StatusOr<fs::path> CatalogFiles::UnpublishDataset(const DatasetId& id) const {
  // The number distinguishes this deletion from an unfinished earlier deletion of the same name.
  fs::path path;
  std::error_code ignored;
  for (int n = 1; path.empty() || fs::exists(fs::symlink_status(path, ignored)); ++n) {
    path = directory_ / absl::StrCat(kDeletedPrefix, n, "-", id.value());
  }
  PF_RETURN_IF_ERROR(PublishDirectory(DatasetPath(id), path));
  return path;
}

}  // namespace permafrost::data
