// Gives the jobs of this process access to the features of large graphs. If the features fit into memory, jobs read
// them through the mapping. Otherwise jobs read them from the disk through a feature cache, which is kept from job to
// job. Threads: all methods are safe anywhere.
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

// Reads a range of a file into the page cache, in order and at the disk's bandwidth. Jobs that read the file at
// random through a mapping then find its pages in memory. Destruction stops the reading.
// Threads: callers must not call it concurrently. The reading runs on a thread that the object owns.
class ReadAhead {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  // If the file cannot be opened or read, reading ahead ends silently. A later reader of the file reports the error.
  ReadAhead(std::filesystem::path path, Range range);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Waits until the whole range was read, or until reading ahead ended early.
  void Wait() const { done_.WaitForNotification(); }

 private:
  void Run(const std::filesystem::path& path, Range range);

  absl::Notification stop_, done_;
  std::thread thread_;
};

// How features are read. kAuto chooses kMapped if the features fit into memory. Otherwise it chooses kUring, or
// kPread if kUring does not work here.
enum class FeatureReader { kAuto, kMapped, kUring, kPread };
inline constexpr EnumNames<FeatureReader, 4> kFeatureReaderNames{{{{FeatureReader::kAuto, "auto"},
                                                                   {FeatureReader::kMapped, "mapped"},
                                                                   {FeatureReader::kUring, "io-uring"},
                                                                   {FeatureReader::kPread, "pread"}}}};

class RowCaches {
 public:
  struct Options {
    FeatureReader reader = FeatureReader::kAuto;
    // The size of a cache in bytes. 0 fits it to the memory that is left; the cache then shrinks when memory becomes
    // short.
    uint64_t budget_bytes = 0;
    // Returns the memory that is left, or nullopt if it is unknown. Tests replace this function and the next two.
    std::function<std::optional<MemoryLeft>()> memory_left = GetMemoryLeft;
    std::function<void()> return_free_heap = ReturnFreeHeap;
    // Returns how many bytes of a file are mapped and in memory.
    std::function<uint64_t(const std::filesystem::path&)> mapped_bytes = MappedBytesOf;
    // The rates of the disk. If unset, the disk is measured.
    std::optional<DiskRates> rates = std::nullopt;
    // Receives a line of text for each change of a budget.
    std::function<void(std::string_view)> log = [](std::string_view) {};
  };
  explicit RowCaches(Options options) : options_(std::move(options)) {}

  // A job's access to the features of one graph. Its destruction ends the reading.
  struct Session {
    std::shared_ptr<RowCache> cache;  // null if features are read through the mapping
    std::string line;                 // for the job's log: how features are read, and why
    // Reads ahead the ranges of the file that are read through the mapping, if they fit into memory. This is faster
    // than reading each page when it is touched.
    std::vector<std::unique_ptr<ReadAhead>> ahead;
  };
  // Opens a session. Only one session at a time has a feature cache; while that session is open, other sessions read
  // through the mapping. `job_bytes` is the memory that the job will take beside the features. Errors:
  // FailedPrecondition if the reader that was asked for does not work here; an environment's error if a file cannot
  // be opened.
  absl::StatusOr<Session> Open(const std::shared_ptr<const Graph>& graph, uint64_t job_bytes);
  // Returns the bytes that are free once `job_bytes` and a reserve are taken. Rows that the kept cache holds count as
  // free, since Drop frees them.
  uint64_t LeftBeside(uint64_t job_bytes);
  // Adapts the budget to the memory that is left. The budget shrinks when memory is short. It grows in steps when
  // there is room, since the memory that a job takes cannot be known in advance. Call Adapt often while a session is
  // open. It looks at the memory at most ten times a second.
  void Adapt(RowCache& cache);
  // Frees all rows, except the rows of an open session.
  void Drop();

 private:
  // Identifies the file whose rows a cache holds.
  struct Key {
    std::filesystem::path path;
    int64_t modified = 0;
    uint64_t bytes = 0;
    auto operator<=>(const Key&) const = default;
  };

  static absl::StatusOr<Key> KeyOf(const StoredRows& table);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes that the kept cache takes.
  uint64_t Held() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes that remain of `memory` and of the memory of the kept rows after `job_bytes` and a reserve are
  // taken.
  uint64_t Left(const std::optional<MemoryLeft>& memory, uint64_t job_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the reading of a session. Its rows stay in memory. If the work between jobs needs memory, drops some of the
  // rows.
  void EndSession(RowCache& cache);
  // Returns the bytes of memory that will be left once all edges of the session's graph are in memory. Edges come
  // into memory when they are first used. The result may be negative.
  double LeftBesideEdges(const MemoryLeft& memory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<DiskRates> RatesOf(const StoredRows& table, std::optional<DiskReaderKind> kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  absl::Mutex mu_;
  // kept_ is the cache for the dataset that was used last, and key_ is its key.
  std::optional<Key> key_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<RowCache> kept_ ABSL_GUARDED_BY(mu_);
  bool open_ ABSL_GUARDED_BY(mu_) = false;                                 // a session with a cache is open
  std::map<std::filesystem::path, DiskRates> rates_ ABSL_GUARDED_BY(mu_);  // keyed by the folder of a store
  Stopwatch since_look_ ABSL_GUARDED_BY(mu_), since_return_ ABSL_GUARDED_BY(mu_), since_change_ ABSL_GUARDED_BY(mu_);
  // Both values are from the beginning of the session. edges_to_map_ is how many bytes of the graph's edges were not
  // mapped into memory yet. mapped_before_ is MemoryLeft::mapped.
  uint64_t edges_to_map_ ABSL_GUARDED_BY(mu_) = 0, mapped_before_ ABSL_GUARDED_BY(mu_) = 0;
  bool returned_ ABSL_GUARDED_BY(mu_) = false;  // this session has returned free heap memory to the system
};

}  // namespace permafrost::data
