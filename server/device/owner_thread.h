// The one thread that may use a device.
// Threads: safe anywhere.
#pragma once

#include <atomic>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::device {

class OwnerThread {
 public:
  // The first thread that asks is the owner from then on. Errors: Internal on every other one, naming `what` it asked
  // for.
  absl::Status Claim(std::string_view what) {
    std::thread::id nobody;
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.compare_exchange_strong(nobody, self) || nobody == self) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(AbslView(what),
                                            ": called from another thread than the one that the device belongs to; "
                                            "everything on it is done by one"));
  }
  bool IsThis() const { return owner_.load() == std::this_thread::get_id(); }

 private:
  std::atomic<std::thread::id> owner_;
};

}  // namespace permafrost::device
