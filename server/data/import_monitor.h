// Progress of one import and the wish to stop it.
// Threads: the importing thread. Borrows the observer.
#pragma once

#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "data/ogb_import.h"

namespace permafrost::data {

class ImportMonitor {
 public:
  ImportMonitor(int64_t bytes_total, const ImportObserver& observer, std::stop_token stop)
      : observer_(observer), stop_(std::move(stop)) {
    progress_.bytes_total = bytes_total;
  }
  // `bytes` of `file` were read; negative when it is begun anew. Cancelled once the import shall stop.
  absl::Status Advance(const std::string& file, int64_t bytes) {
    progress_.current_file = file;
    progress_.bytes_read += bytes;
    if (observer_) observer_(progress_);
    return stop_.stop_requested() ? absl::CancelledError("the import was cancelled") : absl::OkStatus();
  }

 private:
  ImportProgress progress_;
  const ImportObserver& observer_;
  std::stop_token stop_;
};

}  // namespace permafrost::data
