// The programs under `state_dir/programs`: archives of torch.export that jobs train. The directory holds:
//   NAME/program.pt2       the archive, as it was uploaded
//   NAME/program.json      its checksum and its description
//   .upload-N-NAME/        a program that is being uploaded
//   .deleted-N-NAME/       a deleted program whose bytes are being removed
//   .quarantine/           files that had one of these names but are not provably the store's own; nothing in it is
//                          ever removed
// Threads: all methods are safe anywhere, and wait for the disk unless they say otherwise. A ProgramUpload is used by
// one thread at a time.
// Invariant: NAME/ always holds a whole program, and never changes until it is deleted. Each change on disk is one
// rename. After a crash, there is a whole program, or a folder that the next start removes.
// An upload compares the archive's bytes with the checksum. CopyTo reads and compares all bytes again. So a job begins
// with the archive that was uploaded, or does not begin. Open and Get look only at the record and at the size of the
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/resources.h"
#include "spec/program_description.h"

namespace permafrost::jobs {

// The record of a program.
struct StoredProgram {
  ProgramId id;
  absl::Time create_time;
  int64_t bytes = 0;  // size of the archive
  std::string xxh3;   // XXH3 of the archive, 16 hex digits
  // Distinguishes the program from every other one that ever had its name. A backup keeps the etag.
  std::string etag;
  spec::ProgramDescription description;
};

struct ProgramStoreOptions {
  std::filesystem::path directory;  // state_dir/programs
  // Reads and checks a whole archive. The contract is that of train::Runner::DescribeProgram.
  std::function<absl::StatusOr<spec::ProgramDescription>(const std::filesystem::path&)> describe;
  // Space to keep free on the disk of `directory`. An upload that would leave less is refused, and so is a piece of
  // an upload.
  DiskReserve reserve;
  // The most bytes of all archives together, including unfinished uploads. 0 refuses all uploads.
  uint64_t max_bytes = uint64_t{16} << 30;
  // Receives one line for each path that is moved to .quarantine/, and for each deletion that could not remove its
  // files. It may be called on any thread, and must not call back into the store.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
};

// The declaration that an upload makes before it sends its bytes.
struct ProgramArchive {
  int64_t bytes = 0;
  std::string xxh3;  // 16 lower-case hex digits
};

// Checks a declaration. Errors: InvalidArgument with a violation for each bad field ("start.bytes", "start.xxh3").
absl::Status CheckProgramArchive(const ProgramArchive& archive);

class ProgramStore;

// The upload of an archive, piece by piece. If the object is destroyed before Finish succeeds, all files of the
// upload are removed. The store must outlive it.
class ProgramUpload {
 public:
  ProgramUpload(const ProgramUpload&) = delete;
  ProgramUpload& operator=(const ProgramUpload&) = delete;
  ~ProgramUpload();

  // Adds the next piece. Errors: InvalidArgument for more bytes than were declared; those of DiskReserve and
  // SystemError.
  absl::Status Append(std::string_view data);
  // Ends the upload: checks the bytes and makes the program. After Ok, the program is on disk. Call it after the last
  // Append. If an equal program has taken the name meanwhile, returns that program. Errors: InvalidArgument for too
  // few bytes; DataLoss if the bytes do not match the checksum; those of `describe`; AlreadyExists (reason
  // PROGRAM_ALREADY_EXISTS); those of SystemError.
  absl::StatusOr<StoredProgram> Finish();

 private:
  friend class ProgramStore;
  ProgramUpload(ProgramStore& store, ProgramId id, ProgramArchive archive, std::filesystem::path folder)
      : store_(store), id_(std::move(id)), archive_(std::move(archive)), folder_(std::move(folder)) {}

  ProgramStore& store_;
  const ProgramId id_;
  const ProgramArchive archive_;
  const std::filesystem::path folder_;
  std::unique_ptr<FileWriter> file_;
  StreamHash hash_;
};

class ProgramStore {
 public:
  // Opens the store. Removes what interrupted uploads and deletions left. If an entry has the name of a program or of
  // a leftover but is not provably one, moves it to .quarantine/. Errors: those of SystemError.
  static absl::StatusOr<std::unique_ptr<ProgramStore>> Open(ProgramStoreOptions options);

