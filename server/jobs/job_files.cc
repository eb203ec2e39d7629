#include "jobs/job_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

// Names with these prefixes belong to no job, because no id begins with a dot.
constexpr std::string_view kDiscardedPrefix = ".deleted-";
constexpr std::string_view kQuarantinePrefix = ".quarantine-";
// The file that MarkDeleted writes. It holds the sequence of the row that is about to be deleted.
constexpr char kDeletedMark[] = "deleted";

// Returns true if `directory` is not empty. A directory that cannot be listed counts as not empty.
bool HoldsSomething(const fs::path& directory) {
  const auto names = ListDirectory(directory);
  return !names.ok() || (*names && !(*names)->empty());
}

// Returns true if the directory is marked with the sequence of a row that the store once held. Such a sequence is at
// most `last_sequence`.
bool IsProvenDeleted(const fs::path& directory, int64_t last_sequence) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(directory / kDeletedMark, error))) return false;
  const auto text = ReadFile(directory / kDeletedMark);
  int64_t sequence = 0;
  return text.ok() && absl::SimpleAtoi(*text, &sequence) && sequence > 0 && sequence <= last_sequence;
}

// Returns a text with the width of the largest step, so that each write covers the previous one.
std::string StepText(int64_t step) { return absl::StrFormat("%20d\n", step); }

}  // namespace

absl::Status JobFiles::Make(const JobId& id) const {
  std::error_code error;
  if (fs::symlink_status(Directory(id), error).type() != fs::file_type::not_found) {
    // The directory was left by a deletion that could not rename it, or belongs to a job of another database. It may
    // hold checkpoints, from which the new job must not resume.
    PF_ASSIGN_OR_RETURN(const std::optional<fs::path> to, Quarantine(id.value()));
    if (to) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat(Directory(id).string(), " is of no job on record: moved to ", to->string()));
    }
  }
  return CreateDirectories(Directory(id));
}

void JobFiles::MarkDeleted(const JobId& id, int64_t sequence) const {
  const absl::Status marked = WriteFileAtomic(Directory(id) / kDeletedMark, absl::StrCat(sequence));
  if (marked.ok() || absl::IsNotFound(marked)) return;
  telemetry::Log(
      telemetry::Severity::kWarning,
      absl::StrCat("job ", id.value(), " is deleted without a note of it beside its files: ", marked.message()));
}

void JobFiles::UnmarkDeleted(const JobId& id) const {
  const fs::path mark = Directory(id) / kDeletedMark;
  if (unlink(mark.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return;
  telemetry::Log(telemetry::Severity::kWarning,
                 absl::StrCat(SystemError(errno, mark, "remove").message(), ": job ", id.value(), " is not deleted"));
}

fs::path JobFiles::Discarded(const JobId& id, int64_t sequence) const {
  return directory_ / absl::StrCat(AbslView(kDiscardedPrefix), id.value(), "-", sequence);
}

absl::Status JobFiles::Discard(const JobId& id, int64_t sequence) const {
  std::error_code error;
  fs::rename(Directory(id), Discarded(id, sequence), error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return SystemError(error.value(), Directory(id), "move away");
  }
  // Without this sync, a power cut could restore the old name, to which no job on record belongs.
  return SyncDirectory(directory_);
}

absl::StatusOr<JobFiles::Strays> JobFiles::FindUnknownDirectories(const std::function<bool(const JobId&)>& on_record,
                                                                  int64_t last_sequence) const {
  Strays strays;
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(directory_));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (on_record(JobId(name)) || name.starts_with(kQuarantinePrefix)) continue;
    const fs::path directory = directory_ / name;
    std::error_code error;
    if (name.starts_with(kDiscardedPrefix) || IsProvenDeleted(directory, last_sequence)) {
      strays.discarded.push_back(name);
      continue;
    }
    strays.unknown.push_back(name);
    if (!fs::is_directory(directory, error)) continue;
    if (HoldsSomething(directory / "checkpoints") || HoldsSomething(directory / "artifacts")) {
      strays.with_work.push_back(name);
    }
  }
  std::ranges::sort(strays.with_work);
  return strays;
}

