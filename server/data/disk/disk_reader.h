// Reads of one file that bypass the page cache: many at once, of whole pages, in the order that the caller asks for.
// Threads: one at a time, the destructor too. Owns the descriptor and the buffers: depth times max_read_bytes.
// The file is as long as it was at Open: bytes that were appended later are not read, and a file that was cut is
// DataLoss at the first read that misses something. A read hands over the bytes as the disk gave them: no checksum is
// looked at here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace permafrost {

// Offsets and lengths of reads are multiples of it.
inline constexpr uint64_t kDiskPageBytes = 4096;

// kUring: one ring of the kernel's (Linux). kPread: up to 32 threads that call pread.
enum class DiskReaderKind { kUring, kPread };
inline constexpr EnumNames<DiskReaderKind, 2> kDiskReaderKindNames{
    {{{DiskReaderKind::kUring, "io_uring"}, {DiskReaderKind::kPread, "pread"}}}};

struct DiskRead {
  uint64_t offset = 0;
  uint32_t bytes = 0;  // at least a page; the file's last page may be cut
  uint64_t tag = 0;    // the caller's own
  bool operator==(const DiskRead&) const = default;
};

class DiskReader {
 public:
  struct Options {
    // nullopt: io_uring where it works, else pread.
    std::optional<DiskReaderKind> kind;
    // Reads at once, 1..kMaxDepth.
    int depth = 32;
    // The longest read, a multiple of kDiskPageBytes up to kMaxReadBytes.
    uint32_t max_read_bytes = 64 << 10;
    // false: through the page cache, which is told to drop what was read.
    bool direct = true;
    // Tests: what the kernel answered to a part of a read (bytes, or less than zero: -errno), altered. Safe on any
    // thread.
    std::function<int64_t(uint64_t offset, uint32_t bytes, int64_t result)> alter;
  };
  static constexpr int kMaxDepth = 1024;
  static constexpr uint32_t kMaxReadBytes = 16 << 20;

  // Errors: those of SystemError (base/file.h); InvalidArgument for options outside their ranges;
  // FailedPrecondition where options.kind is given and does not work here.
  static absl::StatusOr<std::unique_ptr<DiskReader>> Open(const std::filesystem::path& path, const Options& options);
  // Waits for what the kernel still writes into the buffers.
  virtual ~DiskReader() = default;
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  virtual DiskReaderKind kind() const = 0;
  // false: the file system refuses O_DIRECT at whole pages, so that they go through the page cache (and are dropped
  // from it after the read).
  virtual bool direct() const = 0;
  // One line why kind or direct is not the first choice; empty: it is.
  virtual const std::string& fallback() const = 0;
  virtual int depth() const = 0;
  // Reads that were started and not handed over.
  virtual int in_flight() const = 0;
  // The size of the file when it was opened.
  virtual uint64_t file_bytes() const = 0;

  // Asks for a read; in_flight() < depth(). The kernel may learn of it only at the next Wait or Flush, to go there in
  // one system call. Errors: InvalidArgument (not whole pages, none, too long, begins beyond the file's end),
  // FailedPrecondition at full depth.
  virtual absl::Status Start(const DiskRead& read) = 0;
  // The kernel learns of all that was started.
  virtual absl::Status Flush() = 0;

  // bytes: as long as asked for (cut at the file's end), valid within the call. Its errors are of this one read, name
  // file, offset and length, and leave the reader as it was: SystemError's, which are transient (base/status.h), and
  // DataLoss of a file that is shorter than it was. It may call Start, in_flight() counting the read until it returns.
  using Done = absl::FunctionRef<void(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes)>;
  // Waits until a read is done, if any is in flight, and hands over none, so that others can be started first and the
  // disk works meanwhile. Returns how many are done, which the next Wait hands over. Errors: as Wait's own.
  virtual absl::StatusOr<int> Await() = 0;
  // Waits for at least one read, if any is in flight, and hands over each that is done, in the order of completion.
  // Its own error is of the ring: what is in flight is not handed over any more, and the reader can only be destroyed.
  virtual absl::Status Wait(Done done) = 0;

 protected:
  DiskReader() = default;
};

}  // namespace permafrost
