#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/catalog/catalog_impl.h"
#include "data/source/import_options.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Returns NotFound with the reason DATASET_NOT_FOUND.
absl::Status NotFoundError(const DatasetId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("datasets/", id.value(), ": not found")), "DATASET_NOT_FOUND",
                    {{"dataset", id.value()}});
}

// Returns AlreadyExists with the reason DATASET_ALREADY_EXISTS.
absl::Status AlreadyExistsError(const DatasetId& id, std::string_view why) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("datasets/", id.value(), ": ", AbslView(why))),
                    "DATASET_ALREADY_EXISTS", {{"dataset", id.value()}});
}

// Returns FailedPrecondition with the reason DATASET_NOT_READY, the dataset's state and its error.
absl::Status NotReadyError(const Dataset& dataset) {
  const std::string& id = dataset.id.value();
  return WithReason(absl::FailedPreconditionError(
                        absl::StrCat("datasets/", id, ": is ", AbslView(kDatasetStateNames.Name(dataset.state)),
                                     ", not ready", dataset.error.empty() ? "" : ": ", dataset.error)),
                    "DATASET_NOT_READY", {{"dataset", id}});
}

// Returns Aborted with the reason ETAG_MISMATCH.
absl::Status EtagError(const Dataset& dataset, std::string_view wanted) {
  const std::string& id = dataset.id.value();
  return WithReason(absl::AbortedError(absl::StrCat("datasets/", id, ": has changed since: its etag is ",
                                                    EtagOf(dataset), ", not ", AbslView(wanted))),
                    "ETAG_MISMATCH", {{"dataset", id}});
}

// Copies the fields of the record. If the record cannot be read, the uid is made from the default create_time, which
// no dataset with a readable record has.
void SetRecorded(const absl::StatusOr<ImportRecord>& record, Dataset& dataset) {
  if (!record.ok()) {
    dataset.uid = DatasetUidOfTime(dataset.create_time);
    return;
  }
  dataset.create_time = record->create_time;
  dataset.uid = record->uid;
  dataset.options = record->options;
}

}  // namespace

void CatalogImpl::Add(Dataset dataset, int starts) {
  const DatasetId id = dataset.id;
  Entry entry;
  entry.dataset = std::move(dataset);
  entry.starts = starts;
  entries_.insert_or_assign(id, std::move(entry));
}

void CatalogImpl::SetWait(const ImportWait& wait, Entry& entry) {
  entry.tries = wait.tries;
  entry.dataset.last_error = wait.error;
  entry.dataset.retry_time = wait.retry_time;
}

absl::Duration CatalogImpl::NotBefore(const absl::StatusOr<ImportRecord>& record) const {
  const absl::Duration now = clock_.Elapsed();
  if (!record.ok() || record->wait.retry_time == absl::InfinitePast()) return now;
  return now + std::clamp(record->wait.retry_time - absl::Now(), absl::ZeroDuration(), record->wait.delay);
}

void CatalogImpl::AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record, int tries) {
  Dataset dataset;
  dataset.id = id;
  const auto store = OpenDataset(files_.DatasetPath(id));
  const absl::Status status = record.ok() ? store.status() : record.status();
  SetRecorded(record, dataset);
  dataset.state = status.ok() ? DatasetState::kReady : DatasetState::kFailed;
  dataset.error = std::string(status.message());
  if (status.ok()) {
    dataset.summary = SummaryOf(*store);
    dataset.content_checksum = ContentChecksumOf(*store);
  }
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
    SetRecorded(record, dataset);
    // Older versions stored errors at full length.
    dataset.error =
        CutMessage(record.ok() ? WhyNotBegun(*record) : std::string(record.status().message()), kMaxMessageBytes);
    dataset.state = dataset.error.empty() ? DatasetState::kImporting : DatasetState::kFailed;
    const bool is_wanted = dataset.state == DatasetState::kImporting;
    if (is_wanted) wanted.emplace_back(dataset.create_time, id);
    Add(std::move(dataset), record.ok() ? record->starts : 0);
    if (is_wanted && record.ok()) SetWait(record->wait, entries_.at(id));
  }
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [time, id] : wanted) queue_.Add(id, NotBefore(imports.at(id)));
  PublishUsage();
  worker_ = std::thread([this] { RunImports(); });
  return absl::OkStatus();
}

