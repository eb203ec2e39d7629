// The parts of one import report its progress and its notes to a monitor. They obey the wish to stop it and its limits,
// which the monitor tells them.
// Threads: the importing thread. Borrows the observer and the limits.
#pragma once

#include <algorithm>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/quote.h"
#include "base/stop.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// Bytes of a note, or of the error of an import, that are kept: whatever a source holds, a line stays one that can be
// read.
inline constexpr std::size_t kMaxMessageBytes = 2048;

class ImportMonitor {
 public:
  ImportMonitor(int64_t bytes_total, const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits)
      : observer_(observer), stop_(std::move(stop)), limits_(limits) {
    progress_.bytes_total = bytes_total;
  }
  // `bytes` of `file` were read; negative when it is begun anew. Cancelled once the import shall stop.
  absl::Status Advance(const std::string& file, int64_t bytes) {
    progress_.current_file = file;
    progress_.bytes_read += bytes;
    if (observer_) observer_(progress_);
    return CheckStop();
  }
  // Tells the user a line about how the source was read; it stays with the dataset. Bytes that are no UTF-8 are
  // replaced when it is shown, and a long one is cut. The same line is told once.
  void Note(std::string line) {
    line = CutMessage(line, kMaxMessageBytes);
    if (std::ranges::find(notes_, line) == notes_.end()) notes_.push_back(std::move(line));
  }
  // In the order in which they were told.
  const std::vector<std::string>& notes() const { return notes_; }
  // Cancelled once the import shall stop.
  absl::Status CheckStop() const { return permafrost::CheckStop(stop_); }
  // For the writers, which report no progress of their own.
  const std::stop_token& stop() const { return stop_; }
  const ImportLimits& limits() const { return limits_; }

 private:
  ImportProgress progress_;
  std::vector<std::string> notes_;
  const ImportObserver& observer_;
  std::stop_token stop_;
  const ImportLimits& limits_;
};

}  // namespace permafrost::data
