// The bytes of one source file, plain, gzip, zstd or a member of a ZIP archive, as a stream.
// Threads: one at a time. Memory: two buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// kFound: by the file's first bytes, whatever its name. kZip: a member of a ZIP archive.
enum class Packing { kPlain, kGzip, kZstd, kFound, kZip };

// A longer line is not a row of a table or an edge, but a file of another kind.
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 24;

struct SourceFile {
  std::filesystem::path path;
  std::string name;  // relative to the source, as messages say it: "raw/edge.csv.gz"
  Packing packing = Packing::kPlain;
  int64_t bytes = 0;   // on disk
  std::string member;  // of kZip: of the archive at `path`
};

// Returns the type of what `path`, called `name` in messages, leads to; not_found: it leads to nothing. Errors:
// PermissionDenied for what can never be looked at, as it lies there; transient: ResourceExhausted without descriptors
// or memory, Internal where the disk fails.
absl::StatusOr<std::filesystem::file_type> TypeOfSource(const std::filesystem::path& path, const std::string& name);
// Judges the error that ended the listing of a directory, called `name` in messages. Ok if there is none, or no such
// directory. Errors: as TypeOfSource.
absl::Status CheckListed(const std::error_code& error, const std::string& name);
// `stem`.csv.gz, .csv.zst or .csv, the first of them that there is, below `source`; nullopt if there is none. `stem`:
// "raw/edge". A second one is refused by TellUnreadFiles (data/import/import.h).
// Errors: as TypeOfSource; InvalidArgument for what is no regular file.
absl::StatusOr<std::optional<SourceFile>> FindSourceFile(const std::filesystem::path& source, std::string_view stem);
// The same; NotFound where there is neither.
absl::StatusOr<SourceFile> FindRequiredSourceFile(const std::filesystem::path& source, std::string_view stem);
// True if `directory` holds a file of one of these names. Errors: as TypeOfSource.
absl::StatusOr<bool> HoldsAny(const std::filesystem::path& directory, std::initializer_list<std::string_view> names);
// The file at `path`, called `name` in messages; nullopt if there is none. Errors: as TypeOfSource; InvalidArgument for
// what is no regular file.
absl::StatusOr<std::optional<SourceFile>> FindFileAt(const std::filesystem::path& path, std::string name,
                                                     Packing packing);
// Opens it for reading, if the import's limits let it be read where it lies. Errors: NotFound; as TypeOfSource; what
// limits.may_read says, after the file's name.
absl::StatusOr<Descriptor> OpenSource(const SourceFile& file, const ImportMonitor& monitor);
// The bytes of an open file, as it is now; 0 if the system does not tell.
uint64_t BytesOf(const Descriptor& opened);

class SourceReader {
 public:
  // Borrows the monitor, which learns of every byte. Errors: as OpenSource, and of a file that is not of its packing.
  static absl::StatusOr<std::unique_ptr<SourceReader>> Open(const SourceFile& file, ImportMonitor& monitor);
  // The same without the byte-order mark that some programs begin UTF-8 with.
  static absl::StatusOr<std::unique_ptr<SourceReader>> OpenText(const SourceFile& file, ImportMonitor& monitor);
  virtual ~SourceReader() = default;
  // Up to `capacity` bytes of text; 0 at the end. Errors, without the file's name: InvalidArgument for a truncated or
  // corrupt gzip or zstd, ResourceExhausted for one that unpacks too far, Cancelled, or what
  // the system says, which is transient.
  virtual absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) = 0;
  // Skips `bytes`, all of which must be there. If the file is plain, it does so without reading them.
  virtual absl::Status Skip(uint64_t bytes);
  // Tells the monitor that the file will be read again from its beginning.
  virtual void Rewind() = 0;

 protected:
  // Makes "cannot ACTION: reason", a transient error, from an errno.
  static absl::Status SystemFault(int error, std::string_view action);
};

// Bounds what a packed file may unpack to: a gzip of one line again and again is a thousandth of its text, and a zstd
// less. Threads: one at a time.

// The reason of the error below; its metadata: `packed_bytes`, `most_bytes`.
inline constexpr char kUnpacksTooFar[] = "UNPACKS_TOO_FAR";

class UnpackBound {
 public:
  // Bounds what `packed_bytes`, as they lie on disk, may unpack to.
  UnpackBound(uint64_t packed_bytes, const ImportLimits& limits);
  // `bytes` more have come out. ResourceExhausted once they are too many; it names no file.
  absl::Status Add(std::size_t bytes);

 private:
  const uint64_t packed_, most_expansion_, harmless_, most_;
  uint64_t unpacked_ = 0;
};

// One member of a ZIP archive as a stream, stored or deflated, of any size. Nothing is ever unpacked to disk, so that a
// member's name is a name and leads nowhere.
// Threads: one at a time. Memory: the archive's directory and buffers.

struct ZipEntry {
  std::string name;
  uint64_t packed = 0, unpacked = 0;  // bytes, as the archive says
};

// The members of the archive `file`, in its order. Errors: as OpenZipMember; InvalidArgument for one with an
// absolute path or one with '..'.
absl::StatusOr<std::vector<ZipEntry>> ListZip(const SourceFile& file, const ImportMonitor& monitor);

// Opens `member` of the archive `file`. Borrows the monitor, which learns of the archive's bytes as they are unpacked.
// Errors: NotFound if there is no such member; InvalidArgument, naming the archive, for what is no ZIP archive or is
// packed in a way unknown here; what OpenSource says. Errors of reading are as SourceReader::Read's.
absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor);

}  // namespace permafrost::data
