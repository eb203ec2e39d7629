// The programs under `state_dir/programs`: archives of torch.export that jobs train.
//   NAME/program.pt2       the archive, as it was uploaded
//   NAME/program.json      its checksum, and what is told of it
//   .upload-N-NAME/        a program in the making
//   .deleted-N-NAME/       a deleted program whose bytes are being removed
//   .quarantine/           what stood under one of these names and cannot be proven to be the store's own; nothing is
//                          ever removed from it
// Threads: all methods are safe anywhere, and wait for the disk unless they say otherwise. One ProgramUpload is used by
// one thread at a time.
// Invariant: NAME/ exists only whole, and never changes until it is deleted. Each step on disk is one rename, so that a
// crash leaves a whole program or what the next start removes.
// The checksum is compared with the bytes at upload, and again by CopyTo, which reads them all: so a job begins with
// the archive that was uploaded, or not at all. A start and Get look at the record and the file's size only.
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

// A program as it is told of.
struct StoredProgram {
  ProgramId id;
  absl::Time create_time;
  int64_t bytes = 0;  // of the archive
  std::string xxh3;   // of the archive, 16 hex digits
  // Tells it from all others that ever had its name. It stays with the program, in a backup too.
  std::string etag;
  spec::ProgramDescription description;
};

struct ProgramStoreOptions {
  std::filesystem::path directory;  // state_dir/programs
  // Reads and checks an archive whole: train::Runner::DescribeProgram, with its contract.
  std::function<absl::StatusOr<spec::ProgramDescription>(const std::filesystem::path&)> describe;
  // Space kept free on the directory's disk. An upload, or a piece of one, that would leave less is refused.
  DiskReserve reserve;
  // Most bytes of all archives together, those of uploads under way included. 0: uploads are refused.
  uint64_t max_bytes = uint64_t{16} << 30;
  // Receives one line for each path moved to .quarantine/, and for files that a deletion could not remove. Called on
  // any thread; it must not call back.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
};

// An upload declares this.
struct ProgramArchive {
  int64_t bytes = 0;
  std::string xxh3;  // 16 lower-case hex digits
};

// Ok, or InvalidArgument with a violation for each bad field: "start.bytes", "start.xxh3".
absl::Status CheckProgramArchive(const ProgramArchive& archive);

class ProgramStore;

// An archive that comes piece by piece. Unless it is finished, nothing of it is left once this is destroyed. The store
// outlives it.
class ProgramUpload {
 public:
  ProgramUpload(const ProgramUpload&) = delete;
  ProgramUpload& operator=(const ProgramUpload&) = delete;
  ~ProgramUpload();

  // Errors: InvalidArgument for more bytes than were declared; those of DiskReserve and SystemError.
  absl::Status Append(std::string_view data);
  // Call it when all bytes have come. Checks them and makes the program, which is on disk when Ok. If an equal one came
  // under its name meanwhile, returns that. Errors: InvalidArgument for too few bytes; DataLoss where they are not what
  // the checksum says; those of `describe`; AlreadyExists (reason PROGRAM_ALREADY_EXISTS); those of SystemError.
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
  // Removes what interrupted uploads and deletions left, and moves files that have their names and are not proven
  // theirs to .quarantine/. Errors: those of SystemError.
  static absl::StatusOr<std::unique_ptr<ProgramStore>> Open(ProgramStoreOptions options);

  // Errors: NotFound, reason PROGRAM_NOT_FOUND, metadata `program`; DataLoss where its files were changed; those of
  // SystemError.
  absl::StatusOr<StoredProgram> Get(const ProgramId& id) const;
  // Returns at most `most` programs after `after`, by id, without forms and tensors. Reads no file, but waits while
  // another call publishes or deletes a program.
  std::vector<StoredProgram> List(const ProgramId& after, size_t most) const;
  // Durable when Ok. Copies that CopyTo made stay. Files that cannot be removed are reported to `warn`; the next start
  // tries again. Errors: Aborted (reason ETAG_MISMATCH) if `etag` is not empty and not the program's; NotFound, as Get.
  absl::Status Delete(const ProgramId& id, const std::string& etag);

  // The program of this name if its archive is the declared one; NotFound (as Get) where there is none. Errors:
  // AlreadyExists, reason PROGRAM_ALREADY_EXISTS, for another archive.
  absl::StatusOr<StoredProgram> FindEqual(const ProgramId& id, const ProgramArchive& archive) const;
  // Begins an upload, whose bytes count from now on. Errors: CheckProgramArchive's; AlreadyExists as FindEqual's;
  // ResourceExhausted (reason PROGRAMS_TOO_LARGE, metadata `limit`); those of DiskReserve and SystemError.
  absl::StatusOr<std::unique_ptr<ProgramUpload>> BeginUpload(const ProgramId& id, const ProgramArchive& archive);

  // Makes the file `to`, in a folder that is there, with the archive's bytes: a hard link where the file system can,
  // else a copy. Durable when Ok, and there is no such file otherwise. Replaces no file. Errors: NotFound, as Get;
  // DataLoss where the bytes are not what their checksum says; those of SystemError and, for a copy, of DiskReserve.
  absl::Status CopyTo(const ProgramId& id, const std::filesystem::path& to) const;
  // The archive's file; it may be deleted at any time. NotFound, as Get.
  absl::StatusOr<std::filesystem::path> PathOf(const ProgramId& id) const;

  // Totals of the programs and of the uploads under way. Waits for no disk.
  struct Usage {
    int64_t programs = 0;
    uint64_t bytes = 0;            // of the programs' archives
    uint64_t uploading_bytes = 0;  // declared by uploads under way
  };
  Usage usage() const;

 private:
  friend class ProgramUpload;
  explicit ProgramStore(ProgramStoreOptions options) : options_(std::move(options)) {}
  // Takes up what an earlier process left under this name.
  absl::Status TakeUp(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Quarantine(const std::filesystem::path& path, std::string_view why) const;
  // Without forms and tensors, as in programs_.
  absl::StatusOr<StoredProgram> Find(const ProgramId& id) const;
  // A path that nothing has.
  std::filesystem::path NewFolder(absl::string_view prefix, const ProgramId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<StoredProgram> Publish(const std::filesystem::path& folder, StoredProgram program);
  void EndUpload(const ProgramArchive& archive);

  const ProgramStoreOptions options_;
  mutable absl::Mutex mu_;
  // Without forms and tensors, which are read where they are asked for.
  std::map<ProgramId, StoredProgram> programs_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;            // of programs_
  uint64_t uploading_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // declared by uploads under way
  int64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;       // of a folder's name
};

}  // namespace permafrost::jobs
