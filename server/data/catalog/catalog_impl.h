// The only implementation of Catalog. Its calls are in catalog.cc, and its import thread is in imports.cc.
// Threads: same as Catalog.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/monotonic.h"
#include "data/catalog/catalog.h"
#include "data/catalog/catalog_files.h"
#include "data/catalog/imports.h"
#include "data/store/dataset.h"

namespace permafrost::data {

// Refers to a store without keeping it open: the store stays open only while somebody uses it.
// Threads: one at a time.
class WeakDataset {
 public:
  WeakDataset() = default;
  explicit WeakDataset(const OpenedDataset& dataset) {
    std::visit([this](const auto& store) { store_ = std::weak_ptr(store); }, dataset);
  }
  // Returns the store, or nullopt if nobody has it open.
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

// The catalog's totals of all datasets, for callers that must not wait for the catalog's lock. The catalog holds its
// lock while it writes to disk.
// Threads: all methods are safe anywhere.
class PublishedUsage {
 public:
  // Publishes `usage`. Read returns it with the mapped bytes of `stores` added.
  void Publish(const Catalog::Usage& usage, std::vector<WeakDataset> stores) {
    absl::MutexLock lock(&mu_);
    usage_ = usage;
    stores_.swap(stores);
  }

  // Returns the published totals. A store that nobody uses any more does not count as mapped.
  Catalog::Usage Read() const {
    Catalog::Usage usage;
    std::vector<WeakDataset> stores;
    {
      absl::MutexLock lock(&mu_);
      usage = usage_;
      stores = stores_;
    }
    for (const WeakDataset& weak : stores) {
      if (const auto store = weak.Lock()) {
        usage.mapped_bytes += std::visit([](const auto& s) { return s->mapped_bytes(); }, *store);
      }
    }
    return usage;
  }

 private:
  mutable absl::Mutex mu_;
  Catalog::Usage usage_ ABSL_GUARDED_BY(mu_);
  std::vector<WeakDataset> stores_ ABSL_GUARDED_BY(mu_);
};

class CatalogImpl final : public Catalog {
 public:
  explicit CatalogImpl(CatalogOptions options)
      : options_(std::move(options)), files_(options_.directory, options_.warn) {}
  ~CatalogImpl() override {
    StopImports();
    if (worker_.joinable()) worker_.join();
  }

  // Loads the catalog's files and starts the import thread. Call it before any other method.
  absl::Status Load();

  absl::StatusOr<Dataset> Import(const DatasetId& id, ImportOptions options) override;
  absl::StatusOr<Dataset> Validate(const DatasetId& id, ImportOptions options) const override;
  absl::StatusOr<Dataset> Get(const DatasetId& id) const override;
  std::vector<Dataset> List() const override;
  absl::Status Delete(const DatasetId& id, const std::string& etag,
                      const std::function<absl::Status()>& in_use) override;
  absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const override {
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
  // Checks an import for all faults except those of its name, which CheckName checks. On success, options.source is
  // resolved.
  absl::Status Admit(const DatasetId& id, ImportOptions& options) const;
  // Returns the limits on what an importer may take and read.
  ImportLimits Limits() const;
  // Checks that an import may begin under this name. Returns true if the import replaces an existing entry.
  absl::StatusOr<bool> CheckName(const DatasetId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Entry {
    Dataset dataset;
    int starts = 0;  // ImportRecord::starts, while kImporting and not running
    // The number of consecutive tries that an error of the machine ended. A try imports the dataset, or opens it.
    // While a dataset waits to be opened again, its state is kFailed.
    int tries = 0;
    mutable WeakDataset store;
  };

  // Adds an imported dataset and opens it. `tries` counts the earlier failed attempts to open it.
  void AddReady(const DatasetId& id, const absl::StatusOr<ImportRecord>& record, int tries = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Add(Dataset dataset, int starts = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the import of `entry` wait as it did when the previous process ended.
  static void SetWait(const ImportWait& wait, Entry& entry);
  // Returns the time on clock_ at which an import of this record may begin.
  absl::Duration NotBefore(const absl::StatusOr<ImportRecord>& record) const;
  // If datasets/ has an entry of this name, moves the entry to .quarantine/. An import is about to take the name.
  absl::Status ClearName(const DatasetId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the running import belongs to the dataset that has this name now, and not to a deleted dataset
  // that had the name before.
  bool IsRunning(const DatasetId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return running_ == id && !running_deleted_;
  }
  // Returns true if the import of `entry` waits for its next try.
  bool WaitsToRetry(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return entry.dataset.state == DatasetState::kImporting && entry.tries > 0 && !IsRunning(entry.dataset.id);
  }
  // Publishes the totals that usage() returns. Call it after each change to the totals.
  void PublishUsage() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunImports();
  void RunNext(const DatasetId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Facts about a dataset that an import has published.
  struct Published {
    ImportedSummary summary;
    uint64_t content_checksum = 0;
  };
  // Opens the store and reads its facts. Errors: those of OpenDataset.
  absl::StatusOr<Published> ReadPublished(const DatasetId& id) const;
  // Runs one import. Returns every fault, including exceptions, as a status; after a fault, only the record of the
  // import is left on disk.
  absl::StatusOr<Published> RunImport(const DatasetId& id, const ImportRecord& record, const std::stop_token& stop);
  ImportRoom RoomFor(const DatasetId& id) const;
  // Returns the dataset that an earlier try published before the machine failed, or nullopt if there is none.
  absl::StatusOr<std::optional<Published>> FindPublished(const DatasetId& id, const ImportRecord& record) const;
  absl::StatusOr<Published> ImportAndPublish(const DatasetId& id, const ImportRecord& record,
                                             const std::stop_token& stop);
  // Records the result of a try. `took` is how long the try lasted.
  void EndImport(const DatasetId& id, ImportRecord record, const absl::StatusOr<Published>& result, absl::Duration took)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CatalogOptions options_;
  const CatalogFiles files_;
  mutable absl::Mutex mu_;
  std::map<DatasetId, Entry> entries_ ABSL_GUARDED_BY(mu_);
  ImportQueue queue_ ABSL_GUARDED_BY(mu_);             // times on clock_
  DatasetId running_ ABSL_GUARDED_BY(mu_);             // empty if none runs
  bool running_deleted_ ABSL_GUARDED_BY(mu_) = false;  // the running import was deleted; another may have its name
  std::stop_source stop_running_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  ImportCounts counts_ ABSL_GUARDED_BY(mu_);
  mutable PublishedUsage usage_;
  std::atomic<double> import_progress_ = -1;  // negative: no import runs
  const Stopwatch clock_;
  Event changed_;  // set when the worker has something to do, or must end
  ChangeHub hub_;  // declared late: destroyed before what its listeners read
  std::thread worker_;
};

}  // namespace permafrost::data
