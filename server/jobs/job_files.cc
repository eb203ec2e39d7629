#include "jobs/job_files.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

// No id begins with a dot.
constexpr char kDiscardedPrefix[] = ".deleted-";

}  // namespace

absl::Status JobFiles::Make(const JobId& id) const {
  // Leavings of a deletion that could not finish hold checkpoints, which a new job of that id must not resume from.
  PF_RETURN_IF_ERROR(RemoveAll(Directory(id)));
  return CreateDirectories(Directory(id));
}

absl::StatusOr<fs::path> JobFiles::Discard(const JobId& id, int64_t sequence) const {
  const fs::path to = directory_ / absl::StrCat(kDiscardedPrefix, id.value(), "-", sequence);
  std::error_code error;
  fs::rename(Directory(id), to, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::InternalError(absl::StrCat(Directory(id).string(), ": cannot be moved away: ", error.message()));
  }
  return to;
}

absl::Status JobFiles::RemoveStrays(const std::function<bool(const JobId&)>& on_record) const {
  std::vector<fs::path> strays;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    if (!on_record(JobId(it->path().filename().string()))) strays.push_back(it->path());
  }
  if (error) return absl::InternalError(absl::StrCat(directory_.string(), ": ", error.message()));
  for (const fs::path& stray : strays) PF_RETURN_IF_ERROR(RemoveAll(stray));
  return absl::OkStatus();
}

absl::StatusOr<JobFiles::Piece> JobFiles::ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const {
  if (max_bytes < 1) return absl::InvalidArgumentError(absl::StrCat("max_bytes: ", max_bytes, " is below 1"));
  const fs::path path = Log(id);
  std::ifstream in(path, std::ios::binary);
  int64_t size = 0;
  if (in) {
    in.seekg(0, std::ios::end);
    size = static_cast<int64_t>(in.tellg());
  }
  if (offset < 0) offset = std::max<int64_t>(0, size + offset);
  if (offset > size) {
    return absl::OutOfRangeError(absl::StrCat("offset: ", offset, " is beyond the log's end at ", size));
  }
  Piece piece;
  piece.data.resize(static_cast<size_t>(std::min(max_bytes, size - offset)));
  if (!piece.data.empty()) {
    in.seekg(offset);
    in.read(piece.data.data(), static_cast<std::streamsize>(piece.data.size()));
    if (!in) return absl::InternalError(absl::StrCat(path.string(), ": cannot be read at ", offset));
  }
  piece.next_offset = offset + static_cast<int64_t>(piece.data.size());
  piece.at_end = piece.next_offset == size;
  return piece;
}

}  // namespace permafrost::jobs
