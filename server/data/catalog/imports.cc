#include "data/catalog/imports.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/catalog/catalog_impl.h"
#include "data/source/import_options.h"
#include "spec/field.h"

namespace permafrost::data {
namespace {

struct RecordSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportRecord>& r) {
    a("create_time", r.create_time);
    a("uid", r.uid);
    if constexpr (!std::is_const_v<typename A::template Visited<ImportRecord>>) {
      // Older versions wrote this field, which said whether inverse edges were always or never added.
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

// The number of times that the process may die during an import before the import fails.
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

// Returns the error of looking at a path. It is lasting for a path that is too long and for a circle of links. All
// other errors depend on the machine's present state.
absl::Status PathError(const fs::path& path, const std::error_code& error, std::string_view action) {
  const absl::Status status = SystemError(error.value(), path, action);
  const bool lasts = error.value() == ENAMETOOLONG || error.value() == ELOOP;
  return lasts ? absl::InvalidArgumentError(status.message()) : status;
}

// Returns the type of what the path leads to, or not_found if it leads nowhere.
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
  // A dangling link is refused, since its target may lie anywhere and may appear later.
  if (type == fs::file_type::not_found && fs::is_symlink(fs::symlink_status(entry, ignored))) {
    return Outside(entry, "a link to what does not exist");
  }
  PF_ASSIGN_OR_RETURN(const fs::path resolved, Resolve(entry));
  return CheckBelowARoot(entry, resolved, roots);
}

// Checks the entry `directory` and, if it is a directory, its entries and `depth` levels of directories below.
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

// Checks the arrays and stores in `directory`. Imports read nothing else there.
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

// The interval is short, so that even a fast disk does not fill the reserve between two checks.
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

// The catalog's thread imports one dataset after the other.

void CatalogImpl::StopImports() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  changed_.Set();
  stop_running_.request_stop();
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return running_.empty(); };
  mu_.Await(absl::Condition(&idle));
}

void CatalogImpl::RunImports() {
  for (;;) {
    // Resets the event before the look at the queue, so that any change after this look ends the wait.
    changed_.Reset();
    absl::Duration wait;
    {
      absl::MutexLock lock(&mu_);
      if (stopped_) return;
      if (const std::optional<DatasetId> next = queue_.Take(clock_.Elapsed(), wait)) {
        RunNext(*next);
        continue;
      }
    }
    changed_.WaitFor(wait);
  }
}

void CatalogImpl::RunNext(const DatasetId& id) {
  Entry& entry = entries_.at(id);
  if (entry.dataset.state == DatasetState::kFailed) {
    AddReady(id, files_.ReadDataset(id), entry.tries);
    PublishUsage();
    hub_.Notify(id.value());
    return;
  }
  running_ = id;
  running_deleted_ = false;
  stop_running_ = std::stop_source();
  PublishUsage();
  const std::stop_token stop = stop_running_.get_token();
  entry.dataset.retry_time = absl::InfinitePast();
  ImportRecord record{.create_time = entry.dataset.create_time,
                      .uid = entry.dataset.uid,
                      .options = entry.dataset.options,
                      .starts = entry.starts,
                      .wait = {.tries = entry.tries, .error = entry.dataset.last_error}};
  mu_.Unlock();
  const Stopwatch took;
  import_progress_ = 0;
  const absl::StatusOr<Published> result = RunImport(id, record, stop);
  import_progress_ = -1;
  mu_.Lock();
  if (running_deleted_) {
    mu_.Unlock();
    files_.EndDeletedImport(id).IgnoreError();  // after an error, the next start does it
    mu_.Lock();
  } else {
    EndImport(id, std::move(record), result, took.Elapsed());
  }
  running_ = DatasetId();
  PublishUsage();
}

absl::StatusOr<CatalogImpl::Published> CatalogImpl::RunImport(const DatasetId& id, const ImportRecord& record,
                                                              const std::stop_token& stop) {
  absl::StatusOr<Published> result = WithoutThrowing("the import", [&] { return ImportAndPublish(id, record, stop); });
  if (!result.ok()) files_.DiscardDataset(id).IgnoreError();  // after an error, the next start does it
  return result;
}

ImportRoom CatalogImpl::RoomFor(const DatasetId& id) const {
  ImportRoom room{.reserve = options_.reserve, .max_bytes = options_.max_bytes, .taken_bytes = 0};
  absl::MutexLock lock(&mu_);
  for (const auto& [other, entry] : entries_) {
    if (other != id && entry.dataset.summary) room.taken_bytes += StoreBytes(*entry.dataset.summary);
  }
  return room;
}

absl::StatusOr<CatalogImpl::Published> CatalogImpl::ReadPublished(const DatasetId& id) const {
  PF_ASSIGN_OR_RETURN(const OpenedDataset store, OpenDataset(files_.DatasetPath(id)));
  return Published{SummaryOf(store), ContentChecksumOf(store)};
}

