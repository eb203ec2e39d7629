// Reads the features of large graphs for the jobs of this process: through the mapping where memory holds them, else
// from the disk through one feature cache a dataset, which is kept over jobs. Threads: all methods are safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/enum_names.h"
#include "base/monotonic.h"
#include "base/resources.h"
#include "data/disk/disk_rates.h"
#include "data/rows/row_cache.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Brings a range of a file into the page cache from one end to the other, at the disk's bandwidth and ahead of whoever
// reads it at random through a mapping. It stops when it goes.
// Threads: one at a time. Owns its thread.
class ReadAhead {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  // A file that cannot be opened or read is left to whoever reads it after all, who then reports the error.
  ReadAhead(std::filesystem::path path, Range range);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Waits until all was asked for and read.
  void Wait() const { done_.WaitForNotification(); }

 private:
  void Run(const std::filesystem::path& path, Range range);

  absl::Notification stop_, done_;
  std::thread thread_;
};

// kAuto: kMapped where memory holds the features, else kUring where it works, else kPread.
enum class FeatureReader { kAuto, kMapped, kUring, kPread };
inline constexpr EnumNames<FeatureReader, 4> kFeatureReaderNames{{{{FeatureReader::kAuto, "auto"},
                                                                   {FeatureReader::kMapped, "mapped"},
                                                                   {FeatureReader::kUring, "io-uring"},
                                                                   {FeatureReader::kPread, "pread"}}}};

class RowCaches {
 public:
  struct Options {
    FeatureReader reader = FeatureReader::kAuto;
    // The size of a cache, in bytes. 0: what memory leaves, and less when it gets short.
    uint64_t budget_bytes = 0;
    // Returns the memory that is left; nullopt: unknown. Tests give their own.
    std::function<std::optional<MemoryLeft>()> memory_left = GetMemoryLeft;
    std::function<void()> return_free_heap = ReturnFreeHeap;
    // Returns how many bytes of a file are mapped and in memory.
    std::function<uint64_t(const std::filesystem::path&)> mapped_bytes = MappedBytesOf;
    // The rates of the disk, where it is not to be measured.
    std::optional<DiskRates> rates = std::nullopt;
    // Hears of each change of a budget, a line.
    std::function<void(std::string_view)> log = [](std::string_view) {};
  };
  explicit RowCaches(Options options) : options_(std::move(options)) {}

  // A job's way to the features of one graph; it ends the reading when it goes.
  struct Session {
    std::shared_ptr<RowCache> cache;  // nullptr: through the mapping
    std::string line;                 // for the job's log: how, and why so
    // The reading of what goes through the mapping, all at once rather than as it is touched, where memory holds it.
    std::vector<std::unique_ptr<ReadAhead>> ahead;
  };
  // One session at a time; while one is open, another reads through the mapping. `job_bytes`: what else the job will
  // take. Errors: FailedPrecondition for a reader that was asked for and does not
  // work here; an environment's error for a file that cannot be opened.
  absl::StatusOr<Session> Open(const std::shared_ptr<const Graph>& graph, uint64_t job_bytes);
  // Returns the bytes still free once `job_bytes` and a reserve are taken. Kept rows count as free, since Drop gives
  // them back.
  uint64_t LeftBeside(uint64_t job_bytes);
  // Gives memory back where it got short, and takes more where there is room, a little at a time: what a job takes is
  // seen rather than known. To be called often while a session is open; looks at the memory ten times a second at most.
  void Adapt(RowCache& cache);
  // Gives all rows back, except those of an open session.
  void Drop();

 private:
  // Names the file that a cache holds rows of.
  struct Key {
    std::filesystem::path path;
    int64_t modified = 0;
    uint64_t bytes = 0;
    auto operator<=>(const Key&) const = default;
  };

  static absl::StatusOr<Key> KeyOf(const StoredRows& table);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes of the rows that are kept.
  uint64_t Held() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns what `memory`, and the rows that are kept, leave beside `job_bytes` and a reserve.
  uint64_t Left(const std::optional<MemoryLeft>& memory, uint64_t job_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the reading; rows stay, as far as they leave memory for what comes between jobs.
  void EndSession(RowCache& cache);
  // Bytes that memory leaves where all edges of the session's graph are to stay, which are mapped as they are used.
  double LeftBesideEdges(const MemoryLeft& memory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<DiskRates> RatesOf(const StoredRows& table, std::optional<DiskReaderKind> kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  absl::Mutex mu_;
  // One: that of the dataset which was used last.
  std::optional<Key> key_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<RowCache> kept_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;                                 // a session
  std::map<std::filesystem::path, DiskRates> rates_ ABSL_GUARDED_BY(mu_);  // by the folder of a store
  Stopwatch since_look_ ABSL_GUARDED_BY(mu_), since_return_ ABSL_GUARDED_BY(mu_), since_change_ ABSL_GUARDED_BY(mu_);
  // The bytes of the session's edges that were not mapped when it began, and all bytes that were mapped then.
  uint64_t edges_to_map_ ABSL_GUARDED_BY(mu_) = 0, mapped_before_ ABSL_GUARDED_BY(mu_) = 0;
  bool returned_ ABSL_GUARDED_BY(mu_) = false;  // the heap, in this session
};

}  // namespace permafrost::data
