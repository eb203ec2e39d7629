// The datasets under `state_dir/datasets`. Imports run in the background, one at a time. They are atomic, cancelable
// and durable.
// Threads: all methods are safe anywhere. Imports run on a single thread of the catalog.
// Invariant: datasets/NAME/ exists only as a whole dataset. Each accepted import has a file in datasets/.imports/
// until the import ends, so an import that a crash interrupted begins anew. An import fails once the process has died
// three times during that import. The file of a failed import stays, with the error, until the import is deleted or
// replaced. If an error of the machine (a full disk, too many open files) ends an import, the import has not failed.
// It is tried again after 1, 2, 4 ... 300 s, while other imports go on.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/change_hub.h"
#include "base/id.h"
#include "base/resources.h"
#include "data/import/import.h"
#include "data/store/dataset.h"

namespace permafrost::data {

enum class DatasetState { kImporting, kReady, kFailed };
inline constexpr EnumNames<DatasetState, 3> kDatasetStateNames{
    {{{DatasetState::kImporting, "importing"}, {DatasetState::kReady, "ready"}, {DatasetState::kFailed, "failed"}}}};

// A snapshot of one dataset.
struct Dataset {
  DatasetId id;
  DatasetState state = DatasetState::kImporting;
  absl::Time create_time;
  // Distinguishes this dataset from all others that ever had its name. MakeDatasetUid makes it when the import is
  // accepted. No other dataset ever gets the same uid, whatever the clock says. The uid stays with the store, also in
  // a backup.
  std::string uid;
  ImportOptions options;
  ImportProgress progress;  // while kImporting
  std::string error;        // when kFailed
  // While kImporting: the error that ended the last try, or empty if no try was ended by an error.
  std::string last_error;
  // While kImporting: the time of the next try, for display. InfinitePast while a try runs.
  absl::Time retry_time = absl::InfinitePast();
  std::optional<ImportedSummary> summary;  // when kReady
  uint64_t content_checksum = 0;           // when kReady: ContentChecksumOf the store; 0 if unknown
};

// Imports a source. It has the contract of data::Import.
using ImportFunction = std::function<absl::StatusOr<ImportedSummary>(
    const ImportOptions&, const std::filesystem::path&, const ImportObserver&, std::stop_token, const ImportLimits&)>;

// Returns a tag that changes whenever the dataset's uid, state or error does. For a READY dataset it changes with the
// data, since new data has a new uid.
std::string EtagOf(const Dataset& dataset);

// Checks an import before its source is looked at. Errors: InvalidArgument with a violation for each bad field, such
// as "dataset_id" and "options.train_fraction".
absl::Status CheckImport(const DatasetId& id, const ImportOptions& options);

struct CatalogOptions {
  std::filesystem::path directory;  // state_dir/datasets
  // Imports may read only files and folders that, once resolved, lie below one of these paths. So symlinks and `..`
  // cannot lead outside. If the list is empty, no import is allowed.
  std::vector<std::filesystem::path> import_roots;
  // Same as ImportLimits::own_files.
  std::filesystem::path own_files;
  // The number of threads of an import, >= 1.
  int threads = AvailableCores();
  // Called with one line for each entry that the catalog moves to datasets/.quarantine/. An entry moves there if an
  // import replaced it, or if the catalog cannot prove that it made the entry. Also called for each import that waits
  // for its next try, and for files that a deletion could not remove. Called on any thread. It must not call the
  // catalog.
  std::function<void(std::string_view)> warn;
  // Runs an import. An exception that it throws fails the import, not the process.
  ImportFunction importer = data::Import;
  // Checks a source for Validate. It has the contract of data::CheckSource.
  std::function<absl::Status(const ImportOptions&, const ImportLimits&)> checker = data::CheckSource;
  // The wait before the first retry of an import, or of opening a dataset, that an error of the machine ended. The
  // wait doubles with each retry.
  absl::Duration first_retry = absl::Seconds(1);
  // Room that is kept free on the directory's disk. While there is less, no import begins, and a running import is
  // stopped and tried again later.
  DiskReserve reserve;
  // The most bytes that all datasets together may take on disk, including the running import. 0 means no limit. An
  // import that would exceed the limit fails.
  uint64_t max_bytes = 0;
};

class Catalog {
 public:
  // Removes what interrupted imports and deletions left. Moves to .quarantine/ each entry that has the name of a
  // leftover but cannot be proven to be the catalog's own. Restarts the accepted imports. A dataset that cannot be
  // opened does not stop the daemon: the dataset is listed as kFailed with its error. If the machine is at fault, the
  // catalog tries again to open the dataset.
  static absl::StatusOr<std::unique_ptr<Catalog>> Create(CatalogOptions options);
  virtual ~Catalog() = default;

