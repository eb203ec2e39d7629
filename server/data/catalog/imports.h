// Imports that a catalog accepted: their records on disk, the queue in which they are done, the paths that they may
// read, and the room that they take.
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

// The record of what an import was asked to do, as a JSON file: in datasets/.imports/ while it is wanted or after it
// failed, and within the dataset's directory once it is whole. Threads: pure.

// Tells how an import waits for its next try after the machine ended it.
struct ImportWait {
  int tries = 0;                                 // in a row; 0: it does not wait
  std::string error;                             // the newest, one line
  absl::Time retry_time = absl::InfinitePast();  // when it is tried again at the earliest
  // From the end of the last try to then: after the wall clock was set back it waits no longer than this.
  absl::Duration delay = absl::ZeroDuration();
};

struct ImportRecord {
  absl::Time create_time = absl::InfinitePast();
  // As Dataset::uid.
  std::string uid;
  ImportOptions options;
  std::string error;  // why it failed; empty while it has not
  // Times it was begun without an end that was written down: it runs, or the process died while it ran.
  int starts = 0;
  ImportWait wait;
};

// Why an import of this record is not begun when the process starts: it failed, or the process died in it three times.
// Empty: it is begun.
std::string WhyNotBegun(const ImportRecord& record);

// Makes the uid of a dataset that is imported now: 128 random bits, so that neither a clock nor a name makes two
// datasets one.
std::string MakeDatasetUid();
// Makes the uid of a dataset that an older version imported without one: from the time, as those versions told datasets
// apart.
std::string DatasetUidOfTime(absl::Time create_time);

std::string RecordToJson(const ImportRecord& record);
// DataLoss naming a field of another type or with an unknown name, and if the time or the source is missing. Other
// fields that are missing keep their defaults: older records lack fields that came later. A uid that is missing is that
// of the time.
absl::StatusOr<ImportRecord> RecordFromJson(std::string_view text);

// The queue of datasets that the catalog's thread takes up: in the order that they came, but one that has to wait lets
// others go before it.
// Threads: one at a time; the catalog calls it under its lock.
class ImportQueue {
 public:
  // `not_before`: by the clock that Take is told; the past by default.
  void Add(const DatasetId& id, absl::Duration not_before = -absl::InfiniteDuration());
  // False if it was not there.
  bool Remove(const DatasetId& id);
  // Takes out the first that need not wait any more. nullopt: there is none; `wait` is then how long it takes until
  // there is one (infinite: until one is added).
  std::optional<DatasetId> Take(absl::Duration now, absl::Duration& wait);

 private:
  struct Waiting {
    DatasetId id;
    absl::Duration not_before;
  };
  std::deque<Waiting> waiting_;
};

// Decides which paths imports may read: those below an import root once every symlink and `..` is resolved.
// Threads: pure functions of the file system as it is now. Errors beside those told below: InvalidArgument for a path
// that the system can never follow, and those of SystemError.

// `source` resolved, a file or a directory below a root (or a root itself). Nothing tells whether a path outside
// exists. Errors: PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS), NotFound, InvalidArgument for a path that is
// neither.
absl::StatusOr<std::filesystem::path> ResolveSource(const std::filesystem::path& source,
                                                    std::span<const std::filesystem::path> roots);

// Checks that everything which an import of `source` (resolved) may read lies below a root too. For a directory: its
// arrays (*.npy, *.npz) and store (*.pfg), raw/, split/ and what is in them. For a file: the file itself; files beside
// it are checked when they are opened (CheckInRoots), since a folder of many files has others that do not matter.
// Errors: PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS) naming the entry.
absl::Status CheckEntriesInRoots(const std::filesystem::path& source, std::span<const std::filesystem::path> roots);

// Ok if `path`, already free of links, lies below a root: ImportLimits::may_read. Errors: PermissionDenied, which does
// not tell the path, since a link led there; transient while it is below no root that can be resolved, and another
// cannot just now.
absl::Status CheckInRoots(const std::filesystem::path& path, std::span<const std::filesystem::path> roots);

// Watches that there is room while an import writes, since nobody knows beforehand how much it takes.

struct ImportRoom {
  DiskReserve reserve;
  // Bytes that all datasets together may take; 0: any number.
  uint64_t max_bytes = 0;
  // Bytes that the other datasets take.
  uint64_t taken_bytes = 0;
};

// Ok, or ResourceExhausted, reason DATASETS_TOO_LARGE, metadata `limit`, where `bytes` more than those of the others
// are too many. Pure.
absl::Status CheckDatasetBytes(const ImportRoom& room, uint64_t bytes);

// Bytes of the files in and below a folder; those that vanish meanwhile count for nothing.
uint64_t BytesBelow(const std::filesystem::path& folder);

// Looks a few times a second, on a thread of its own, until destroyed; not at all where everything has room.
// Threads: safe anywhere.
class RoomWatch {
 public:
  // Asks `stop` to stop once there is no room for what is written into `directory`.
  RoomWatch(ImportRoom room, std::filesystem::path directory, std::stop_source stop);
  // Why it asked; Ok: it did not.
  absl::Status status() const;
  // Checks the bytes that are there now, as CheckDatasetBytes does.
  absl::Status CheckBytes() const { return CheckDatasetBytes(room_, BytesBelow(directory_)); }

 private:
  void Watch(const std::stop_token& end, std::stop_source& stop);

  const ImportRoom room_;
  const std::filesystem::path directory_;
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;  // last: it uses the others
};

}  // namespace permafrost::data
