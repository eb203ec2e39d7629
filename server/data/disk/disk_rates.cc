#include "data/disk/disk_rates.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/random.h"
#include "base/status.h"

namespace permafrost {
namespace {

constexpr std::array<int, 7> kDepths = {1, 2, 4, 8, 16, 32, 64};
constexpr std::array<uint32_t, 3> kReadBytes = {4 << 10, 16 << 10, 64 << 10};
// The size of sequential reads. At this size the cost of a request is negligible beside the cost of its bytes.
constexpr uint32_t kLongReadBytes = 512 << 10;
constexpr int kLongReadDepth = 8;
// After the first few reads, a smaller range may lie in the disk's own cache.
constexpr uint64_t kLargeRangeBytes = uint64_t{256} << 20;

// A range of whole pages in the file.
struct PageRange {
  uint64_t first = 0;
  uint64_t pages = 0;
  uint64_t bytes() const { return pages * kDiskPageBytes; }
};

// Yields the offsets of successive reads.
class Places {
 public:
  // With `draw` the offsets are random; with nullptr they are sequential. All measurements share one `draw`.
  // With generators of their own, two measurements could read the same places, and the disk's own cache would answer
  // the second.
  Places(PageRange range, uint32_t read_bytes, SplitMix64* draw)
      : range_(range), read_pages_(read_bytes / kDiskPageBytes), draw_(draw) {}

  uint64_t Next() {
    const uint64_t last = range_.pages - read_pages_;
    const uint64_t page = draw_ != nullptr ? draw_->Below(last + 1) : next_;
    next_ = page + 2 * read_pages_ <= range_.pages ? page + read_pages_ : 0;
    return range_.first + page * kDiskPageBytes;
  }

 private:
  const PageRange range_;
  const uint64_t read_pages_;
  SplitMix64* const draw_;
  uint64_t next_ = 0;
};

// Returns the bytes per second of reads at `depth`. Measures for `seconds`, and for longer if too few reads have
// finished.
absl::StatusOr<double> MeasureReads(DiskReader& reader, Places places, uint32_t read_bytes, int depth, double seconds) {
  constexpr int64_t kFewestReads = 8;
  Stopwatch watch;
  int64_t filling = depth, counted = 0;
  double bytes = 0, elapsed = 0;
  absl::Status failed;
  const auto take = [&](const DiskRead&, const absl::StatusOr<std::span<const std::byte>>& read) {
    if (!read.ok()) {
      failed = read.status();
    } else if (filling > 0) {
      // The clock starts once `depth` reads have finished, so that the pipeline is full.
      --filling;
      watch.Restart();
    } else {
      ++counted;
      bytes += static_cast<double>(read->size());
      elapsed = absl::ToDoubleSeconds(watch.Elapsed());
    }
  };
  while (failed.ok() && (counted < kFewestReads || elapsed < seconds)) {
    while (reader.in_flight() < depth) PF_RETURN_IF_ERROR(reader.Start({.offset = places.Next(), .bytes = read_bytes}));
    PF_RETURN_IF_ERROR(reader.Wait(take));
  }
  // Waits for all reads, so that the next measurement begins with an idle disk.
  while (reader.in_flight() > 0) {
    PF_RETURN_IF_ERROR(reader.Wait([](const DiskRead&, const auto&) {}));
  }
  if (!failed.ok()) return failed;
  return elapsed > 0 ? bytes / elapsed : 0;
}

// Measures reads of each size at `depth`. The sizes take turns, and the median of each size counts. If other
// processes use the disk for a while, they slow down one turn of every size rather than every turn of one size.
absl::StatusOr<std::vector<ReadSample>> MeasureSizes(DiskReader& reader, PageRange range, SplitMix64& draw, int depth,
                                                     double seconds) {
  constexpr int kTurns = 5;
  std::array<std::vector<double>, kReadBytes.size()> rates;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < kReadBytes.size() && kReadBytes[i] <= range.bytes(); ++i) {
      const Places places(range, kReadBytes[i], &draw);
      PF_ASSIGN_OR_RETURN(const double rate,
                          MeasureReads(reader, places, kReadBytes[i], depth, seconds / kTurns / kReadBytes.size()));
      if (rate > 0) rates[i].push_back(rate);
    }
  }
  std::vector<ReadSample> samples;
  for (size_t i = 0; i < rates.size(); ++i) {
    if (rates[i].empty()) continue;
    const auto middle = rates[i].begin() + std::ssize(rates[i]) / 2;
    std::ranges::nth_element(rates[i], middle);
    samples.push_back({.bytes = static_cast<double>(kReadBytes[i]), .seconds = kReadBytes[i] / *middle});
  }
  return samples;
}

std::string HowMeasured(const DiskReader& reader, const std::filesystem::path& path, PageRange range, double seconds) {
  std::string how = absl::StrFormat("%s, %.3g GB of %s, %.1f s", std::string(kDiskReaderKindNames.Name(reader.kind())),
                                    static_cast<double>(range.bytes()) / 1e9, path.filename().string(), seconds);
  if (!reader.direct()) absl::StrAppend(&how, "; through the page cache, which may have answered");
  if (range.bytes() < kLargeRangeBytes) {
    absl::StrAppend(&how, "; so few bytes that the disk's own cache may have answered");
  }
  return how;
}

}  // namespace