absl::StatusOr<Dataset> CatalogImpl::Import(const DatasetId& id, ImportOptions options) {
  PF_RETURN_IF_ERROR(Admit(id, options));
  Dataset dataset;
  dataset.id = id;
  {
    absl::MutexLock lock(&mu_);
    PF_ASSIGN_OR_RETURN(const bool replaces, CheckName(id));
    if (replaces) PF_RETURN_IF_ERROR(ClearName(id));
    dataset.options = std::move(options);
    // Whole microseconds survive every representation of a time.
    dataset.create_time = absl::FromUnixMicros(absl::ToUnixMicros(absl::Now()));
    dataset.uid = MakeDatasetUid();
    PF_RETURN_IF_ERROR(
        files_.WriteImport(id, {.create_time = dataset.create_time, .uid = dataset.uid, .options = dataset.options}));
    Add(dataset);
    queue_.Remove(id);  // an earlier import of this name may wait in the queue
    queue_.Add(id);
    PublishUsage();
  }
  changed_.Set();
  hub_.Notify(id.value());
  return dataset;
}

absl::StatusOr<Dataset> CatalogImpl::Validate(const DatasetId& id, ImportOptions options) const {
  PF_RETURN_IF_ERROR(Admit(id, options));
  {
    absl::MutexLock lock(&mu_);
    PF_RETURN_IF_ERROR(CheckName(id).status());
  }
  PF_RETURN_IF_ERROR(options_.checker(options, Limits()));
  Dataset dataset;
  dataset.id = id;
  dataset.create_time = absl::FromUnixMicros(absl::ToUnixMicros(absl::Now()));
  dataset.options = std::move(options);
  return dataset;
}

absl::Status CatalogImpl::Admit(const DatasetId& id, ImportOptions& options) const {
  PF_RETURN_IF_ERROR(CheckImport(id, options));
  PF_RETURN_IF_ERROR(CheckDatasetBytes(RoomFor(id), 1));
  PF_ASSIGN_OR_RETURN(options.source, ResolveSource(options.source, options_.import_roots));
  return CheckEntriesInRoots(options.source, options_.import_roots);
}

absl::StatusOr<bool> CatalogImpl::CheckName(const DatasetId& id) const {
  if (stopped_) return absl::UnavailableError("the server is stopping and begins no imports");
  std::error_code ignored;
  if (const auto it = entries_.find(id); it != entries_.end()) {
    const bool replaceable = it->second.dataset.state == DatasetState::kFailed || WaitsToRetry(it->second);
    if (!replaceable) return AlreadyExistsError(id, "exists already");
    return true;
  }
  if (running_ != id && fs::exists(fs::symlink_status(files_.DatasetPath(id), ignored))) {
    return AlreadyExistsError(id, absl::StrCat(files_.DatasetPath(id).string(),
                                               " is there, which the server did not make; remove it or take another "
                                               "id"));
  }
  return false;
}

