// The files of a catalog, and the steps that move a dataset from one state to another on disk. Each step is one
// rename or one atomic write, so a crash leaves the state before or after it.
//   NAME/                  a whole dataset: graphs.pfg or graph.pfg, and dataset.json
//   .imports/NAME.json     an import that is wanted or has failed
//   .imports/NAME.deleted  NAME.json, renamed because the import was deleted while it ran
//   .tmp-NAME/             a dataset being made; begun only while one of the two files of NAME above exists
//   .deleted-N-NAME/       a deleted dataset whose bytes are being removed
//   .quarantine/           datasets that an import replaced, and entries with one of these names but no proof
//                          that they are the catalog's own. Nothing is ever removed from here.
// This class removes only files that it can prove to have made.
// Threads: safe anywhere. The catalog ensures that no two threads write under one name. Errors: those of base/file.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "data/catalog/imports.h"

namespace permafrost::data {

class CatalogFiles {
 public:
  // Called with one line for each entry moved to .quarantine/. The line says what was moved, and why.
  using Warn = std::function<void(std::string_view line)>;

  CatalogFiles(std::filesystem::path directory, Warn warn) : directory_(std::move(directory)), warn_(std::move(warn)) {}

  // Makes the directories and removes what interrupted imports and deletions left. Moves entries that only look like
  // such leftovers to .quarantine/.
  absl::Status Prepare() const;

  std::filesystem::path DatasetPath(const DatasetId& id) const { return directory_ / id.value(); }
  // Returns all datasets. For a record that cannot be read, the map holds the error.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadDatasets() const;
  // Reads the record of one dataset.
  absl::StatusOr<ImportRecord> ReadDataset(const DatasetId& id) const;
  // Returns the imports that are wanted or have failed. If the process died after an import had published its
  // dataset, the import has ended, and its record is removed. If something else has the name of the dataset, the
  // import's record goes to .quarantine/.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadImports() const;

  absl::Status WriteImport(const DatasetId& id, const ImportRecord& record) const;
  absl::Status RemoveImport(const DatasetId& id) const;
  // Marks a running import as deleted. The mark is durable at once; the import's files stay until EndDeletedImport.
  absl::Status MarkImportDeleted(const DatasetId& id) const;
  // Removes what a deleted import left, including the dataset if the import had published it.
  absl::Status EndDeletedImport(const DatasetId& id) const;

  // Makes and returns an empty directory for a new dataset.
  absl::StatusOr<std::filesystem::path> BeginDataset(const DatasetId& id) const;
  // Writes the record into the directory made by BeginDataset, and renames the directory to the dataset's name.
  absl::Status PublishDataset(const DatasetId& id, const ImportRecord& record) const;
  absl::Status DiscardDataset(const DatasetId& id) const;
  // Renames a dataset, so that its name is free at once. Returns the new path of its files, for RemoveAll.
  absl::StatusOr<std::filesystem::path> UnpublishDataset(const DatasetId& id) const;
  // Moves `path`, an entry of this catalog's directories, to .quarantine/ and warns with the reason.
  absl::Status Quarantine(const std::filesystem::path& path, std::string_view why) const;

 private:
  std::filesystem::path ImportPath(const DatasetId& id) const;
  std::filesystem::path DeletedImportPath(const DatasetId& id) const;
  std::filesystem::path TemporaryPath(const DatasetId& id) const;
  // `name` is the name of an entry, and begins with a dot. Returns true if this class made the entry and no longer
  // needs it.
  bool IsLeaving(const std::string& name) const;
  bool IsImportOf(const DatasetId& id, const std::filesystem::path& record) const;

  const std::filesystem::path directory_;
  const Warn warn_;
};

}  // namespace permafrost::data
