// Room that is kept free on a disk, so that the database goes on where datasets, uploads and checkpoints have to wait.
// Threads: all methods are safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace permafrost {

class DiskReserve {
 public:
  // Keeps nothing.
  DiskReserve() = default;
  // `bytes` of the file system that `folder` lies on.
  DiskReserve(std::filesystem::path folder, uint64_t bytes) : folder_(std::move(folder)), bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // Bytes that are free for this process; nullopt where the file system does not tell.
  std::optional<uint64_t> Free() const;
  // ResourceExhausted (transient, reason DISK_NEARLY_FULL, metadata `free` and `reserve`) where less than the reserve
  // would be free after `wanted` more bytes. Ok where the file system does not tell.
  absl::Status Check(uint64_t wanted = 0) const;

 private:
  std::filesystem::path folder_;
  uint64_t bytes_ = 0;
};

}  // namespace permafrost
