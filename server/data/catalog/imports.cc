#include "data/catalog/imports.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "spec/field.h"

namespace permafrost::data {
namespace {

struct RecordSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportRecord>& r) {
    a("create_time", r.create_time);
    a("uid", r.uid);
    if constexpr (!std::is_const_v<typename A::template Visited<ImportRecord>>) {
      // Older versions wrote this field: they always added inverse edges or never did.
      std::optional<bool> add_inverse_edges;
      a("add_inverse_edges", add_inverse_edges);
      if (add_inverse_edges) r.options.inverse_edges = *add_inverse_edges ? InverseEdges::kAdd : InverseEdges::kKeep;
    }
    spec::StoredFields(a, r.options);
    a("error", r.error);
    a("starts", r.starts);
    a("wait", r.wait);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportWait>& w) {
    a("tries", w.tries);
    a("error", w.error);
    a("retry_time", w.retry_time);
    a("delay", w.delay);
  }
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& options) { spec::StoredFields(a, options); }
};

// Starts of one import that the process may die in before it is given up.
constexpr int kMaxStarts = 3;

}  // namespace

std::string WhyNotBegun(const ImportRecord& record) {
  if (!record.error.empty() || record.starts < kMaxStarts) return record.error;
  return absl::StrCat("the server died ", record.starts,
                      " times while importing it; delete it and import again to retry");
}

std::string MakeDatasetUid() {
  std::random_device random;
  std::uniform_int_distribution<uint64_t> bits;
  return HashHex(bits(random)) + HashHex(bits(random));
}

std::string DatasetUidOfTime(absl::Time create_time) { return absl::StrCat(absl::ToUnixMicros(create_time)); }

std::string RecordToJson(const ImportRecord& record) { return WriteJson<RecordSchema>(record) + "\n"; }

absl::StatusOr<ImportRecord> RecordFromJson(std::string_view text) {
  auto record = ReadJson<RecordSchema, ImportRecord>("import record", std::string(text));
  if (record.ok() && record->create_time == absl::InfinitePast()) {
    return absl::DataLossError("import record: create_time: is missing");
  }
  if (record.ok() && record->options.source.empty()) return absl::DataLossError("import record: source: is missing");
  if (record.ok() && record->uid.empty()) record->uid = DatasetUidOfTime(record->create_time);
  return record;
}

void ImportQueue::Add(const DatasetId& id, absl::Duration not_before) { waiting_.push_back({id, not_before}); }

bool ImportQueue::Remove(const DatasetId& id) {
  return std::erase_if(waiting_, [&id](const Waiting& w) { return w.id == id; }) > 0;
}

std::optional<DatasetId> ImportQueue::Take(absl::Duration now, absl::Duration& wait) {
  wait = absl::InfiniteDuration();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->not_before <= now) {
      DatasetId id = std::move(it->id);
      waiting_.erase(it);
      return id;
    }
    wait = std::min(wait, it->not_before - now);
  }
  return std::nullopt;
}

namespace {

namespace fs = std::filesystem;

// A path that is too long or a circle of links stays so; any other error is of the machine as it is just now.
absl::Status PathError(const fs::path& path, const std::error_code& error, std::string_view action) {
  const absl::Status status = SystemError(error.value(), path, action);
  const bool lasts = error.value() == ENAMETOOLONG || error.value() == ELOOP;
  return lasts ? absl::InvalidArgumentError(status.message()) : status;
}

// The type of what the path leads to; not_found: it leads to nothing.
absl::StatusOr<fs::file_type> TypeOf(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) return PathError(path, error, "look at");
  return type;
}

// Makes the path absolute, follows symlinks, and removes `.` and `..`. Parts that do not exist stay as written.
absl::StatusOr<fs::path> Resolve(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  fs::path resolved = error ? fs::path() : fs::weakly_canonical(absolute, error);
  if (error) return PathError(path, error, "resolve");
  return resolved;
}

