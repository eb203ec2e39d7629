// Files that clients send. Each upload has a folder of its own until a dataset has been imported from it.
//   ID/upload.json  what the client declared; the store owns a folder only if this file is there and names ID
//   ID/files/PATH   what has arrived so far
//   ID/complete     exists once all files have arrived, match their checksums and are on disk
// Threads: the store's methods are safe anywhere. A writer's methods are called by one thread at a time. All methods
// wait for the disk.
// Invariant: what clients send is written only below ID/files. Nothing is removed from a folder that cannot be proven
// to be the store's.
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

// Counts the bytes that each upload takes from the limit for all uploads together. While a call sends to an upload,
// and until `keep_room` after the last byte of the upload, all its declared bytes count. After that only the received
// bytes count, so a client that died reserves no room that it does not use.
// Threads: all methods are safe anywhere, and none waits for the disk.
class UploadAccount {
 public:
  // The state of one upload at one moment.
  struct Entry {
    uint64_t declared = 0, received = 0;
    uint64_t counted = 0;  // `declared` while room is kept, otherwise `received`
    bool sending = false;  // true while the upload has a writer
    // The time since the upload received a byte, a call began to send to it, an import used it, or this process found
    // it, whichever was last.
    absl::Duration idle;
  };
  struct Totals {
    int64_t uploads = 0;
    uint64_t received = 0, counted = 0;
  };

  // Keeps room for an upload's missing bytes until `keep_room` after its last byte.
  explicit UploadAccount(absl::Duration keep_room) : keep_room_(keep_room) {}

  // Adds an upload.
  void Put(const UploadId& id, uint64_t declared, uint64_t received);
  void Erase(const UploadId& id);
  // The next three methods do nothing for an unknown upload.
  void SetReceived(const UploadId& id, uint64_t received);  // a byte has arrived: restarts `idle`
  void SetSending(const UploadId& id, bool sending);        // restarts `idle` if `sending`
  void Use(const UploadId& id);

  std::optional<Entry> Find(const UploadId& id) const;
  std::map<UploadId, Entry> All() const;
  Totals totals() const;
  // Returns the bytes that all uploads except `id` take together.
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
  std::string path;  // relative, as CheckUpload accepts it
  int64_t bytes = 0;
  std::string xxh3;  // checksum of the whole file, 16 hex digits
  bool operator==(const UploadFile&) const = default;
};

inline constexpr size_t kMostUploadFiles = 1024;
inline constexpr size_t kMostUploadPathBytes = 255;

// Errors: InvalidArgument with a violation for each bad field, such as "start.files" and "start.files[2].path".
absl::Status CheckUpload(const std::vector<UploadFile>& files);

struct UploadOptions {
  std::filesystem::path directory;  // state_dir/uploads
  // The most bytes that all uploads together may take, as UploadAccount counts them. 0 refuses all uploads.
  uint64_t max_bytes = uint64_t{16} << 30;
  // The time after an upload's last received byte for which room is kept for its missing bytes.
  absl::Duration keep_room = absl::Minutes(15);
  // An upload that is unused for this long is removed when the next upload begins, when uploads are listed, or when
  // the process starts.
  absl::Duration max_age = absl::Hours(24);
  // Returns the present time, with which the times of files are compared. Returns nullopt if the wall clock is in
  // doubt. The age of an upload is then the idle time that this process measured (UploadAccount::Entry::idle).
  std::function<std::optional<absl::Time>()> now = [] { return absl::Now(); };
  // Called with one line for each upload that is removed for its age, and for files that cannot be proven to be an
  // upload.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
  // Room that is kept free on the directory's disk. A new upload, or a piece of one, is refused if less would remain
  // free.
  DiskReserve reserve;
  // Returns true if something unfinished still needs the folder of an upload. The upload is then not removed for its
  // age. Called under the store's lock, already during Create. It must not call the store.
  std::function<bool(const std::filesystem::path& folder)> in_use = [](const std::filesystem::path&) { return false; };
};

class UploadStore;

// The only writer of an upload. The store must outlive it.
class UploadWriter {
 public:
  UploadWriter(const UploadWriter&) = delete;
  UploadWriter& operator=(const UploadWriter&) = delete;
  ~UploadWriter();

