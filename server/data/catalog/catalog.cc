#include "data/catalog/catalog.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "base/retry_delay.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/without_throwing.h"
#include "data/catalog/catalog_errors.h"
#include "data/catalog/catalog_files.h"
#include "data/catalog/import_queue.h"
#include "data/catalog/import_roots.h"
#include "data/catalog/published_usage.h"
#include "data/catalog/room_watch.h"
#include "data/catalog/weak_dataset.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

class CatalogImpl final : public Catalog {
 public:
  explicit CatalogImpl(CatalogOptions options)
      : options_(std::move(options)), files_(options_.directory, options_.warn) {}
  ~CatalogImpl() override {
    StopImports();
    if (worker_.joinable()) worker_.join();
  }

  // Before any other call.
  absl::Status Load();

  absl::StatusOr<Dataset> Import(const DatasetId& id, ImportOptions options) override;
  absl::StatusOr<Dataset> Get(const DatasetId& id) const override;
  std::vector<Dataset> List() const override;
  absl::Status Delete(const DatasetId& id, const std::function<absl::Status()>& in_use) override;
  absl::StatusOr<fs::path> Resolve(const fs::path& source) const override {
    return ResolveSource(source, options_.import_roots);
  }
  absl::StatusOr<OpenedDataset> Open(const DatasetId& id) const override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  Usage usage() const override { return usage_.Read(); }
  std::optional<double> import_progress() const override {
    const double progress = import_progress_.load(std::memory_order_relaxed);
    return progress < 0 ? std::nullopt : std::optional<double>(progress);
  }
  void StopImports() override;

 private:
  struct Entry {
    Dataset dataset;
    int starts = 0;  // of ImportRecord, while kImporting and not running
    // In a row that the machine ended: of the import, or of opening what was imported, which is kFailed meanwhile.
    int tries = 0;
    mutable WeakDataset store;
  };

  // `tries`: of opening it before.
  void AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record, int tries = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Add(Dataset dataset, int starts = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the name of a failed dataset from whatever has it. Returns what is to be removed; empty: nothing.
  absl::StatusOr<fs::path> ClearName(const DatasetId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the import that runs is of the dataset that now has this name, and not of a deleted one that had it.
  bool IsRunning(const DatasetId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return running_ == id && !running_deleted_;
  }
  // Whether it is wanted, and waits for the machine.
  bool WaitsToRetry(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return entry.dataset.state == DatasetState::kImporting && entry.tries > 0 && !IsRunning(entry.dataset.id);
  }
  // After each change of what usage() tells.
  void PublishUsage() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunImports();
  void RunNext(const DatasetId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Anything that goes wrong is a status, exceptions included, and leaves nothing but the record.
  absl::StatusOr<ImportedSummary> RunImport(const DatasetId& id, const ImportRecord& record,
                                            const std::stop_token& stop);
  ImportRoom RoomFor(const DatasetId& id) const;
  absl::StatusOr<ImportedSummary> ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                                   const std::stop_token& stop);
  // `took`: how long the try lasted.
  void EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<ImportedSummary>& result,
                 absl::Duration took) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CatalogOptions options_;
  const CatalogFiles files_;
  mutable absl::Mutex mu_;
  std::map<DatasetId, Entry> entries_ ABSL_GUARDED_BY(mu_);
  ImportQueue queue_ ABSL_GUARDED_BY(mu_);             // by clock_
  DatasetId running_ ABSL_GUARDED_BY(mu_);             // empty: none
  bool running_deleted_ ABSL_GUARDED_BY(mu_) = false;  // its dataset is gone; another may have the name
  std::stop_source stop_running_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  ImportCounts counts_ ABSL_GUARDED_BY(mu_);
  mutable PublishedUsage usage_;
  std::atomic<double> import_progress_ = -1;  // below 0: no import runs
  const Stopwatch clock_;
  Event changed_;  // set by whatever gives the worker something to do, or ends it
  ChangeHub hub_;  // ends before what its listeners read
  std::thread worker_;
};

void CatalogImpl::Add(Dataset dataset, int starts) {
  const DatasetId id = dataset.id;
  Entry entry;
  entry.dataset = std::move(dataset);
  entry.starts = starts;
  entries_.insert_or_assign(id, std::move(entry));
}

void CatalogImpl::AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record, int tries) {
  Dataset dataset;
  dataset.id = id;
  const auto store = OpenDataset(files_.DatasetPath(id));
  const absl::Status status = record.ok() ? store.status() : record.status();
  if (record.ok()) {
    dataset.create_time = record->create_time;
    dataset.options = record->options;
  }
  dataset.state = status.ok() ? DatasetState::kReady : DatasetState::kFailed;
  dataset.error = std::string(status.message());
  if (status.ok()) dataset.summary = SummaryOf(*store);
  Add(std::move(dataset));
  if (!IsTransient(status)) return;
  entries_.at(id).tries = tries + 1;
  queue_.Add(id, clock_.Elapsed() + RetryDelay(options_.first_retry, tries + 1));
}

