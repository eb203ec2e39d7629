// Keeps accepted imports: their records on disk, and the queue in which they are done.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id.h"
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

}  // namespace permafrost::data
