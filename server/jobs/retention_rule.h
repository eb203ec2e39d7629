// The rule for which ended jobs are kept.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace permafrost::jobs {

// By default all. Both may be given: a job is kept where each of them keeps it.
struct KeepFinished {
  std::optional<int64_t> count;                   // those that ended last
  absl::Duration age = absl::InfiniteDuration();  // those that ended less long ago
  bool keeps_all() const { return !count && age == absl::InfiniteDuration(); }
};

}  // namespace permafrost::jobs
