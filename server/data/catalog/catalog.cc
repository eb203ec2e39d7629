#include "data/catalog/catalog.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/without_throwing.h"
#include "data/catalog/catalog_files.h"
#include "data/catalog/import_roots.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

absl::Status NotFound(const DatasetId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("datasets/", id.value(), ": not found")), "DATASET_NOT_FOUND",
                    {{"dataset", id.value()}});
}

absl::Status AlreadyExists(const DatasetId& id, std::string_view why) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("datasets/", id.value(), ": ", AbslView(why))),
                    "DATASET_ALREADY_EXISTS", {{"dataset", id.value()}});
}

// Starts of one import that the process may die in before it is given up.
constexpr int kMaxStarts = 3;

// Why an import of this record is not begun at the start of the process; empty if it is.
std::string WhyNotBegun(const ImportRecord& record) {
  if (!record.error.empty() || record.starts < kMaxStarts) return record.error;
  return absl::StrCat("the server died ", record.starts,
                      " times while importing it; delete it and import again to retry");
}

// A store that lives while somebody uses it.
class WeakDataset {
 public:
  WeakDataset() = default;
  explicit WeakDataset(const OpenedDataset& dataset) {
    std::visit([this](const auto& store) { store_ = std::weak_ptr(store); }, dataset);
  }
  std::optional<OpenedDataset> Lock() const {
    return std::visit(
        [](const auto& weak) -> std::optional<OpenedDataset> {
          if (auto store = weak.lock()) return store;
          return std::nullopt;
        },
        store_);
  }

 private:
  std::variant<std::weak_ptr<const GraphSet>, std::weak_ptr<const Graph>> store_;
};

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
  absl::StatusOr<OpenedDataset> Open(const DatasetId& id) const override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  uint64_t mapped_bytes() const override;
  ImportCounts import_counts() const override {
    absl::MutexLock lock(&mu_);
    return counts_;
  }
  void StopImports() override;

 private:
  struct Entry {
    Dataset dataset;
    int starts = 0;  // of ImportRecord, while kImporting and not running
    mutable WeakDataset store;
  };

  void AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Add(Dataset dataset, int starts = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the name of a failed dataset from whatever has it. Returns what is to be removed; empty: nothing.
  absl::StatusOr<fs::path> ClearName(const DatasetId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the import that runs is of the dataset that now has this name, and not of a deleted one that had it.
  bool IsRunning(const DatasetId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return running_ == id && !running_deleted_;
  }
  void RunImports();
  // Anything that goes wrong is a status, exceptions included, and leaves nothing but the record.
  absl::StatusOr<ImportedSummary> RunImport(const DatasetId& id, const ImportRecord& record,
                                            const std::stop_token& stop);
  absl::StatusOr<ImportedSummary> ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                                   const std::stop_token& stop);
  void EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<ImportedSummary>& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CatalogOptions options_;
  const CatalogFiles files_;
  mutable absl::Mutex mu_;
  std::map<DatasetId, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::deque<DatasetId> queue_ ABSL_GUARDED_BY(mu_);
  DatasetId running_ ABSL_GUARDED_BY(mu_);             // empty: none
  bool running_deleted_ ABSL_GUARDED_BY(mu_) = false;  // its dataset is gone; another may have the name
  std::stop_source stop_running_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  ImportCounts counts_ ABSL_GUARDED_BY(mu_);
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

void CatalogImpl::AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record) {
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
}

absl::Status CatalogImpl::Load() {
  PF_RETURN_IF_ERROR(files_.Prepare());
  PF_ASSIGN_OR_RETURN(const auto datasets, files_.ReadDatasets());
  PF_ASSIGN_OR_RETURN(const auto imports, files_.ReadImports());
  absl::MutexLock lock(&mu_);
  for (const auto& [id, record] : datasets) AddReady(id, record);
  for (const auto& [id, record] : imports) {
    Dataset dataset;
    dataset.id = id;
    if (record.ok()) {
      dataset.create_time = record->create_time;
      dataset.options = record->options;
    }
    dataset.error = record.ok() ? WhyNotBegun(*record) : std::string(record.status().message());
    dataset.state = dataset.error.empty() ? DatasetState::kImporting : DatasetState::kFailed;
    if (dataset.state == DatasetState::kImporting) queue_.push_back(id);
    Add(std::move(dataset), record.ok() ? record->starts : 0);
  }
  std::sort(queue_.begin(), queue_.end(), [this](const DatasetId& a, const DatasetId& b) {
    mu_.AssertHeld();
    return std::pair(entries_.at(a).dataset.create_time, a) < std::pair(entries_.at(b).dataset.create_time, b);
  });
  worker_ = std::thread([this] { RunImports(); });
  return absl::OkStatus();
}

absl::StatusOr<Dataset> CatalogImpl::Import(const DatasetId& id, ImportOptions options) {
  Violations violations;
  violations.AddMissing(CheckIdSyntax("dataset_id", id.value()));
  violations.AddMissing(CheckImportOptions(options));
  PF_RETURN_IF_ERROR(violations.ToStatus());
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
      if (it->second.dataset.state != DatasetState::kFailed) return AlreadyExists(id, "exists already");
      PF_ASSIGN_OR_RETURN(removed, ClearName(id));
    } else if (running_ != id && fs::exists(fs::symlink_status(files_.DatasetPath(id), ignored))) {
      return AlreadyExists(id, absl::StrCat(files_.DatasetPath(id).string(),
                                            " is there, which the server did not make; remove it or take another id"));
    }
    dataset.options = std::move(options);
    // Whole microseconds survive every way of writing a time down.
    dataset.create_time = absl::FromUnixMicros(absl::ToUnixMicros(absl::Now()));
    PF_RETURN_IF_ERROR(files_.WriteImport(id, {dataset.create_time, dataset.options}));
    Add(dataset);
    queue_.push_back(id);
  }
  hub_.Notify(id.value());
  if (!removed.empty()) RemoveAll(removed).IgnoreError();  // else the next start does
  return dataset;
}