ImportLimits CatalogImpl::Limits() const {
  ImportLimits limits;
  limits.threads = options_.threads;
  limits.own_files = options_.own_files;
  limits.may_read = [this](const fs::path& path) { return CheckInRoots(path, options_.import_roots); };
  return limits;
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

absl::Status CatalogImpl::ClearName(const DatasetId& id) {
  // A failed import has no directory, but a dataset that could not be opened has one. The directory is not removed,
  // since a newer version may be able to read the store, or a user may want the rest of a damaged store.
  const fs::path path = files_.DatasetPath(id);
  std::error_code ignored;
  return fs::exists(path, ignored) ? files_.Quarantine(path, "is replaced by an import") : absl::OkStatus();
}

absl::Status CatalogImpl::Delete(const DatasetId& id, const std::string& etag,
                                 const std::function<absl::Status()>& in_use) {
  fs::path removed;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(id);
    if (it == entries_.end()) return NotFoundError(id);
    if (!etag.empty() && etag != EtagOf(it->second.dataset)) return EtagError(it->second.dataset, etag);
    if (in_use) PF_RETURN_IF_ERROR(in_use());
    if (IsRunning(id)) {
      PF_RETURN_IF_ERROR(files_.MarkImportDeleted(id));
      running_deleted_ = true;
      stop_running_.request_stop();
      ++counts_.cancelled;
    } else {
      // An earlier try may have failed to discard its files. They are discarded before the record is removed, since
      // only the record proves that they are the catalog's own.
      if (running_ != id) PF_RETURN_IF_ERROR(files_.DiscardDataset(id));
      PF_RETURN_IF_ERROR(files_.RemoveImport(id));
      if (queue_.Remove(id) && it->second.dataset.state == DatasetState::kImporting) ++counts_.cancelled;
      std::error_code ignored;
      if (fs::exists(files_.DatasetPath(id), ignored)) {
        PF_ASSIGN_OR_RETURN(removed, files_.UnpublishDataset(id));
      } else {
        // An earlier attempt may have renamed the directory, and failed before the rename was on disk.
        PF_RETURN_IF_ERROR(SyncDirectory(options_.directory));
      }
    }
    entries_.erase(it);
    PublishUsage();
  }
  hub_.Notify(id.value());
  if (removed.empty()) return absl::OkStatus();
  // The dataset is gone even if its files remain; the next start removes them or moves them to .quarantine/. If an
  // error were returned, the deletion would look undone, and a repeated call would find no dataset.
  if (const absl::Status bytes = RemoveAll(removed); !bytes.ok() && options_.warn) {
    options_.warn(absl::StrCat("what dataset ", id.value(), " left in ", removed.string(),
                               " is looked at again at the next start: ", bytes.message()));
  }
  return absl::OkStatus();
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
  if (auto store = entry.store.Lock()) {
    // A new mapping may be able to read what this mapping could not.
    const absl::Status intact = std::visit([](const auto& s) { return s->CheckIntact(); }, *store);
    if (!IsTransient(intact)) return *std::move(store);
  }
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
    if (entry.dataset.state == DatasetState::kImporting && !IsRunning(id)) ++usage.imports_waiting;
    stores.push_back(entry.store);
    if (!entry.dataset.summary) continue;
    const bool is_graph = std::holds_alternative<GraphSummary>(*entry.dataset.summary);
    Usage::Stores& kind = is_graph ? usage.graphs : usage.graph_sets;
    ++kind.count;
    kind.bytes += StoreBytes(*entry.dataset.summary);
  }
  usage_.Publish(usage, std::move(stores));
}

bool Catalog::ImportsFrom(const fs::path& folder) const {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(folder, error);
  const std::vector<Dataset> datasets = List();
  return std::any_of(datasets.begin(), datasets.end(), [&](const Dataset& dataset) {
    if (dataset.state != DatasetState::kImporting) return false;
    if (error) return true;  // the path cannot be resolved just now, so an import may read it
    const fs::path& source = dataset.options.source;
    return std::mismatch(resolved.begin(), resolved.end(), source.begin(), source.end()).first == resolved.end();
  });
}

std::string EtagOf(const Dataset& dataset) {
  return HashHex(Hash64(absl::StrCat(dataset.uid, " ", absl::ToUnixMicros(dataset.create_time), " ",
                                     AbslView(kDatasetStateNames.Name(dataset.state)), " ", dataset.error)));
}

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
