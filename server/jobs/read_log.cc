// Reading a job's log, of which the oldest part may be gone (telemetry/log.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "jobs/job_files.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

// A file of the log, open.
struct OpenSegment {
  Descriptor file;
  int64_t start = 0, size = 0;
  ino_t inode = 0;
  int64_t end() const { return start + size; }
};

// nullopt: there is no such file.
absl::StatusOr<std::optional<OpenSegment>> OpenAt(const fs::path& path, int64_t start) {
  Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid() && errno == ENOENT) return std::nullopt;
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) return SystemError(errno, path, "read");
  return OpenSegment{.file = std::move(file), .start = start, .size = info.st_size, .inode = info.st_ino};
}

struct OpenLogFiles {
  std::optional<OpenSegment> newest, older;
  int64_t begin() const { return older ? older->start : 0; }
  int64_t end() const { return newest ? newest->end() : older ? older->end() : 0; }
};

// nullopt: a file was renamed or removed meanwhile. The newest file before the older one is looked for: where it was
// renamed between the two, it is found as the older one again.
absl::StatusOr<std::optional<OpenLogFiles>> TryOpenLog(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(std::optional<OpenSegment> newest, OpenAt(path, 0));
  PF_ASSIGN_OR_RETURN(const std::optional<telemetry::LogSegment> found, telemetry::FindOlderSegment(path));
  if (!found) return OpenLogFiles{.newest = std::move(newest), .older = std::nullopt};
  PF_ASSIGN_OR_RETURN(std::optional<OpenSegment> older, OpenAt(found->path, found->start));
  if (!older || (newest && newest->inode == older->inode)) return std::nullopt;
  if (newest) newest->start = older->end();
  return OpenLogFiles{.newest = std::move(newest), .older = std::move(older)};
}

absl::StatusOr<OpenLogFiles> OpenLogAt(const fs::path& path) {
  while (true) {
    PF_ASSIGN_OR_RETURN(std::optional<OpenLogFiles> files, TryOpenLog(path));
    if (files) return *std::move(files);
  }
}

absl::Status ReadAt(const OpenSegment& segment, int64_t offset, const fs::path& path, std::string& data) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t got = pread(segment.file.get(), data.data() + done, data.size() - done,
                              static_cast<off_t>(offset - segment.start) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::InternalError(absl::StrCat(path.string(), ": cannot be read at ", offset));
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobFiles::Piece> JobFiles::ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const {
  if (max_bytes < 1) return absl::InvalidArgumentError(absl::StrCat("max_bytes: ", max_bytes, " is below 1"));
  const fs::path path = Log(id);
  PF_ASSIGN_OR_RETURN(const OpenLogFiles files, OpenLogAt(path));
  const int64_t begin = files.begin(), end = files.end();
  if (offset < 0) offset = std::max(begin, end + offset);
  if (offset > end) {
    return absl::OutOfRangeError(absl::StrCat("offset: ", offset, " is beyond the log's end at ", end));
  }
  Piece piece;
  if (offset < begin) {
    piece.data = absl::StrCat("[", begin - offset, " bytes of this log are not kept: permafrostd --max-job-log]\n");
    piece.next_offset = begin;
    piece.at_end = begin == end;
    return piece;
  }
  const OpenSegment* segment = nullptr;
  if (files.older && offset < files.older->end()) {
    segment = &*files.older;
  } else if (files.newest) {
    segment = &*files.newest;
  }
  if (segment != nullptr) {
    piece.data.resize(static_cast<size_t>(std::min(max_bytes, segment->end() - offset)));
    PF_RETURN_IF_ERROR(ReadAt(*segment, offset, path, piece.data));
  }
  piece.next_offset = offset + static_cast<int64_t>(piece.data.size());
  piece.at_end = piece.next_offset == end;
  return piece;
}

}  // namespace permafrost::jobs
