// Counts the bytes that each upload takes from those that all uploads together may take. An upload keeps room for its
// bytes still to come while a call sends to it, and for a while after its last byte. Then only the bytes that came
// count, so that a client that died holds nothing that it does not use.
// Threads: all methods are safe anywhere, and wait for no disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "base/monotonic.h"

namespace permafrost::data {

class UploadAccount {
 public:
  // The state of one upload at one moment.
  struct Entry {
    uint64_t declared = 0, received = 0;
    uint64_t counted = 0;  // of the two: `declared` while room is kept
    bool sending = false;  // has a writer
    // Since its last byte, or since an import asked for it, or since this process knows of it.
    absl::Duration idle;
  };
  struct Totals {
    int64_t uploads = 0;
    uint64_t received = 0, counted = 0;
  };

  // `keep_room`: how long after the last byte.
  explicit UploadAccount(absl::Duration keep_room) : keep_room_(keep_room) {}

  // An upload that is there from now on.
  void Put(const UploadId& id, uint64_t declared, uint64_t received);
  void Erase(const UploadId& id);
  // SetReceived, SetSending and Use do nothing for an upload that is not there.
  void SetReceived(const UploadId& id, uint64_t received);  // a byte of it came
  void SetSending(const UploadId& id, bool sending);        // as a byte
  void Use(const UploadId& id);

  std::optional<Entry> Find(const UploadId& id) const;
  std::map<UploadId, Entry> All() const;
  Totals totals() const;
  // Returns the bytes that all other uploads take together.
  uint64_t CountedBeside(const UploadId& id) const;

 private:
  struct Record {
    uint64_t declared = 0, received = 0;
    bool sending = false;
    Stopwatch since_use;
  };
  Entry Of(const Record& record) const;

  const absl::Duration keep_room_;
  mutable absl::Mutex mu_;
  std::map<UploadId, Record> records_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::data