  const std::vector<UploadFile>& files() const { return files_; }
  // Returns, for each file, the number of bytes that have arrived.
  const std::vector<int64_t>& received() const { return received_; }
  bool complete() const { return complete_; }

  // Appends `data` to a file. Errors: InvalidArgument if there is no such file, or the data goes beyond the declared
  // size of the file; FailedPrecondition if `offset` is not the number of bytes received so far; DataLoss if `xxh3`
  // is not the checksum of `data`; those of SystemError.
  absl::Status Append(int64_t file, int64_t offset, std::string_view data, uint64_t xxh3);
  // Checks every file, syncs it to disk, and marks the upload as complete. Call it when all bytes have arrived;
  // before that, it does nothing. A file that does not match its checksum is emptied. Errors: DataLoss naming that
  // file.
  absl::Status Finish();

 private:
  friend class UploadStore;
  UploadWriter(UploadStore& store, UploadId id, std::vector<UploadFile> files);
  absl::Status Load();
  std::filesystem::path PathOf(size_t file) const;
  absl::Status OpenFile(size_t file);
  // Truncates the open file to `bytes` bytes. If a dataset shares the file, replaces it by a new, empty file instead.
  absl::Status Cut(size_t file, int64_t bytes);
  absl::Status CheckFile(size_t file);
  void CountReceived();
  // Syncs the names of all files to disk.
  absl::Status SyncFolders() const;

  UploadStore& store_;
  const UploadId id_;
  const std::vector<UploadFile> files_;
  std::vector<int64_t> received_;
  bool complete_ = false;
  size_t open_ = 0;  // the index of the file that descriptor_ refers to, if any
  std::unique_ptr<Descriptor> descriptor_;
};

class UploadStore {
 public:
  // Finds the uploads in the directory, and removes the old ones.
  static absl::StatusOr<std::unique_ptr<UploadStore>> Create(UploadOptions options);

  // Opens a writer for a new upload, or for an existing upload with the same files. From then on, room for the whole
  // upload is kept. Errors: those of CheckUpload; AlreadyExists if the existing upload has other files;
  // ResourceExhausted (reason UPLOAD_TOO_LARGE, metadata `limit`); Unavailable while another writer is open; those of
  // SystemError, also if the machine cannot tell just now whether the upload exists.
  absl::StatusOr<std::unique_ptr<UploadWriter>> Open(const UploadId& id, const std::vector<UploadFile>& files);
  // Returns the folder with the files of a complete upload, and restarts the upload's age. Errors: NotFound;
  // FailedPrecondition if the upload is not complete; those of SystemError.
  absl::StatusOr<std::filesystem::path> Source(const UploadId& id);
  // Removes an upload, if it exists. Errors: Unavailable while a writer is open, or while UploadOptions::in_use says
  // that the upload is needed; those of SystemError.
  absl::Status Delete(const UploadId& id);

  struct Listed {
    UploadId id;
    int64_t files = 0;
    UploadAccount::Entry account;
    bool complete = false;
    absl::Time last_use;  // by the wall clock
  };
  // Lists at most `most` uploads whose ids come after `after`, ordered by id. Removes old uploads first.
  std::vector<Listed> List(const UploadId& after, size_t most);
  uint64_t max_bytes() const { return options_.max_bytes; }
  // Returns the totals without waiting for the disk.
  UploadAccount::Totals totals() const { return account_.totals(); }

 private:
  friend class UploadWriter;
  explicit UploadStore(UploadOptions options) : options_(std::move(options)), account_(options_.keep_room) {}
  std::filesystem::path FolderOf(const UploadId& id) const { return options_.directory / id.value(); }
  absl::StatusOr<std::vector<UploadFile>> Declared(const UploadId& id) const;
  absl::Status Declare(const UploadId& id, const std::vector<UploadFile>& files);
  // Returns the newest time of the upload's files, or InfinitePast if there are none.
  absl::Time LastUse(const UploadId& id, const std::vector<UploadFile>& files) const;
  // Adds the upload to account_ if the upload exists. Returns the status of Declared.
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
  // Uploads that may exist, but could not be read because of an error of the machine. RemoveOld tries again to read
  // them, before a new upload and before a listing.
  std::set<UploadId> unread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::data