absl::Status CatalogImpl::Load() {
  PF_RETURN_IF_ERROR(files_.Prepare());
  PF_ASSIGN_OR_RETURN(const auto datasets, files_.ReadDatasets());
  PF_ASSIGN_OR_RETURN(const auto imports, files_.ReadImports());
  absl::MutexLock lock(&mu_);
  for (const auto& [id, record] : datasets) AddReady(id, record);
  std::vector<std::pair<absl::Time, DatasetId>> wanted;
  for (const auto& [id, record] : imports) {
    Dataset dataset;
    dataset.id = id;
    if (record.ok()) {
      dataset.create_time = record->create_time;
      dataset.options = record->options;
    }
    dataset.error = record.ok() ? WhyNotBegun(*record) : std::string(record.status().message());
    dataset.state = dataset.error.empty() ? DatasetState::kImporting : DatasetState::kFailed;
    if (dataset.state == DatasetState::kImporting) wanted.emplace_back(dataset.create_time, id);
    Add(std::move(dataset), record.ok() ? record->starts : 0);
  }
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [time, id] : wanted) queue_.Add(id);
  PublishUsage();
  worker_ = std::thread([this] { RunImports(); });
  return absl::OkStatus();
}

absl::StatusOr<Dataset> CatalogImpl::Import(const DatasetId& id, ImportOptions options) {
  PF_RETURN_IF_ERROR(CheckImport(id, options));
  PF_RETURN_IF_ERROR(CheckDatasetBytes(RoomFor(id), 1));
  PF_ASSIGN_OR_RETURN(options.source, ResolveSource(options.source, options_.import_roots));
  PF_RETURN_IF_ERROR(CheckEntriesInRoots(options.source, options_.import_roots));
  fs::path removed;
  std::error_code ignored;
  Dataset dataset;
  dataset.id = id;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::UnavailableError("the server is stopping and begins no imports");
    if (const auto it = entries_.find(id); it != entries_.end()) {
      const bool replaceable = it->second.dataset.state == DatasetState::kFailed || WaitsToRetry(it->second);
      if (!replaceable) return AlreadyExistsError(id, "exists already");
      PF_ASSIGN_OR_RETURN(removed, ClearName(id));
    } else if (running_ != id && fs::exists(fs::symlink_status(files_.DatasetPath(id), ignored))) {
      return AlreadyExistsError(id,
                                absl::StrCat(files_.DatasetPath(id).string(),
                                             " is there, which the server did not make; remove it or take another id"));
    }
    dataset.options = std::move(options);
    // Whole microseconds survive every way of writing a time down.
    dataset.create_time = absl::FromUnixMicros(absl::ToUnixMicros(absl::Now()));
    PF_RETURN_IF_ERROR(files_.WriteImport(id, {dataset.create_time, dataset.options}));
    Add(dataset);
    queue_.Remove(id);  // the one before, which waited
    queue_.Add(id);
    PublishUsage();
  }
  changed_.Set();
  hub_.Notify(id.value());
  if (!removed.empty()) RemoveAll(removed).IgnoreError();  // else the next start does
  return dataset;
}

absl::StatusOr<Dataset> CatalogImpl::Get(const DatasetId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return NotFoundError(id);
  return it->second.dataset;
}

std::vector<Dataset> CatalogImpl::List() const {
  absl::MutexLock lock(&mu_);
  std::vector<Dataset> list;
  list.reserve(entries_.size());
  for (const auto& [id, entry] : entries_) list.push_back(entry.dataset);
  return list;
}

absl::StatusOr<fs::path> CatalogImpl::ClearName(const DatasetId& id) {
  // A failed import has no directory, but a dataset that could not be opened has one.
  const fs::path path = files_.DatasetPath(id);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return fs::path();
  // It may have failed for want of memory or descriptors, or for its record alone: only damage makes it worthless.
  if (absl::IsDataLoss(OpenDataset(path).status())) return files_.UnpublishDataset(id);
  PF_RETURN_IF_ERROR(files_.Quarantine(path, "is replaced by an import, but was not found damaged"));
  return fs::path();
}

absl::Status CatalogImpl::Delete(const DatasetId& id, const std::function<absl::Status()>& in_use) {
  fs::path removed;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(id);
    if (it == entries_.end()) return NotFoundError(id);
    if (in_use) PF_RETURN_IF_ERROR(in_use());
    if (IsRunning(id)) {
      PF_RETURN_IF_ERROR(files_.MarkImportDeleted(id));
      running_deleted_ = true;
      stop_running_.request_stop();
      ++counts_.cancelled;
    } else {
      // What an earlier attempt could not discard is known for the catalog's own by its record only.
      if (running_ != id) PF_RETURN_IF_ERROR(files_.DiscardDataset(id));
      PF_RETURN_IF_ERROR(files_.RemoveImport(id));
      if (queue_.Remove(id) && it->second.dataset.state == DatasetState::kImporting) ++counts_.cancelled;
      std::error_code ignored;
      if (fs::exists(files_.DatasetPath(id), ignored)) {
        PF_ASSIGN_OR_RETURN(removed, files_.UnpublishDataset(id));
      }
    }
    entries_.erase(it);
    PublishUsage();
  }
  hub_.Notify(id.value());
  return removed.empty() ? absl::OkStatus() : RemoveAll(removed);
}