absl::Status Outside(const fs::path& shown, std::string_view why) {
  return WithReason(absl::PermissionDeniedError(absl::StrCat(shown.string(), ": ", AbslView(why))),
                    "PATH_OUTSIDE_IMPORT_ROOTS", {{"path", shown.string()}});
}

absl::Status CheckBelowARoot(const fs::path& shown, const fs::path& resolved, std::span<const fs::path> roots) {
  absl::Status unresolved;
  for (const fs::path& root : roots) {
    // The root is resolved each time, since it may be a link that was moved.
    const auto at = Resolve(root);
    if (at.ok() && IsBelow(resolved, *at)) return absl::OkStatus();
    if (IsTransient(at.status())) unresolved = at.status();
  }
  PF_RETURN_IF_ERROR(unresolved);
  const std::string accepted =
      roots.empty()
          ? "this server allows no imports (--import-root)"
          : absl::StrCat("not below an import root (",
                         absl::StrJoin(roots, ", ",
                                       [](std::string* out, const fs::path& r) { absl::StrAppend(out, r.string()); }),
                         "; permafrostd --import-root names another)");
  return Outside(shown, accepted);
}

absl::Status CheckEntry(const fs::path& entry, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(entry));
  std::error_code ignored;
  // Nobody knows where a link to nothing leads until something is there.
  if (type == fs::file_type::not_found && fs::is_symlink(fs::symlink_status(entry, ignored))) {
    return Outside(entry, "a link to what does not exist");
  }
  PF_ASSIGN_OR_RETURN(const fs::path resolved, Resolve(entry));
  return CheckBelowARoot(entry, resolved, roots);
}

// The entries of `directory`, if it is one, and `depth` levels of directories below.
absl::Status CheckDirectory(const fs::path& directory, std::span<const fs::path> roots, int depth) {
  PF_RETURN_IF_ERROR(CheckEntry(directory, roots));
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(directory));
  if (type != fs::file_type::directory) return absl::OkStatus();
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (depth > 0 && it->is_directory(ignored)) {
      PF_RETURN_IF_ERROR(CheckDirectory(it->path(), roots, depth - 1));
      continue;
    }
    PF_RETURN_IF_ERROR(CheckEntry(it->path(), roots));
  }
  return error ? PathError(directory, error, "list") : absl::OkStatus();
}

// The arrays and stores in `directory`; what else lies there no import reads.
absl::Status CheckArraysAndStores(const fs::path& directory, std::span<const fs::path> roots) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const fs::path extension = it->path().extension();
    if (extension == ".npy" || extension == ".npz" || extension == ".pfg")
      PF_RETURN_IF_ERROR(CheckEntry(it->path(), roots));
  }
  return error ? PathError(directory, error, "list") : absl::OkStatus();
}

}  // namespace

absl::Status CheckInRoots(const fs::path& path, std::span<const fs::path> roots) {
  absl::Status checked = CheckBelowARoot(path, path, roots);
  if (checked.ok() || IsTransient(checked)) return checked;
  return absl::PermissionDeniedError("leads to outside the import roots");
}

absl::StatusOr<fs::path> ResolveSource(const fs::path& source, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(fs::path resolved, Resolve(source));
  PF_RETURN_IF_ERROR(CheckBelowARoot(source, resolved, roots));
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(resolved));
  if (type == fs::file_type::not_found) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  // A pipe is refused, because its reader would wait for ever.
  if (type != fs::file_type::directory && type != fs::file_type::regular) {
    Violations violations;
    violations.Add("options.source_path", absl::StrCat(source.string(), " is neither a file nor a directory"));
    return violations.ToStatus();
  }
  return resolved;
}

absl::Status CheckEntriesInRoots(const fs::path& source, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(source));
  if (type != fs::file_type::directory) return CheckEntry(source, roots);
  PF_RETURN_IF_ERROR(CheckArraysAndStores(source, roots));
  PF_RETURN_IF_ERROR(CheckDirectory(source / "raw", roots, 0));
  return CheckDirectory(source / "split", roots, 1);
}

namespace {

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
