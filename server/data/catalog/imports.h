// The imports that a catalog accepted: their records on disk, their queue, the paths that they may read, and the disk
// space that they take.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/resources.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// The record of what an import was asked to do, as a JSON file. The file is in datasets/.imports/ until the import
// ends, and stays there if the import fails. It is in the dataset's directory once the dataset is whole.
// Threads: pure functions.

// How an import waits for its next try after an error of the machine ended it.
struct ImportWait {
  int tries = 0;                                 // consecutive tries that an error ended; 0: it does not wait
  std::string error;                             // the latest error, one line
  absl::Time retry_time = absl::InfinitePast();  // the earliest time of the next try
  // The wait from the end of the last try to retry_time. If the wall clock is set back, the import still waits no
  // longer than this.
  absl::Duration delay = absl::ZeroDuration();
};

struct ImportRecord {
  absl::Time create_time = absl::InfinitePast();
  // Same as Dataset::uid.
  std::string uid;
  ImportOptions options;
  std::string error;  // why the import failed; empty if it has not failed
  // How often the import began without a recorded end. A running import counts once, and so does each death of the
  // process during the import.
  int starts = 0;
  ImportWait wait;
};

// Returns why the import of this record does not begin when the process starts: it has failed, or the process died
// during the import three times. Returns an empty string if the import does begin.
std::string WhyNotBegun(const ImportRecord& record);

// Makes the uid of a new dataset from 128 random bits, so that no two datasets share one, whatever their names and
// whatever the clock says.
std::string MakeDatasetUid();
// Makes the uid of a dataset that an older version imported without a uid. The uid is made from `create_time`, by
// which older versions distinguished datasets.
std::string DatasetUidOfTime(absl::Time create_time);

std::string RecordToJson(const ImportRecord& record);
// Parses a record. A missing uid is replaced by DatasetUidOfTime. Other missing fields keep their defaults, since
// older records lack newer fields. Errors: DataLoss if the time or the source is missing; DataLoss naming the field
// if a field has an unknown name or a wrong type.
absl::StatusOr<ImportRecord> RecordFromJson(std::string_view text);

// The queue of datasets that the catalog's thread processes, in the order in which they came. A dataset that has to
// wait does not hold up the datasets behind it.
// Threads: one at a time; the catalog calls it under its lock.
class ImportQueue {
 public:
  // `not_before` is the earliest time to take the dataset, on the same clock as Take's `now`. By default, the dataset
  // need not wait.
  void Add(const DatasetId& id, absl::Duration not_before = -absl::InfiniteDuration());
  // Removes a dataset. Returns false if it was not in the queue.
  bool Remove(const DatasetId& id);
  // Removes and returns the first dataset that need not wait any more. If there is none, returns nullopt and sets
  // `wait` to the time until the next dataset may be taken. This time is infinite if the queue is empty.
  std::optional<DatasetId> Take(absl::Duration now, absl::Duration& wait);

 private:
  struct Waiting {
    DatasetId id;
    absl::Duration not_before;
  };
  std::deque<Waiting> waiting_;
};

// Decides which paths imports may read: those below an import root once every symlink and `..` is resolved. Threads:
// pure functions of the present file system. Errors of all functions, besides the errors listed below:
// InvalidArgument for a path that the system can never follow, and those of SystemError.

// Returns `source` resolved. The result is a root, or a file or directory below a root. An error never reveals
// whether a path outside the roots exists. Errors: PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS); NotFound;
// InvalidArgument for a path that is neither a file nor a directory.
absl::StatusOr<std::filesystem::path> ResolveSource(const std::filesystem::path& source,
                                                    std::span<const std::filesystem::path> roots);

// Checks that everything that an import of `source` (resolved) may read lies below a root. If `source` is a
// directory, these are its arrays (*.npy, *.npz), its stores (*.pfg), and raw/ and split/ with their contents. If
// `source` is a file, only the file itself is checked. Files beside it are checked when they are opened (CheckInRoots),
// since a folder of many files has others that do not matter. Errors: PermissionDenied (reason
// PATH_OUTSIDE_IMPORT_ROOTS) naming the entry.
absl::Status CheckEntriesInRoots(const std::filesystem::path& source, std::span<const std::filesystem::path> roots);

// Checks that `path`, in which all links are resolved, lies below a root. Imports use it as ImportLimits::may_read.
// Errors: PermissionDenied; a transient error if a root that may contain the path cannot be resolved just now. The
// message of PermissionDenied does not name the path, so as not to reveal where a link leads.
absl::Status CheckInRoots(const std::filesystem::path& path, std::span<const std::filesystem::path> roots);

// The disk space for imports. It is checked while an import writes, since the import's size is not known in advance.

struct ImportRoom {
  DiskReserve reserve;
  // Bytes that all datasets together may take. 0 means no limit.
  uint64_t max_bytes = 0;
  // Bytes that all other datasets take.
  uint64_t taken_bytes = 0;
};

// Checks that `bytes` for a dataset fit beside the bytes of all other datasets. Errors: ResourceExhausted (reason
// DATASETS_TOO_LARGE, metadata `limit`). Pure.
absl::Status CheckDatasetBytes(const ImportRoom& room, uint64_t bytes);

// Returns the bytes of all files in and below a folder. Files that vanish meanwhile count as 0.
uint64_t BytesBelow(const std::filesystem::path& folder);

// Checks the room several times a second, on its own thread, until destroyed. Starts no thread if nothing is limited.
// Threads: safe anywhere.
class RoomWatch {
 public:
  // The watch requests `stop` once there is no room for what is written into `directory`.
  RoomWatch(ImportRoom room, std::filesystem::path directory, std::stop_source stop);
  // Returns the error for which the watch requested `stop`, or OK if it did not.
  absl::Status status() const;
  // Applies CheckDatasetBytes to the bytes that are in the directory now.
  absl::Status CheckBytes() const { return CheckDatasetBytes(room_, BytesBelow(directory_)); }

 private:
  void Watch(const std::stop_token& end, std::stop_source& stop);

  const ImportRoom room_;
  const std::filesystem::path directory_;
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;  // the last member, because it uses the others
};

}  // namespace permafrost::data
