// Files that clients send, each upload in a folder of its own, until a dataset was imported from them.
//   ID/upload.json  what was declared; a folder without it, or with that of another ID, is not this store's
//   ID/files/PATH   what has come so far
//   ID/complete     all has come, is on disk, and is what its checksums say
// Threads: the store's methods are safe anywhere; a writer's one at a time. All wait for the disk.
// Invariant: nothing is written outside ID/files, and nothing removed of a folder that is not proven to be the store's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/id.h"
#include "base/monotonic.h"
#include "base/resources.h"

namespace permafrost::data {

// Counts the bytes that each upload takes from those that all uploads together may take. An upload keeps room for its
// bytes still to come while a call sends to it, and for a while after its last byte. Then only the bytes that came
// count, so that a client that died holds nothing that it does not use.
// Threads: all methods are safe anywhere, and wait for no disk.
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

struct UploadFile {
  std::string path;  // relative, as CheckUpload takes it
  int64_t bytes = 0;
  std::string xxh3;  // of the whole file, 16 hex digits
  bool operator==(const UploadFile&) const = default;
};

inline constexpr size_t kMostUploadFiles = 1024;
inline constexpr size_t kMostUploadPathBytes = 255;

// Ok, or InvalidArgument with a violation for each bad field: "start.files", "start.files[2].path".
absl::Status CheckUpload(const std::vector<UploadFile>& files);

struct UploadOptions {
  std::filesystem::path directory;  // state_dir/uploads
  // All uploads together may take this many bytes, as UploadAccount counts them. 0: all uploads are refused.
  uint64_t max_bytes = uint64_t{16} << 30;
  // Since its last byte; then room is kept no more for what an upload has not sent.
  absl::Duration keep_room = absl::Minutes(15);
  // Since something was last done with it; then an upload goes when the next one begins, when they are listed, or at a
  // start.
  absl::Duration max_age = absl::Hours(24);
  // Returns the time that the times of files are compared with. nullopt: the wall clock is in doubt, and only the time
  // that this process has seen pass counts.
  std::function<std::optional<absl::Time>()> now = [] { return absl::Now(); };
  // Hears, in one line each, of uploads that are removed for their age, and of files that cannot be proven to be
  // uploads.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
  // Kept free on the disk of the directory: a new upload, and each piece of one, is refused where less would be.
  DiskReserve reserve;
  // Returns true if something that has not ended still needs this upload's folder: then it does not go for its age.
  // Asked under the store's lock, from Create on; it must not call back.
  std::function<bool(const std::filesystem::path& folder)> in_use = [](const std::filesystem::path&) { return false; };
};

class UploadStore;

// The one that writes to an upload. The store outlives it.
class UploadWriter {
 public:
  UploadWriter(const UploadWriter&) = delete;
  UploadWriter& operator=(const UploadWriter&) = delete;
  ~UploadWriter();

  const std::vector<UploadFile>& files() const { return files_; }
  // Bytes of each file that are there.
  const std::vector<int64_t>& received() const { return received_; }
  bool complete() const { return complete_; }

  // Errors: InvalidArgument for no such file, or more bytes than it has; FailedPrecondition for an `offset` that is not
  // what was received of it; DataLoss where `xxh3` is not that of `data`; those of SystemError.
  absl::Status Append(int64_t file, int64_t offset, std::string_view data, uint64_t xxh3);
  // Call it when all bytes have come: it checks every file and brings them to disk, and the upload is complete from
  // then on. A file that is not what its checksum says is emptied: DataLoss naming it.
  absl::Status Finish();

 private:
  friend class UploadStore;
  UploadWriter(UploadStore& store, UploadId id, std::vector<UploadFile> files);
  absl::Status Load();
  std::filesystem::path PathOf(size_t file) const;
  absl::Status OpenFile(size_t file);
  // Cuts the open file to `bytes`. If a dataset shares the file, starts a new, empty one instead.
  absl::Status Cut(size_t file, int64_t bytes);
  absl::Status CheckFile(size_t file);
  void CountReceived();
  // Brings the names of all files to disk.
  absl::Status SyncFolders() const;

  UploadStore& store_;
  const UploadId id_;
  const std::vector<UploadFile> files_;
  std::vector<int64_t> received_;
  bool complete_ = false;
  size_t open_ = 0;  // the file of descriptor_, where that is valid
  std::unique_ptr<Descriptor> descriptor_;
};

class UploadStore {
 public:
  // Finds the uploads that are there, and removes the old ones.
  static absl::StatusOr<std::unique_ptr<UploadStore>> Create(UploadOptions options);

  // Opens a writer for a new upload, or goes on with one that has equal files. Room is kept for all of it from then on.
  // Errors: CheckUpload's, AlreadyExists for other files, ResourceExhausted (reason UPLOAD_TOO_LARGE, metadata
  // `limit`), Unavailable while another writer is there, those of SystemError, also where the machine does not tell
  // just now whether there is one.
  absl::StatusOr<std::unique_ptr<UploadWriter>> Open(const UploadId& id, const std::vector<UploadFile>& files);
  // The folder of a complete upload's files, from now on as young as a new one. Errors: NotFound, FailedPrecondition
  // for one that is not complete, those of SystemError.
  absl::StatusOr<std::filesystem::path> Source(const UploadId& id);
  // No error if there is none. Errors: Unavailable while a writer is there or something needs it (in_use), those of
  // SystemError.
  absl::Status Delete(const UploadId& id);

  // Lists uploads by id, after `after`, at most `most`. Old uploads are removed first.
  struct Listed {
    UploadId id;
    int64_t files = 0;
    UploadAccount::Entry account;
    bool complete = false;
    absl::Time last_use;  // by the wall clock
  };
  std::vector<Listed> List(const UploadId& after, size_t most);
  uint64_t max_bytes() const { return options_.max_bytes; }
  // Waits for no disk.
  UploadAccount::Totals totals() const { return account_.totals(); }

 private:
  friend class UploadWriter;
  explicit UploadStore(UploadOptions options) : options_(std::move(options)), account_(options_.keep_room) {}
  std::filesystem::path FolderOf(const UploadId& id) const { return options_.directory / id.value(); }
  absl::StatusOr<std::vector<UploadFile>> Declared(const UploadId& id) const;
  absl::Status Declare(const UploadId& id, const std::vector<UploadFile>& files);
  // The newest time of its files; InfinitePast: there are none.
  absl::Time LastUse(const UploadId& id, const std::vector<UploadFile>& files) const;
  // Counts the upload if it is there, with the status that Declared gives it.
  absl::Status TakeUp(const UploadId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FindUploads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Remove(const UploadId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoom(const UploadId& id, const std::vector<UploadFile>& files) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsSending(const UploadId& id) const;

  const UploadOptions options_;
  UploadAccount account_;
  mutable absl::Mutex mu_;
  // Uploads that may be there: the machine failed to tell. It is asked again before a new upload.
  std::set<UploadId> unread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::data