absl::StatusOr<std::optional<CatalogImpl::Published>> CatalogImpl::FindPublished(const DatasetId& id,
                                                                                 const ImportRecord& record) const {
  const absl::StatusOr<ImportRecord> published = files_.ReadDataset(id);
  if (IsTransient(published.status())) return published.status();
  if (!published.ok() || published->uid != record.uid) return std::nullopt;
  // The dataset has its name, but the rename may not be on disk yet.
  PF_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  PF_ASSIGN_OR_RETURN(Published found, ReadPublished(id));
  return std::optional<Published>(std::move(found));
}

absl::StatusOr<CatalogImpl::Published> CatalogImpl::ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                                                     const std::stop_token& stop) {
  PF_ASSIGN_OR_RETURN(std::optional<Published> published, FindPublished(id, record));
  if (published) return *std::move(published);
  const auto observe = [this, &id](const ImportProgress& progress) {
    if (progress.bytes_total > 0) {
      import_progress_ = static_cast<double>(progress.bytes_read) / static_cast<double>(progress.bytes_total);
    }
    {
      absl::MutexLock lock(&mu_);
      if (running_deleted_) return;
      entries_.at(id).dataset.progress = progress;
    }
    hub_.Notify(id.value());
  };
  ImportRecord begun = record;
  ++begun.starts;
  {
    absl::MutexLock lock(&mu_);
    // If the import was deleted, writing its record would bring the import back.
    if (running_deleted_) return absl::CancelledError("the import was cancelled");
    PF_RETURN_IF_ERROR(files_.WriteImport(id, begun));
  }
  // Checks the source again. It may have changed while the import waited, or an earlier process with other import
  // roots may have accepted the import.
  ImportOptions options = record.options;
  PF_ASSIGN_OR_RETURN(options.source, ResolveSource(options.source, options_.import_roots));
  PF_RETURN_IF_ERROR(CheckEntriesInRoots(options.source, options_.import_roots));
  PF_RETURN_IF_ERROR(options_.reserve.Check());
  PF_ASSIGN_OR_RETURN(const std::filesystem::path directory, files_.BeginDataset(id));
  std::stop_source stop_importer;
  const std::stop_callback forward(stop, [&stop_importer] { stop_importer.request_stop(); });
  const RoomWatch room(RoomFor(id), directory, stop_importer);
  absl::StatusOr<ImportedSummary> summary =
      options_.importer(options, directory, observe, stop_importer.get_token(), Limits());
  if (stop.stop_requested()) return absl::CancelledError("the import was cancelled");
  PF_RETURN_IF_ERROR(room.status());
  PF_RETURN_IF_ERROR(summary.status());
  PF_RETURN_IF_ERROR(room.CheckBytes());
  ImportRecord whole = record;
  whole.wait = {};
  PF_RETURN_IF_ERROR(files_.PublishDataset(id, whole));
  // If the store cannot be opened, the checksum stays unknown, and callers that open the dataset get the error.
  const absl::StatusOr<Published> opened = ReadPublished(id);
  return Published{*std::move(summary), opened.ok() ? opened->content_checksum : 0};
}

void CatalogImpl::EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<Published>& result,
                            absl::Duration took) {
  Entry& entry = entries_.at(id);
  Dataset& dataset = entry.dataset;
  dataset.progress = {};
  std::string error = CutMessage(StdView(result.status().message()), kMaxMessageBytes);
  if (result.ok()) {
    ++counts_.succeeded;
    dataset.state = DatasetState::kReady;
    dataset.summary = result->summary;
    dataset.content_checksum = result->content_checksum;
    dataset.last_error.clear();
    entry.tries = 0;
    files_.RemoveImport(id).IgnoreError();  // after an error, the next start does it
  } else if (absl::IsCancelled(result.status())) {
    // The server is stopping. This record lets the import begin anew without counting this start. If the record
    // cannot be written, the start counts.
    files_.WriteImport(id, record).IgnoreError();
  } else if (IsTransient(result.status())) {
    ++counts_.retried;
    // The wait is at least as long as the try took. If every try fills the disk, other writers then have room at
    // least half of the time.
    const absl::Duration delay = std::max(RetryDelay(options_.first_retry, ++entry.tries), took);
    queue_.Add(id, clock_.Elapsed() + delay);
    dataset.retry_time = absl::Now() + delay;
    if (dataset.last_error != error && options_.warn) {
      options_.warn(absl::StrCat("the import of ", id.value(), " waits and is tried again: ", error));
    }
    dataset.last_error = std::move(error);
    record.wait = {.tries = entry.tries, .error = dataset.last_error, .retry_time = dataset.retry_time, .delay = delay};
    files_.WriteImport(id, record).IgnoreError();  // if it fails, the start counts
  } else {
    ++counts_.failed;
    dataset.state = DatasetState::kFailed;
    dataset.last_error.clear();
    entry.tries = 0;
    record.wait = {};
    record.error = dataset.error = std::move(error);
    // If this write fails too, the next start of the process tries the import again. Trying again is right if the
    // disk was full.
    files_.WriteImport(id, record).IgnoreError();
  }
  PublishUsage();
  hub_.Notify(id.value());
}

}  // namespace permafrost::data
