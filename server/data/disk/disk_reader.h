// Reads pages of one file past the page cache, many at once, in the order in which the caller starts the reads.
// Threads: one at a time, for the destructor too. Memory: owns the descriptor and buffers of depth * max_read_bytes.
// The reader keeps the file size that it found at Open. It does not read bytes appended later. If the file was cut
// after Open, the first read that misses bytes fails with DataLoss. The reader verifies no checksums.
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

// Offsets and lengths of reads are multiples of this page size.
inline constexpr uint64_t kDiskPageBytes = 4096;

// kUring uses one io_uring of the Linux kernel. kPread uses up to 32 threads that call pread.
enum class DiskReaderKind { kUring, kPread };
inline constexpr EnumNames<DiskReaderKind, 2> kDiskReaderKindNames{
    {{{DiskReaderKind::kUring, "io_uring"}, {DiskReaderKind::kPread, "pread"}}}};

struct DiskRead {
  uint64_t offset = 0;
  uint32_t bytes = 0;  // whole pages, at least one; the last page may reach beyond the file's end
  uint64_t tag = 0;    // free for the caller's use
  bool operator==(const DiskRead&) const = default;
};

class DiskReader {
 public:
  struct Options {
    // The kind to use. If it is nullopt, the reader uses io_uring if that works, else pread.
    std::optional<DiskReaderKind> kind;
    // The most reads in flight at once, 1..kMaxDepth.
    int depth = 32;
    // The most bytes of one read. It is a multiple of kDiskPageBytes, and at most kMaxReadBytes.
    uint32_t max_read_bytes = 64 << 10;
    // If true, reads bypass the page cache. If false, reads go through the page cache, and the reader then drops
    // their pages from it.
    bool direct = true;
    // For tests only. Receives `result`, the kernel's answer to one part of a read, and returns the answer to use
    // instead. An answer is a number of bytes, or -errno. Must be safe on any thread.
    std::function<int64_t(uint64_t offset, uint32_t bytes, int64_t result)> alter;
  };
  static constexpr int kMaxDepth = 1024;
  static constexpr uint32_t kMaxReadBytes = 16 << 20;

  // Errors: those of SystemError (base/file.h); InvalidArgument for options outside their ranges; FailedPrecondition
  // if options.kind is set and does not work on this machine.
  static absl::StatusOr<std::unique_ptr<DiskReader>> Open(const std::filesystem::path& path, const Options& options);
  // The destructor waits until the kernel has stopped writing into the buffers.
  virtual ~DiskReader() = default;
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  virtual DiskReaderKind kind() const = 0;
  // Returns false if options.direct was false, or if the file system refuses O_DIRECT at whole pages. The reader then
  // reads through the page cache, and drops the pages from it after each read.
  virtual bool direct() const = 0;
  // Returns one line that says why kind() or direct() is not the first choice. The line is empty if both are the
  // first choice.
  virtual const std::string& fallback() const = 0;
  virtual int depth() const = 0;
  // Returns the number of reads that were started and not yet handed over.
  virtual int in_flight() const = 0;
  // Returns the size that the file had when it was opened.
  virtual uint64_t file_bytes() const = 0;

  // Starts a read. Call it only while in_flight() < depth(). The kernel may receive the read only at the next Wait or
  // Flush, so that many reads share one system call. Errors: InvalidArgument if the read is empty, is not of whole
  // pages, is longer than max_read_bytes, or begins at or beyond the file's end; FailedPrecondition at full depth.
  virtual absl::Status Start(const DiskRead& read) = 0;
  // Passes all started reads to the kernel.
  virtual absl::Status Flush() = 0;

  // Receives one finished read. `bytes` has the length of the read, cut at the file's end, and is valid during the
  // call. An error in `bytes` concerns this read alone and leaves the reader usable. Its message names file, offset
  // and length. The error is a transient error of SystemError (base/status.h), or DataLoss if the file is shorter
  // than at Open. Done may call Start; in_flight() counts the finished read until Done returns.
  using Done = absl::FunctionRef<void(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes)>;
  // Waits until a read is finished, if any is in flight, but hands over no read. Before the next Wait, the caller can
  // start more reads, so that the disk keeps working. Returns how many finished reads the next Wait will hand over.
  // Errors: same as Wait.
  virtual absl::StatusOr<int> Await() = 0;
  // Waits for at least one read, if any is in flight. Hands over every finished read, in the order of completion. An
  // error that Wait itself returns is an error of io_uring. After it, no read is handed over any more, and the reader
  // can only be destroyed.
  virtual absl::Status Wait(Done done) = 0;

 protected:
  DiskReader() = default;
};

}  // namespace permafrost
