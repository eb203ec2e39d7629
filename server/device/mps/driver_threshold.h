// Decides when a device's driver holds so much memory that its caches are to be emptied.
// Threads: a value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace permafrost::device {

class DriverThreshold {
 public:
  // In bytes; 0: never.
  explicit DriverThreshold(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  // Asked between two steps. Memory that emptying did not bring down is no reason to empty again: after that it is due
  // once a quarter more is held than was then.
  bool Due(int64_t driver_bytes) {
    if (refilling_) {
      refilling_ = false;
      floor_ = driver_bytes + driver_bytes / 4;
      return false;
    }
    return limit_ > 0 && driver_bytes >= std::max(limit_, floor_);
  }
  // The caches were emptied; the next step finds in them again what it needs.
  void OnEmptied() { refilling_ = true; }

 private:
  int64_t limit_;
  int64_t floor_ = 0;
  bool refilling_ = false;
};

}  // namespace permafrost::device