uint64_t DiskRates::gap_bytes() const {
  // A gap above 1 MiB costs memory, and no measurement shows that it gains anything.
  constexpr double kMost = 1 << 20;
  if (seconds_per_byte <= 0) return seconds_per_read > 0 ? static_cast<uint64_t>(kMost) : 0;
  const auto bytes = static_cast<uint64_t>(std::min(seconds_per_read / seconds_per_byte, kMost));
  return bytes / kDiskPageBytes * kDiskPageBytes;
}

int ChooseDepth(std::span<const DepthSample> samples) {
  double best = 0;
  for (const DepthSample& sample : samples) best = std::max(best, sample.bytes_per_second);
  int depth = 0;
  for (const DepthSample& sample : samples) {
    const bool smaller = depth == 0 || sample.depth < depth;
    if (smaller && sample.bytes_per_second >= 0.95 * best) depth = sample.depth;
  }
  return std::max(depth, 1);
}

ReadLine FitReads(std::span<const ReadSample> samples) {
  // The errors are relative: each is divided by the measured time, so that long reads do not outweigh short ones.
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const ReadSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    const double weight = 1 / (sample.seconds * sample.seconds);
    w += weight;
    wx += weight * sample.bytes;
    wxx += weight * sample.bytes * sample.bytes;
    wy += weight * sample.seconds;
    wxy += weight * sample.bytes * sample.seconds;
  }
  if (w == 0 || wxx == 0) return {};
  const double determinant = w * wxx - wx * wx;
  // Reads of a single size cannot tell seconds_per_read from seconds_per_byte. If one of the two would be negative,
  // it is set to 0 and the other one is fitted alone.
  const ReadLine by_byte{.seconds_per_read = 0, .seconds_per_byte = wxy / wxx};
  if (determinant <= 1e-9 * w * wxx) return by_byte;
  const double slope = (w * wxy - wx * wy) / determinant;
  const double constant = (wxx * wy - wx * wxy) / determinant;
  if (constant < 0) return by_byte;
  if (slope < 0) return {.seconds_per_read = wy / w, .seconds_per_byte = 0};
  return {.seconds_per_read = constant, .seconds_per_byte = slope};
}

absl::StatusOr<DiskRates> MeasureDisk(const std::filesystem::path& path, uint64_t first, uint64_t bytes,
                                      const MeasureDiskOptions& options) {
  const auto open = [&](int depth, uint32_t read_bytes) {
    return DiskReader::Open(path, {.kind = options.kind, .depth = depth, .max_read_bytes = read_bytes});
  };
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<DiskReader> reader, open(kDepths.back(), kReadBytes.back()));
  PageRange range{.first = (first + kDiskPageBytes - 1) / kDiskPageBytes * kDiskPageBytes};
  const uint64_t file_bytes = reader->file_bytes();
  const uint64_t end = first < file_bytes ? first + std::min(bytes, file_bytes - first) : first;
  if (end > range.first) range.pages = (end - range.first) / kDiskPageBytes;
  if (range.pages == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", bytes, " bytes at ", first,
                                                   " hold no whole page of ", kDiskPageBytes,
                                                   " to measure the disk by"));
  }
  const Stopwatch watch;

  // Spends a fifth of the time on finding the depth, three fifths on the read sizes, and a fifth on sequential reads.
  SplitMix64 draw(0x6469736b, 0);
  std::vector<DepthSample> depths;
  for (const int depth : kDepths) {
    PF_ASSIGN_OR_RETURN(const double rate, MeasureReads(*reader, Places(range, kDiskPageBytes, &draw), kDiskPageBytes,
                                                        depth, options.seconds / 5 / kDepths.size()));
    depths.push_back({.depth = depth, .bytes_per_second = rate});
  }
  DiskRates rates{.depth = ChooseDepth(depths), .kind = reader->kind(), .direct = reader->direct()};

  PF_ASSIGN_OR_RETURN(const std::vector<ReadSample> samples,
                      MeasureSizes(*reader, range, draw, rates.depth, 3 * options.seconds / 5));
  const ReadLine line = FitReads(samples);
  rates.seconds_per_read = line.seconds_per_read;
  rates.seconds_per_byte = line.seconds_per_byte;

  const uint32_t long_bytes = static_cast<uint32_t>(std::min<uint64_t>(kLongReadBytes, range.bytes()));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<DiskReader> sequential, open(kLongReadDepth, long_bytes));
  PF_ASSIGN_OR_RETURN(rates.sequential_bytes_per_second, MeasureReads(*sequential, Places(range, long_bytes, nullptr),
                                                                      long_bytes, kLongReadDepth, options.seconds / 5));
  rates.how = HowMeasured(*reader, path, range, absl::ToDoubleSeconds(watch.Elapsed()));
  return rates;
}

}  // namespace permafrost
