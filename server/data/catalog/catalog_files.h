// The files of a catalog, and the steps that move a dataset from one state to another on disk. Each step is one rename
// or one atomic write, so that a crash leaves the state before or after it.
//   NAME/                  a whole dataset: graphs.pfg or graph.pfg, and dataset.json
//   .imports/NAME.json     an import that is wanted, or has failed
//   .imports/NAME.deleted  the same file of an import that was deleted while it ran
//   .tmp-NAME/             a dataset in the making; made only while one of these two files of NAME is there
//   .deleted-N-NAME/       a deleted dataset whose bytes are being removed
//   .quarantine/           what stood under one of these names and cannot be proven to be the catalog's own, and
//                          datasets that an import replaced; nothing is ever removed from it
// Nothing is removed that this class cannot prove to have made. Threads: safe anywhere; the catalog keeps two writers
// from one name. Errors: as base/file.h.
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
  // Told in one line of what was moved to .quarantine/ and why.
  using Warn = std::function<void(std::string_view line)>;

  CatalogFiles(std::filesystem::path directory, Warn warn) : directory_(std::move(directory)), warn_(std::move(warn)) {}

  // Makes the directories, removes what interrupted imports and deletions left, and moves what is not theirs to
  // .quarantine/.
  absl::Status Prepare() const;

  std::filesystem::path DatasetPath(const DatasetId& id) const { return directory_ / id.value(); }
  // Datasets that are there. The record of one may be unreadable.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadDatasets() const;
  // Reads the record of one of them.
  absl::StatusOr<ImportRecord> ReadDataset(const DatasetId& id) const;
  // Returns imports that are wanted or have failed. An import that had published its dataset when the process died has
  // ended: its record is removed. If something else has taken the name, the record goes to .quarantine/.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadImports() const;

  absl::Status WriteImport(const DatasetId& id, const ImportRecord& record) const;
  absl::Status RemoveImport(const DatasetId& id) const;
  // Takes back an import that runs: durable at once, while its files stay until EndDeletedImport.
  absl::Status MarkImportDeleted(const DatasetId& id) const;
  // Removes what that import left, its dataset included if it had published one.
  absl::Status EndDeletedImport(const DatasetId& id) const;

  // An empty directory for a dataset in the making.
  absl::StatusOr<std::filesystem::path> BeginDataset(const DatasetId& id) const;
  // Gives it its record and its name.
  absl::Status PublishDataset(const DatasetId& id, const ImportRecord& record) const;
  absl::Status DiscardDataset(const DatasetId& id) const;
  // Takes a dataset's name away at once; its bytes still lie at the path returned, for RemoveAll.
  absl::StatusOr<std::filesystem::path> UnpublishDataset(const DatasetId& id) const;
  // Moves `path`, an entry of this catalog's directories, to .quarantine/ and warns with the reason.
  absl::Status Quarantine(const std::filesystem::path& path, std::string_view why) const;

 private:
  std::filesystem::path ImportPath(const DatasetId& id) const;
  std::filesystem::path DeletedImportPath(const DatasetId& id) const;
  std::filesystem::path TemporaryPath(const DatasetId& id) const;
  // True if an entry whose name begins with a dot was made here, and is not needed any more.
  bool IsLeaving(const std::string& name) const;
  bool IsImportOf(const DatasetId& id, const std::filesystem::path& record) const;

  const std::filesystem::path directory_;
  const Warn warn_;
};

}  // namespace permafrost::data
