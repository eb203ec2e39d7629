// The record of what an import was asked to do, as a JSON file: in datasets/.imports/ while it is wanted or after it
// failed, and within the dataset's directory once it is whole. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data/source/import_options.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
