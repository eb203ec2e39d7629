// Watches that there is room while an import writes, since nobody knows beforehand how much it takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"

namespace permafrost::data {

struct ImportRoom {
  DiskReserve reserve;
  // Bytes that all datasets together may take; 0: any number.
  uint64_t max_bytes = 0;
  // Bytes that the other datasets take.
  uint64_t taken_bytes = 0;
};

// Ok, or ResourceExhausted, reason DATASETS_TOO_LARGE, metadata `limit`, where `bytes` more than those of the others
// are too many. Pure.
absl::Status CheckDatasetBytes(const ImportRoom& room, uint64_t bytes);

// Bytes of the files in and below a folder; those that vanish meanwhile count for nothing.
uint64_t BytesBelow(const std::filesystem::path& folder);

// Looks a few times a second, on a thread of its own, until destroyed; not at all where everything has room.
// Threads: safe anywhere.
class RoomWatch {
 public:
  // Asks `stop` to stop once there is no room for what is written into `directory`.
  RoomWatch(ImportRoom room, std::filesystem::path directory, std::stop_source stop);
  // Why it asked; Ok: it did not.
  absl::Status status() const;
  // Checks the bytes that are there now, as CheckDatasetBytes does.
  absl::Status CheckBytes() const { return CheckDatasetBytes(room_, BytesBelow(directory_)); }

 private:
  void Watch(const std::stop_token& end, std::stop_source& stop);

  const ImportRoom room_;
  const std::filesystem::path directory_;
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;  // last: it uses the others
};

}  // namespace permafrost::data