absl::StatusOr<Dataset> CatalogImpl::Get(const DatasetId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return NotFound(id);
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
    if (it == entries_.end()) return NotFound(id);
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
      if (std::erase(queue_, id) > 0) ++counts_.cancelled;
      std::error_code ignored;
      if (fs::exists(files_.DatasetPath(id), ignored)) {
        PF_ASSIGN_OR_RETURN(removed, files_.UnpublishDataset(id));
      }
    }
    entries_.erase(it);
  }
  hub_.Notify(id.value());
  return removed.empty() ? absl::OkStatus() : RemoveAll(removed);
}

absl::StatusOr<OpenedDataset> CatalogImpl::Open(const DatasetId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return NotFound(id);
  const Entry& entry = it->second;
  if (entry.dataset.state != DatasetState::kReady) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "datasets/", id.value(), ": is ", AbslView(kDatasetStateNames.Name(entry.dataset.state)), ", not ready")),
        "DATASET_NOT_READY", {{"dataset", id.value()}});
  }
  if (auto store = entry.store.Lock()) return *std::move(store);
  PF_ASSIGN_OR_RETURN(OpenedDataset store, OpenDataset(files_.DatasetPath(id)));
  entry.store = WeakDataset(store);
  return store;
}

uint64_t CatalogImpl::mapped_bytes() const {
  absl::MutexLock lock(&mu_);
  uint64_t bytes = 0;
  for (const auto& [id, entry] : entries_) {
    const auto store = entry.store.Lock();
    if (store) bytes += std::visit([](const auto& s) { return s->mapped_bytes(); }, *store);
  }
  return bytes;
}

void CatalogImpl::StopImports() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  stop_running_.request_stop();
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return running_.empty(); };
  mu_.Await(absl::Condition(&idle));
}

void CatalogImpl::RunImports() {
  absl::MutexLock lock(&mu_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopped_ || !queue_.empty(); };
  for (;;) {
    mu_.Await(absl::Condition(&has_work));
    if (stopped_) return;
    const DatasetId id = queue_.front();
    queue_.pop_front();
    running_ = id;
    running_deleted_ = false;
    stop_running_ = std::stop_source();
    const std::stop_token stop = stop_running_.get_token();
    const Entry& entry = entries_.at(id);
    ImportRecord record{
        .create_time = entry.dataset.create_time, .options = entry.dataset.options, .starts = entry.starts};
    mu_.Unlock();
    const absl::StatusOr<ImportedSummary> result = RunImport(id, record, stop);
    mu_.Lock();
    if (running_deleted_) {
      mu_.Unlock();
      files_.EndDeletedImport(id).IgnoreError();  // else the next start does
      mu_.Lock();
    } else {
      EndImport(id, std::move(record), result);
    }
    running_ = DatasetId();
  }
}

absl::StatusOr<ImportedSummary> CatalogImpl::RunImport(const DatasetId& id, const ImportRecord& record,
                                                       const std::stop_token& stop) {
  absl::StatusOr<ImportedSummary> result =
      WithoutThrowing("the import", [&] { return ImportAndPublish(id, record, stop); });
  if (!result.ok()) files_.DiscardDataset(id).IgnoreError();  // else the next start does
  return result;
}

absl::StatusOr<ImportedSummary> CatalogImpl::ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                                              const std::stop_token& stop) {
  const auto observe = [this, &id](const ImportProgress& progress) {
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
  PF_ASSIGN_OR_RETURN(const fs::path directory, files_.BeginDataset(id));
  PF_ASSIGN_OR_RETURN(ImportedSummary summary, options_.importer(options, directory, observe, stop, limits));
  if (stop.stop_requested()) return absl::CancelledError("the import was cancelled");
  PF_RETURN_IF_ERROR(files_.PublishDataset(id, record));
  return summary;
}

void CatalogImpl::EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<ImportedSummary>& result) {
  Entry& entry = entries_.at(id);
  entry.dataset.progress = {};
  if (result.ok()) {
    ++counts_.succeeded;
    entry.dataset.state = DatasetState::kReady;
    entry.dataset.summary = *result;
    files_.RemoveImport(id).IgnoreError();  // else the next start does
  } else if (absl::IsCancelled(result.status())) {
    // The server stops, and the record lets it begin anew. If this fails, a start is counted that was none.
    files_.WriteImport(id, record).IgnoreError();
  } else {
    ++counts_.failed;
    entry.dataset.state = DatasetState::kFailed;
    entry.dataset.error = std::string(result.status().message());
    record.error = entry.dataset.error;
    // If this fails too, the next start tries the import again, which is right when it is the disk that is full.
    files_.WriteImport(id, record).IgnoreError();
  }
  hub_.Notify(id.value());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Catalog>> Catalog::Create(CatalogOptions options) {
  auto catalog = std::make_unique<CatalogImpl>(std::move(options));
  PF_RETURN_IF_ERROR(catalog->Load());
  return catalog;
}

}  // namespace permafrost::data
