// The thread that imports, one dataset after the other.
#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/catalog/catalog_impl.h"
#include "data/source/import_options.h"

namespace permafrost::data {

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
    // Before the look: what changes after it ends the wait.
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
    files_.EndDeletedImport(id).IgnoreError();  // else the next start does
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
  if (!result.ok()) files_.DiscardDataset(id).IgnoreError();  // else the next start does
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
  // It has its name, which may not be on disk.
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
    // After a deletion it would bring the import back.
    if (running_deleted_) return absl::CancelledError("the import was cancelled");
    PF_RETURN_IF_ERROR(files_.WriteImport(id, begun));
  }
  // Again, since the import may have waited, or been accepted by an earlier start with other roots.
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
  // If the store cannot be opened, the checksum stays unknown; whoever opens the dataset gets the error.
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
    files_.RemoveImport(id).IgnoreError();  // else the next start does
  } else if (absl::IsCancelled(result.status())) {
    // The server stops, and the record lets it begin anew. If this fails, a start is counted that was none.
    files_.WriteImport(id, record).IgnoreError();
  } else if (IsTransient(result.status())) {
    ++counts_.retried;
    // As long as it took at the least: a disk that every try fills must have room for others half of the time.
    const absl::Duration delay = std::max(RetryDelay(options_.first_retry, ++entry.tries), took);
    queue_.Add(id, clock_.Elapsed() + delay);
    dataset.retry_time = absl::Now() + delay;
    if (dataset.last_error != error && options_.warn) {
      options_.warn(absl::StrCat("the import of ", id.value(), " waits and is tried again: ", error));
    }
    dataset.last_error = std::move(error);
    record.wait = {.tries = entry.tries, .error = dataset.last_error, .retry_time = dataset.retry_time, .delay = delay};
    files_.WriteImport(id, record).IgnoreError();  // as above
  } else {
    ++counts_.failed;
    dataset.state = DatasetState::kFailed;
    dataset.last_error.clear();
    entry.tries = 0;
    record.wait = {};
    record.error = dataset.error = std::move(error);
    // If this fails too, the next start tries the import again, which is right when it is the disk that is full.
    files_.WriteImport(id, record).IgnoreError();
  }
  PublishUsage();
  hub_.Notify(id.value());
}

}  // namespace permafrost::data
