// The datasets under `state_dir/datasets`: imports in the background, one at a time, atomic, cancelable and durable.
// Threads: all methods are safe anywhere; imports run on the catalog's one thread.
// Invariant: datasets/NAME/ exists only whole; an accepted import is a file in datasets/.imports/ until it has ended,
// so it begins anew after a crash, but not for ever: one that the process died in three times has failed. A failed one
// keeps that file with its error until deleted or replaced. An import that an error of the machine ended (a full disk,
// too many open files) has not failed: it is tried again after 1, 2, 4 ... 300 s, while other imports go on.
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

// A snapshot.
struct Dataset {
  DatasetId id;
  DatasetState state = DatasetState::kImporting;
  absl::Time create_time;
  // Tells it from all others that ever had its name: given when its import is accepted, and never to another, whatever
  // the clock says (MakeDatasetUid). It stays with the store, in a backup too.
  std::string uid;
  ImportOptions options;
  ImportProgress progress;  // while kImporting
  std::string error;        // when kFailed
  // While kImporting: what ended the last try, empty if there was none, and when the next one is due, for show;
  // InfinitePast while one runs.
  std::string last_error;
  absl::Time retry_time = absl::InfinitePast();
  std::optional<ImportedSummary> summary;  // when kReady
  uint64_t content_checksum = 0;           // ContentChecksumOf its store, when kReady; 0: not known
};

// Reads the source of an import: data::Import, with its contract.
using ImportFunction = std::function<absl::StatusOr<ImportedSummary>(
    const ImportOptions&, const std::filesystem::path&, const ImportObserver&, std::stop_token, const ImportLimits&)>;

// Changes whenever the dataset's uid, state or error does; for one that is READY, whenever its data does.
std::string EtagOf(const Dataset& dataset);

// Checks an import before its source is looked at. Ok, or InvalidArgument with a violation for each bad field:
// "dataset_id", "options.train_fraction".
absl::Status CheckImport(const DatasetId& id, const ImportOptions& options);

struct CatalogOptions {
  std::filesystem::path directory;  // state_dir/datasets
  // Paths that imports may read, resolved; symlinks and `..` cannot leave them. Empty: no import is allowed.
  std::vector<std::filesystem::path> import_roots;
  // As ImportLimits::own_files.
  std::filesystem::path own_files;
  // Threads of an import, >= 1.
  int threads = AvailableCores();
  // Told in one line of each thing that the catalog moved to datasets/.quarantine/ since it cannot prove to have made
  // it or an import replaced it, of each import that waits for the machine, and of what a deletion could not remove.
  // Called on any thread; it must not call back.
  std::function<void(std::string_view)> warn;
  // An exception that it throws fails the import, not the process.
  ImportFunction importer = data::Import;
  // Looks at a source for Validate: data::CheckSource, with its contract.
  std::function<absl::Status(const ImportOptions&, const ImportLimits&)> checker = data::CheckSource;
  // Wait before what an error of the machine ended is tried again; it doubles each time.
  absl::Duration first_retry = absl::Seconds(1);
  // Kept free on the disk of the directory: an import waits, and one that runs is stopped and tried again later, while
  // less is.
  DiskReserve reserve;
  // Most bytes on disk of all datasets together, that of the import that runs included; 0: any number. An import that
  // would take more fails.
  uint64_t max_bytes = 0;
};

class Catalog {
 public:
  // Removes what interrupted imports and deletions left, moves files that have their names and are not proven theirs to
  // .quarantine/, and restarts the accepted imports. A dataset that cannot be opened is listed as kFailed with its
  // error; it does not stop the daemon. If it is the machine that keeps it from being opened, that is tried again.
  static absl::StatusOr<std::unique_ptr<Catalog>> Create(CatalogOptions options);
  virtual ~Catalog() = default;

  // Durable when Ok. Replaces one that has failed, and one that waits to be tried again, which then begins at once; a
  // dataset that could not be opened goes to .quarantine/.
  // Errors: CheckImport's, AlreadyExists (reason DATASET_ALREADY_EXISTS),
  // PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS), NotFound (source), Unavailable after StopImports.
  virtual absl::StatusOr<Dataset> Import(const DatasetId& id, ImportOptions options) = 0;
  // Returns what Import would answer just now, without a uid, and changes nothing. The source is found, and its layout
  // with it, but no row of it is read. Errors: as Import's; those of the checker.
  virtual absl::StatusOr<Dataset> Validate(const DatasetId& id, ImportOptions options) const = 0;
  // NotFound, reason DATASET_NOT_FOUND.
  virtual absl::StatusOr<Dataset> Get(const DatasetId& id) const = 0;
  // Returns all datasets, ordered by id.
  virtual std::vector<Dataset> List() const = 0;
  // Durable when Ok; waits for no import. One that runs is stopped: its dataset and name are gone at once, its files as
  // soon as its importer comes back. Bytes that cannot be removed are told to `warn`; the next start looks at them
  // again. `in_use` is asked under the catalog's lock just before the removal and may refuse with FailedPrecondition.
  // `etag` not empty: Aborted (reason ETAG_MISMATCH) where it is not the dataset's.
  virtual absl::Status Delete(const DatasetId& id, const std::string& etag,
                              const std::function<absl::Status()>& in_use) = 0;
  absl::Status Delete(const DatasetId& id, const std::function<absl::Status()>& in_use) {
    return Delete(id, "", in_use);
  }
  // The open store of a READY dataset, shared by all who use it. FailedPrecondition (reason DATASET_NOT_READY)
  // otherwise; transient where it will be tried again.
  virtual absl::StatusOr<OpenedDataset> Open(const DatasetId& id) const = 0;
  // A file or folder that imports may read, resolved. Errors: as ResolveSource (imports.h).
  virtual absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const = 0;
  // True if an import that waits or runs reads this folder or something in it.
  bool ImportsFrom(const std::filesystem::path& folder) const;
  // Told on every change of the dataset, its deletion included.
  virtual std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) = 0;
  // Imports by outcome since start, for telemetry.
  struct ImportCounts {
    int64_t succeeded = 0, failed = 0, cancelled = 0;
    int64_t retried = 0;  // tries that the machine ended
  };
  // Totals of all datasets.
  struct Usage {
    std::array<int64_t, kDatasetStateNames.rows.size()> datasets{};  // by DatasetState
    struct Stores {
      int64_t count = 0;
      uint64_t bytes = 0;
    };
    Stores graph_sets, graphs;  // those that are ready
    uint64_t mapped_bytes = 0;
    ImportCounts imports;
    int64_t imports_waiting = 0;  // wanted, and not the one that runs
  };
  // The totals as of the last change. Waits for no disk, unlike all methods above.
  virtual Usage usage() const = 0;
  // Part of the running import's source that is read, 0 to 1; nullopt when none runs. Waits for nothing.
  virtual std::optional<double> import_progress() const { return std::nullopt; }
  // Stops the running import so that it begins anew at the next start. Idempotent.
  virtual void StopImports() = 0;
};

}  // namespace permafrost::data
