// Measures the speed of a disk by random reads of a few sizes, many at once, past the page cache.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

// The cost of a read on a disk while `depth` reads are in flight. A random read of n bytes takes seconds_per_read + n
// * seconds_per_byte of the disk's time. This is the inverse of the throughput, not the latency of one read.
struct DiskRates {
  int depth = 1;
  double seconds_per_read = 0;
  double seconds_per_byte = 0;
  double sequential_bytes_per_second = 0;
  DiskReaderKind kind = DiskReaderKind::kPread;
  bool direct = false;
  // A line for users that says how the disk was measured: "io_uring, 2.05 GB of FILE, 0.4 s". The line warns if the
  // range is so small that the disk's own cache may have answered. It also warns if the reads went through the page
  // cache.
  std::string how;

  // Returns the longest gap between two ranges for which a single read, gap included, is cheaper than two reads. The
  // result is a multiple of kDiskPageBytes, at most 1 MiB.
  uint64_t gap_bytes() const;
  double SecondsFor(double reads, double bytes) const { return reads * seconds_per_read + bytes * seconds_per_byte; }
};

struct MeasureDiskOptions {
  // The approximate time for all measurements together.
  double seconds = 0.4;
  // The reader to use; same as DiskReader::Options::kind.
  std::optional<DiskReaderKind> kind;
};

// Measures the disk by reads of the file's bytes [first, first + bytes). The range is cut at the file's end. Writes
// nothing. Errors: those of DiskReader; InvalidArgument if the range holds no whole page.
absl::StatusOr<DiskRates> MeasureDisk(const std::filesystem::path& path, uint64_t first, uint64_t bytes,
                                      const MeasureDiskOptions& options = {});

struct DepthSample {
  int depth = 1;
  double bytes_per_second = 0;
};
// Returns the smallest depth whose rate is at least 95 % of the highest rate, or 1 if there are no samples.
int ChooseDepth(std::span<const DepthSample> samples);

struct ReadSample {
  double bytes = 0;    // bytes of one read
  double seconds = 0;  // the disk's time for one read
};
struct ReadLine {
  double seconds_per_read = 0;
  double seconds_per_byte = 0;
};
// Fits seconds = seconds_per_read + bytes * seconds_per_byte by least squares of the relative errors. Neither result
// is negative. If all samples have the same size, seconds_per_read is 0.
ReadLine FitReads(std::span<const ReadSample> samples);

}  // namespace permafrost