absl::StatusOr<OpenedDataset> CatalogImpl::Open(const DatasetId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return NotFoundError(id);
  const Entry& entry = it->second;
  if (entry.dataset.state != DatasetState::kReady) {
    const absl::Status status = NotReadyError(entry.dataset);
    return entry.tries > 0 ? AsTransient(status) : status;
  }
  if (auto store = entry.store.Lock()) return *std::move(store);
  PF_ASSIGN_OR_RETURN(OpenedDataset store, OpenDataset(files_.DatasetPath(id)));
  entry.store = WeakDataset(store);
  PublishUsage();
  return store;
}

void CatalogImpl::PublishUsage() const {
  Usage usage;
  usage.imports = counts_;
  std::vector<WeakDataset> stores;
  for (const auto& [id, entry] : entries_) {
    ++usage.datasets[static_cast<size_t>(entry.dataset.state)];
    stores.push_back(entry.store);
    if (!entry.dataset.summary) continue;
    const bool is_graph = std::holds_alternative<GraphSummary>(*entry.dataset.summary);
    Usage::Stores& kind = is_graph ? usage.graphs : usage.graph_sets;
    ++kind.count;
    kind.bytes += StoreBytes(*entry.dataset.summary);
  }
  usage_.Publish(usage, std::move(stores));
}

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
  const std::stop_token stop = stop_running_.get_token();
  entry.dataset.retry_time = absl::InfinitePast();
  ImportRecord record{
      .create_time = entry.dataset.create_time, .options = entry.dataset.options, .starts = entry.starts};
  mu_.Unlock();
  const Stopwatch took;
  import_progress_ = 0;
  const absl::StatusOr<ImportedSummary> result = RunImport(id, record, stop);
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
}

absl::StatusOr<ImportedSummary> CatalogImpl::RunImport(const DatasetId& id, const ImportRecord& record,
                                                       const std::stop_token& stop) {
  absl::StatusOr<ImportedSummary> result =
      WithoutThrowing("the import", [&] { return ImportAndPublish(id, record, stop); });
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

absl::StatusOr<ImportedSummary> CatalogImpl::ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                                              const std::stop_token& stop) {
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
  ImportLimits limits;
  limits.threads = options_.threads;
  limits.may_read = [this](const fs::path& path) { return IsInRoots(path, options_.import_roots); };
  PF_RETURN_IF_ERROR(options_.reserve.Check());
  PF_ASSIGN_OR_RETURN(const fs::path directory, files_.BeginDataset(id));
  std::stop_source stop_importer;
  const std::stop_callback forward(stop, [&stop_importer] { stop_importer.request_stop(); });
  const RoomWatch room(RoomFor(id), directory, stop_importer);
  absl::StatusOr<ImportedSummary> summary =
      options_.importer(options, directory, observe, stop_importer.get_token(), limits);
  if (stop.stop_requested()) return absl::CancelledError("the import was cancelled");
  PF_RETURN_IF_ERROR(room.status());
  PF_RETURN_IF_ERROR(summary.status());
  PF_RETURN_IF_ERROR(room.CheckBytes());
  PF_RETURN_IF_ERROR(files_.PublishDataset(id, record));
  return summary;
}

void CatalogImpl::EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<ImportedSummary>& result,
                            absl::Duration took) {
  Entry& entry = entries_.at(id);
  Dataset& dataset = entry.dataset;
  dataset.progress = {};
  std::string error(result.status().message());
  if (result.ok()) {
    ++counts_.succeeded;
    dataset.state = DatasetState::kReady;
    dataset.summary = *result;
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
    files_.WriteImport(id, record).IgnoreError();  // as above
  } else {
    ++counts_.failed;
    dataset.state = DatasetState::kFailed;
    dataset.last_error.clear();
    entry.tries = 0;
    record.error = dataset.error = std::move(error);
    // If this fails too, the next start tries the import again, which is right when it is the disk that is full.
    files_.WriteImport(id, record).IgnoreError();
  }
  PublishUsage();
  hub_.Notify(id.value());
}

}  // namespace

absl::Status CheckImport(const DatasetId& id, const ImportOptions& options) {
  Violations violations;
  violations.AddMissing(CheckIdSyntax("dataset_id", id.value()));
  violations.AddMissing(CheckImportOptions(options));
  return violations.ToStatus();
}

absl::StatusOr<std::unique_ptr<Catalog>> Catalog::Create(CatalogOptions options) {
  auto catalog = std::make_unique<CatalogImpl>(std::move(options));
  PF_RETURN_IF_ERROR(catalog->Load());
  return catalog;
}

}  // namespace permafrost::data