  // Returns a program. Errors: NotFound, reason PROGRAM_NOT_FOUND, metadata `program`; DataLoss if its files were
  // changed; those of SystemError.
  absl::StatusOr<StoredProgram> Get(const ProgramId& id) const;
  // Returns the first `most` programs after `after`, ordered by id, without forms and tensors. Reads no file, but
  // waits while another call publishes or deletes a program.
  std::vector<StoredProgram> List(const ProgramId& after, size_t most) const;
  // Deletes a program. After Ok, the deletion is durable. Copies that CopyTo made stay. If files cannot be removed,
  // reports this to `warn`, and the next start tries again. Errors: Aborted (reason ETAG_MISMATCH) if `etag` is not
  // empty and differs from the program's; NotFound, as for Get.
  absl::Status Delete(const ProgramId& id, const std::string& etag);

  // Returns the program of this name if its archive is the declared one. Errors: NotFound, as for Get; AlreadyExists,
  // reason PROGRAM_ALREADY_EXISTS, if the program has another archive.
  absl::StatusOr<StoredProgram> FindEqual(const ProgramId& id, const ProgramArchive& archive) const;
  // Begins an upload. All of its declared bytes count towards max_bytes at once. Errors: those of
  // CheckProgramArchive; AlreadyExists, as for FindEqual; ResourceExhausted (reason PROGRAMS_TOO_LARGE, metadata
  // `limit`); those of DiskReserve and SystemError.
  absl::StatusOr<std::unique_ptr<ProgramUpload>> BeginUpload(const ProgramId& id, const ProgramArchive& archive);

  // Makes the file `to` with the archive's bytes, in a folder that exists. Makes a hard link if the file system can,
  // and otherwise a copy. After Ok, the file is durable; after an error, it does not exist. Replaces no file. Errors:
  // NotFound, as for Get; DataLoss if the bytes do not match their checksum; those of SystemError and, for a copy, of
  // DiskReserve.
  absl::Status CopyTo(const ProgramId& id, const std::filesystem::path& to) const;
  // Returns the path of the archive's file. The file may be deleted at any time. Errors: NotFound, as for Get.
  absl::StatusOr<std::filesystem::path> PathOf(const ProgramId& id) const;

  // Totals of the programs and of the unfinished uploads. usage() does not wait for the disk.
  struct Usage {
    int64_t programs = 0;
    uint64_t bytes = 0;            // sum of the sizes of the archives
    uint64_t uploading_bytes = 0;  // declared by uploads under way
  };
  Usage usage() const;

 private:
  friend class ProgramUpload;
  explicit ProgramStore(ProgramStoreOptions options) : options_(std::move(options)) {}
  // Takes over what an earlier process left under this name. Loads a program, and removes a leftover. Quarantines
  // anything else that has the name of a program or of a leftover. If a program cannot be read just now, does not
  // load it, and reports this to `warn`.
  absl::Status TakeUp(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Quarantine(const std::filesystem::path& path, std::string_view why) const;
  // Returns the entry of programs_, without forms and tensors.
  absl::StatusOr<StoredProgram> Find(const ProgramId& id) const;
  // Returns a path that does not exist yet.
  std::filesystem::path NewFolder(absl::string_view prefix, const ProgramId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<StoredProgram> Publish(const std::filesystem::path& folder, StoredProgram program);
  void EndUpload(const ProgramArchive& archive);

  const ProgramStoreOptions options_;
  mutable absl::Mutex mu_;
  // The programs without their forms and tensors. Get reads the forms and tensors from disk.
  std::map<ProgramId, StoredProgram> programs_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;            // sum over programs_
  uint64_t uploading_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // declared by uploads under way
  int64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;       // the last number used in a folder's name
};

}  // namespace permafrost::jobs
