// A log of bounded size as files: PATH, which is written, and PATH.START, what was written before it. START is the byte
// of the whole log at which the file begins, so that a place in the log keeps its number whatever is dropped. Threads:
// one writer; readers anywhere beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"

namespace permafrost::telemetry {

struct LogSegment {
  std::filesystem::path path;
  int64_t start = 0, size = 0;
  int64_t end() const { return start + size; }
};

// Returns the segment that was written before PATH and is kept; nullopt: nothing was.
absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const std::filesystem::path& path);
// Renames PATH to PATH.START and removes the older segments: later lines go to a new PATH. Returns the bytes that were
// removed. Where a call failed after its rename, the next one does the rest.
absl::StatusOr<int64_t> RotateLog(const std::filesystem::path& path);

}  // namespace permafrost::telemetry
