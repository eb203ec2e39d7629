// Brings a range of a file into the page cache from one end to the other, at the disk's bandwidth and ahead of whoever
// reads it at random through a mapping. It stops when it goes.
// Threads: one at a time. Owns its thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <thread>

#include "absl/synchronization/notification.h"

namespace permafrost {

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

}  // namespace permafrost
