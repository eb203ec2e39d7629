// Where a catalog keeps what, and the steps that move a dataset from one state to another on disk. Each step is one
// rename or one atomic write, so that a crash leaves the state before or after it.
//   NAME/                 a whole dataset: graphs.pfg or graph.pfg, and dataset.json
//   .imports/NAME.json    an import that is wanted, or has failed
//   .tmp-*                datasets in the making, with all that their importers keep meanwhile; removed at the next
//   start
// Threads: safe anywhere; the catalog keeps two writers from one name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "data/catalog/import_record.h"

namespace permafrost::data {

class CatalogFiles {
 public:
  explicit CatalogFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Makes the directories and removes leavings.
  absl::Status Prepare() const;

  std::filesystem::path DatasetPath(const DatasetId& id) const { return directory_ / id.value(); }
  // Datasets that are there. The record of one may be unreadable.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadDatasets() const;
  // Imports wanted or failed, those apart whose dataset is there: a crash fell between publishing and this record's
  // end.
  absl::StatusOr<std::map<DatasetId, absl::StatusOr<ImportRecord>>> ReadImports() const;

  absl::Status WriteImport(const DatasetId& id, const ImportRecord& record) const;
  absl::Status RemoveImport(const DatasetId& id) const;

  // An empty directory for a dataset in the making.
  absl::StatusOr<std::filesystem::path> BeginDataset(const DatasetId& id) const;
  // Gives it its record and its name.
  absl::Status PublishDataset(const DatasetId& id, const ImportRecord& record) const;
  absl::Status DiscardDataset(const DatasetId& id) const;
  // Takes a dataset's name away at once; its bytes still lie at the path returned, for RemoveAll.
  absl::StatusOr<std::filesystem::path> UnpublishDataset(const DatasetId& id, int64_t serial) const;

 private:
  std::filesystem::path ImportPath(const DatasetId& id) const;
  std::filesystem::path TemporaryPath(const DatasetId& id) const;

  std::filesystem::path directory_;
};

}  // namespace permafrost::data