  // Accepts an import; the acceptance is durable once this call returns. Replaces an import of the same name that has
  // failed or waits for its next try. The new import does not wait for this next try. A dataset of the same name that
  // could not be opened goes to .quarantine/. Errors: those of CheckImport; AlreadyExists (reason
  // DATASET_ALREADY_EXISTS); PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS); NotFound if there is no source;
  // ResourceExhausted (reason DATASETS_TOO_LARGE); Unavailable after StopImports.
  virtual absl::StatusOr<Dataset> Import(const DatasetId& id, ImportOptions options) = 0;
  // Returns what Import would return now, but without a uid. Changes nothing. Finds the source and its layout, but
  // reads no rows. Errors: those of Import and of the checker.
  virtual absl::StatusOr<Dataset> Validate(const DatasetId& id, ImportOptions options) const = 0;
  // Errors: NotFound (reason DATASET_NOT_FOUND).
  virtual absl::StatusOr<Dataset> Get(const DatasetId& id) const = 0;
  // Returns all datasets, ordered by id.
  virtual std::vector<Dataset> List() const = 0;
  // Deletes a dataset or an import. The deletion is durable once this call returns. The call waits for no import. A
  // running import is stopped. Its dataset disappears and the name is free at once; the files are removed once the
  // importer returns. If files cannot be removed, `warn` is called, and the next start of the process tries again.
  // `in_use` is called under the catalog's lock just before the removal, and may refuse it with FailedPrecondition.
  // Errors: NotFound; Aborted (reason ETAG_MISMATCH) if `etag` is not empty and is not the dataset's.
  virtual absl::Status Delete(const DatasetId& id, const std::string& etag,
                              const std::function<absl::Status()>& in_use) = 0;
  absl::Status Delete(const DatasetId& id, const std::function<absl::Status()>& in_use) {
    return Delete(id, "", in_use);
  }
  // Returns the open store of a READY dataset. All callers share this store. Errors: NotFound; FailedPrecondition
  // (reason DATASET_NOT_READY) if the dataset is not READY. That error is transient if the catalog will try again to
  // open the dataset.
  virtual absl::StatusOr<OpenedDataset> Open(const DatasetId& id) const = 0;
  // Resolves a file or folder that imports may read. Errors: those of ResolveSource (imports.h).
  virtual absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const = 0;
  // Returns true if a waiting or running import reads this folder or something in it.
  bool ImportsFrom(const std::filesystem::path& folder) const;
  // Calls `listener` on every change of the dataset, including its deletion.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) = 0;
  // Counts of imports since the process started, for telemetry.
  struct ImportCounts {
    int64_t succeeded = 0, failed = 0, cancelled = 0;
    int64_t retried = 0;  // tries that an error of the machine ended
  };
  // Totals of all datasets.
  struct Usage {
    std::array<int64_t, kDatasetStateNames.rows.size()> datasets{};  // by DatasetState
    struct Stores {
      int64_t count = 0;
      uint64_t bytes = 0;
    };
    Stores graph_sets, graphs;  // of datasets that are ready
    uint64_t mapped_bytes = 0;
    ImportCounts imports;
    int64_t imports_waiting = 0;  // accepted imports that are not running
  };
  // Returns the totals as of the last change. Unlike all methods above, it never waits for the disk.
  virtual Usage usage() const = 0;
  // Returns how much of the running import's source has been read, 0 to 1, or nullopt if no import runs. Never
  // blocks.
  virtual std::optional<double> import_progress() const { return std::nullopt; }
  // Stops the running import. It begins anew when the process starts again. Idempotent.
  virtual void StopImports() = 0;
};

}  // namespace permafrost::data
