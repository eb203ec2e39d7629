// Reads the bytes of one source file as a stream. The file may be plain, gzip, zstd, or a member of a ZIP archive.
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

// kFound: the packing follows from the file's first bytes, whatever its name. kZip: a member of a ZIP archive.
enum class Packing { kPlain, kGzip, kZstd, kFound, kZip };

// The longest line that is read. A file with a longer line is neither a table nor a list of edges.
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 24;

struct SourceFile {
  std::filesystem::path path;
  std::string name;  // path below the source, as messages show it: "raw/edge.csv.gz"
  Packing packing = Packing::kPlain;
  int64_t bytes = 0;   // size on disk
  std::string member;  // for kZip: path of the member in the archive at `path`
};

// Returns the type of the file that `path` leads to, or not_found if there is none. Messages call the file `name`.
// Errors: PermissionDenied if the system will never let the file be looked at. Transient errors: ResourceExhausted if
// descriptors or memory run out; Internal if the disk fails.
absl::StatusOr<std::filesystem::file_type> TypeOfSource(const std::filesystem::path& path, const std::string& name);
// Call it after listing a directory. `error` is the error code with which the listing ended. Returns Ok if `error` is
// not set, or if it says that the directory does not exist. Messages call the directory `name`. Errors: same as
// TypeOfSource.
absl::Status CheckListed(const std::error_code& error, const std::string& name);
// Returns the first of `stem`.csv.gz, `stem`.csv.zst and `stem`.csv that exists below `source`, or nullopt if none
// does. `stem` is a path such as "raw/edge". TellUnreadFiles (data/import/import.h) refuses a second of these files.
// Errors: same as TypeOfSource; InvalidArgument if the file is not a regular one.
absl::StatusOr<std::optional<SourceFile>> FindSourceFile(const std::filesystem::path& source, std::string_view stem);
// Same as FindSourceFile, but returns NotFound if there is no file.
absl::StatusOr<SourceFile> FindRequiredSourceFile(const std::filesystem::path& source, std::string_view stem);
// Returns true if `directory` holds a file of one of these names. Errors: same as TypeOfSource.
absl::StatusOr<bool> HoldsAny(const std::filesystem::path& directory, std::initializer_list<std::string_view> names);
// Returns the file at `path`, which messages call `name`, or nullopt if there is none. Errors: same as TypeOfSource;
// InvalidArgument if the file is not a regular one.
absl::StatusOr<std::optional<SourceFile>> FindFileAt(const std::filesystem::path& path, std::string name,
                                                     Packing packing);
// Opens the file for reading, and returns it if limits.may_read allows its path. Errors: NotFound; same as
// TypeOfSource; the error of limits.may_read, with the file's name before it.
absl::StatusOr<Descriptor> OpenSource(const SourceFile& file, const ImportMonitor& monitor);
// Returns the present size of an open file, or 0 if the system does not tell.
uint64_t BytesOf(const Descriptor& opened);

class SourceReader {
 public:
  // Opens a file and unpacks it as it is read. Borrows the monitor and reports every byte to it. Errors: same as
  // OpenSource; for a ZIP member, same as OpenZipMember; for kFound, also those of SystemError. A file that is not of
  // its packing fails at Read.
  static absl::StatusOr<std::unique_ptr<SourceReader>> Open(const SourceFile& file, ImportMonitor& monitor);
  // Same as Open, but skips the byte-order mark that some programs write before UTF-8 text.
  static absl::StatusOr<std::unique_ptr<SourceReader>> OpenText(const SourceFile& file, ImportMonitor& monitor);
  virtual ~SourceReader() = default;
  // Reads up to `capacity` bytes of unpacked data; returns 0 at the end. Errors do not name the file: InvalidArgument
  // for truncated or corrupt packed data; ResourceExhausted for data that exceeds its UnpackBound; Cancelled; errors
  // of the system, which are transient.
  virtual absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) = 0;
  // Skips `bytes` bytes, all of which must exist. In a plain file, skipped bytes are not read.
  virtual absl::Status Skip(uint64_t bytes);
  // Tells the monitor that the file will be read again from its beginning.
  virtual void Rewind() = 0;

 protected:
  // Returns the transient error "cannot ACTION: reason" for an errno.
  static absl::Status SystemFault(int error, std::string_view action);
};

// Limits how much a packed file may unpack to. The limit is needed because gzip packs a repeated line to a thousandth
// of its size, and zstd to even less.
// Threads: one at a time.

// The reason of UnpackBound::Add's error. Its metadata are `packed_bytes` and `most_bytes`.
inline constexpr char kUnpacksTooFar[] = "UNPACKS_TOO_FAR";

class UnpackBound {
 public:
  // `packed_bytes` is the size of the packed data on disk.
  UnpackBound(uint64_t packed_bytes, const ImportLimits& limits);
  // Counts `bytes` more unpacked bytes. Errors: ResourceExhausted, without a file's name, once the total exceeds the
  // bound.
  absl::Status Add(std::size_t bytes);

 private:
  const uint64_t packed_, most_expansion_, harmless_, most_;
  uint64_t unpacked_ = 0;
};

// Reads one member of a ZIP archive as a stream. The member may be stored or deflated, and of any size. No member is
// ever unpacked to disk, so its name is never used as a path.
// Threads: one at a time. Memory: the archive's directory, and buffers.

struct ZipEntry {
  std::string name;
  uint64_t packed = 0, unpacked = 0;  // sizes in bytes, as the archive states them
};

// Returns the members of the archive `file`, in the archive's order. Errors: same as OpenZipMember; InvalidArgument
// for a member whose path is absolute or contains '..'.
absl::StatusOr<std::vector<ZipEntry>> ListZip(const SourceFile& file, const ImportMonitor& monitor);

// Opens `member` of the archive `file`. Borrows the monitor and reports the archive's bytes to it as they are
// unpacked. Errors: NotFound if there is no such member; InvalidArgument, naming the archive, if the file is not a
// ZIP archive or is packed in an unknown way; same as OpenSource. The errors of the returned reader are those of
// SourceReader::Read.
absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor);

}  // namespace permafrost::data
