// Measures what a disk does: random reads of a few sizes, many at once, past the page cache.
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

// A random read of n bytes, beside depth - 1 others, takes seconds_per_read + n * seconds_per_byte of the disk's time:
// that many follow one another, however long each of them is on its way.
struct DiskRates {
  int depth = 1;
  double seconds_per_read = 0;
  double seconds_per_byte = 0;
  double sequential_bytes_per_second = 0;
  DiskReaderKind kind = DiskReaderKind::kPread;
  bool direct = false;
  // Tells how it was measured: "io_uring, 2.05 GB of FILE, 0.4 s". Says so where the range is so small that the disk's
  // own cache may have answered, and where the reads went through the page cache.
  std::string how;

  // A gap between two reads that costs less to read than a request does. A multiple of kDiskPageBytes.
  uint64_t gap_bytes() const;
  double SecondsFor(double reads, double bytes) const { return reads * seconds_per_read + bytes * seconds_per_byte; }
};

struct MeasureDiskOptions {
  // The time for all measuring together, roughly.
  double seconds = 0.4;
  // As DiskReader::Options.
  std::optional<DiskReaderKind> kind;
};

// Reads in [first, first + bytes) of the file, cut at its end; nothing is written. InvalidArgument: the range holds no
// whole page.
absl::StatusOr<DiskRates> MeasureDisk(const std::filesystem::path& path, uint64_t first, uint64_t bytes,
                                      const MeasureDiskOptions& options = {});

struct DepthSample {
  int depth = 1;
  double bytes_per_second = 0;
};
// The smallest depth within 5 % of the fastest; 1 of none.
int ChooseDepth(std::span<const DepthSample> samples);

struct ReadSample {
  double bytes = 0;    // of one read
  double seconds = 0;  // of the disk's time for one read
};
struct ReadLine {
  double seconds_per_read = 0;
  double seconds_per_byte = 0;
};
// The straight line of least squares of the relative errors, neither part below zero. From one sample all is by the
// byte.
ReadLine FitReads(std::span<const ReadSample> samples);

}  // namespace permafrost