absl::StatusOr<std::vector<fs::path>> JobFiles::ClearStrays(const Strays& strays) const {
  for (const std::string& name : strays.discarded) {
    // Only logs a failure: the deletion was answered, and no job can have such a name.
    if (const absl::Status gone = RemoveAll(directory_ / name); !gone.ok()) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat("what is left of a deleted job cannot be removed: ", gone.message()));
    }
  }
  std::vector<fs::path> quarantined;
  for (const std::string& name : strays.unknown) {
    PF_ASSIGN_OR_RETURN(const std::optional<fs::path> to, Quarantine(name));
    if (to) quarantined.push_back(*to);
  }
  return quarantined;
}

absl::StatusOr<std::optional<fs::path>> JobFiles::Quarantine(const std::string& name) const {
  const fs::path from = directory_ / name;
  std::error_code error;
  // rmdir removes only an empty directory.
  if (fs::is_directory(fs::symlink_status(from, error)) && rmdir(from.c_str()) == 0) return std::nullopt;
  const std::string to =
      (directory_ / absl::StrCat(AbslView(kQuarantinePrefix), name, "-",
                                 absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone())))
          .string();
  fs::path free = to;
  for (int n = 2; fs::exists(fs::symlink_status(free, error)); ++n) free = absl::StrCat(to, "-", n);
  PF_RETURN_IF_ERROR(Rename(from, free));
  return free;
}

namespace {

// An open file of a log.
struct OpenSegment {
  Descriptor file;
  int64_t start = 0, size = 0;
  ino_t inode = 0;
  int64_t end() const { return start + size; }
};

// Opens the file at `path`. Returns nullopt if there is no such file.
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

// Opens the files of a log. Returns nullopt if a file was renamed or removed meanwhile. Opens the newest file first
// and then the older one. If the newest file was renamed in between, both opened files are the same file. This shows
// the renaming.
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

absl::StatusOr<JobFiles::Piece> LogPieces::Read(const JobId& id, int64_t offset, int64_t max_bytes) {
  Place place{.id = id, .offset = offset, .max_bytes = max_bytes, .changes = changes_.load(std::memory_order_acquire)};
  {
    const absl::MutexLock lock(&mu_);
    for (const std::optional<Kept>& kept : kept_) {
      if (kept && kept->place == place) return kept->piece;
    }
  }
  PF_ASSIGN_OR_RETURN(JobFiles::Piece piece, files_.ReadLog(id, offset, max_bytes));
  const absl::MutexLock lock(&mu_);
  kept_[next_] = Kept{.place = std::move(place), .piece = piece};
  next_ = (next_ + 1) % kept_.size();
  return piece;
}

std::string PlaceText(const Deaths& deaths) {
  return deaths.step == RunMark::kBeforeFirstStep ? "before its first step" : absl::StrCat("after step ", deaths.step);
}

absl::StatusOr<RunMark> RunMark::Begin(const std::filesystem::path& path) {
  const std::string head = absl::StrCat(BootId(), " ");
  // Writes the mark atomically, because half a mark would name no boot.
  PF_RETURN_IF_ERROR(WriteFileAtomic(path, head + StepText(kBeforeFirstStep)));
  Descriptor file = OpenRetrying(path, O_WRONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  return RunMark(std::move(file), head.size());
}

void RunMark::SetStep(int64_t step) {
  const std::string text = StepText(step);
  [[maybe_unused]] const ssize_t written =
      pwrite(file_.get(), text.data(), text.size(), static_cast<off_t>(step_offset_));
}

std::optional<RunMark::Content> RunMark::Read(const std::filesystem::path& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(*text, absl::MaxSplits(' ', 1));
  Content content;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &content.step)) return std::nullopt;
  content.boot_id = parts[0];
  return content;
}

Deaths CountDeath(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                  int64_t checkpoint_step) {
  if (!mark || mark->boot_id != boot_id) return before;
  const bool same_place = before.count > 0 && before.step == mark->step &&
                          (mark->step != RunMark::kBeforeFirstStep || checkpoint_step <= before.checkpoint_step);
  return {same_place ? before.count + 1 : 1, mark->step, checkpoint_step};
}

Deaths CountDeviceFault(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                        int64_t checkpoint_step) {
  if (!mark || mark->boot_id != boot_id) return before;
  const bool same_place = before.count > 0 && (before.step == mark->step || checkpoint_step <= before.checkpoint_step);
  return {same_place ? before.count + 1 : 1, mark->step, checkpoint_step};
}

}  // namespace permafrost::jobs
