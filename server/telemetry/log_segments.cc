#include "telemetry/log_segments.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::telemetry {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<LogSegment>> ListSegments(const fs::path& path) {
  const std::string prefix = absl::StrCat(path.filename().string(), ".");
  std::vector<LogSegment> segments;
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(path.parent_path()));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    LogSegment segment;
    if (!name.starts_with(prefix) || !absl::SimpleAtoi(absl::string_view(name).substr(prefix.size()), &segment.start)) {
      continue;
    }
    segment.path = path.parent_path() / name;
    std::error_code error;
    const auto size = fs::file_size(segment.path, error);
    // The writer has just removed it.
    if (error) continue;
    segment.size = static_cast<int64_t>(size);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace

absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::vector<LogSegment> segments, ListSegments(path));
  std::optional<LogSegment> newest;
  for (const LogSegment& segment : segments) {
    if (!newest || segment.start > newest->start) newest = segment;
  }
  return newest;
}

absl::StatusOr<int64_t> RotateLog(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(std::vector<LogSegment> older, ListSegments(path));
  std::ranges::sort(older, {}, &LogSegment::start);
  int64_t start = 0;
  for (const LogSegment& segment : older) start = std::max(start, segment.end());
  const absl::Status renamed = Rename(path, fs::path(absl::StrCat(path.string(), ".", start)));
  if (absl::IsNotFound(renamed) && !older.empty()) {
    older.pop_back();
  } else {
    PF_RETURN_IF_ERROR(renamed);
  }
  int64_t removed = 0;
  for (const LogSegment& segment : older) {
    std::error_code error;
    if (fs::remove(segment.path, error)) removed += segment.size;
  }
  return removed;
}

}  // namespace permafrost::telemetry
