#include "data/catalog/room_watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Short, so that a fast disk does not write the reserve away in between.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

}  // namespace

absl::Status CheckDatasetBytes(const ImportRoom& room, uint64_t bytes) {
  if (room.max_bytes == 0) return absl::OkStatus();
  const uint64_t left = room.max_bytes - std::min(room.max_bytes, room.taken_bytes);
  if (bytes <= left) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("the dataset takes at least ", bytes, " bytes where ", left, " are left of ",
                                     room.max_bytes, " for all datasets (--max-dataset-bytes); delete one first")),
                    "DATASETS_TOO_LARGE", {{"limit", absl::StrCat(room.max_bytes)}});
}

uint64_t BytesBelow(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  while (!error && it != fs::recursive_directory_iterator()) {
    std::error_code vanished;
    const uint64_t size = it->is_regular_file(vanished) ? it->file_size(vanished) : 0;
    if (!vanished) bytes += size;
    it.increment(error);
  }
  return bytes;
}

RoomWatch::RoomWatch(ImportRoom room, fs::path directory, std::stop_source stop)
    : room_(std::move(room)), directory_(std::move(directory)) {
  if (room_.max_bytes == 0 && room_.reserve.bytes() == 0) return;
  thread_ = std::jthread([this, stop = std::move(stop)](const std::stop_token& end) mutable { Watch(end, stop); });
}

absl::Status RoomWatch::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

void RoomWatch::Watch(const std::stop_token& end, std::stop_source& stop) {
  Event ended;
  const std::stop_callback wake(end, [&ended] { ended.Set(); });
  do {
    absl::Status found = room_.reserve.Check();
    if (found.ok()) found = CheckBytes();
    if (!found.ok()) {
      {
        absl::MutexLock lock(&mu_);
        status_ = std::move(found);
      }
      stop.request_stop();
      return;
    }
  } while (!ended.WaitFor(kLookInterval));
}

}  // namespace permafrost::data
