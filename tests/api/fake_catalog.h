// A Catalog in memory, which a test drives by hand, and a graph for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "counted_hub.h"
#include "data/catalog/catalog.h"

namespace permafrost::api {

// A graph in memory: node 0 is the target of nodes 1, 2 and 3, weights 1, 2 and 3. Its verification goes as a test
// says.
class FakeGraph : public data::Graph {
 public:
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  using Verification = std::function<absl::Status(const Progress&)>;

  FakeGraph() {
    view_.nodes = 4;
    view_.edges = 3;
    view_.in.offsets = data::Column<uint64_t>(in_offsets_);
    view_.in.neighbors = data::Column<data::NodeId>(in_neighbors_);
    view_.in.weights = data::Column<float>(weights_);
    view_.out.offsets = data::Column<uint64_t>(out_offsets_);
    view_.out.neighbors = data::Column<data::NodeId>(out_neighbors_);
  }
  void SetVerification(Verification verification) { verification_ = std::move(verification); }

  const data::GraphSummary& summary() const override { return summary_; }
  const data::GraphView& view() const override { return view_; }
  const data::NodeNames& names() const override { return names_; }
  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status VerifyAll(const Progress& progress) const override { return verification_(progress); }
  uint64_t mapped_bytes() const override { return 0; }

 private:
  const std::vector<uint64_t> in_offsets_{0, 3, 3, 3, 3}, out_offsets_{0, 0, 1, 2, 3};
  const std::vector<data::NodeId> in_neighbors_{1, 2, 3}, out_neighbors_{0, 0, 0};
  const std::vector<float> weights_{1, 2, 3};
  data::GraphSummary summary_;
  data::GraphView view_;
  data::NodeNames names_;
  Verification verification_ = [](const Progress&) { return absl::OkStatus(); };
};

class FakeCatalog : public data::Catalog {
 public:
  // Sets what Open finds.
  void SetOpened(const std::string& id, data::OpenedDataset opened) {
    absl::MutexLock lock(&mu_);
    opened_[id] = std::move(opened);
  }
  void Put(data::Dataset dataset) {
    const std::string key = dataset.id.value();
    {
      absl::MutexLock lock(&mu_);
      datasets_[key] = std::move(dataset);
    }
    hub_.Notify(key);
  }
  CountedHub& hub() { return hub_; }
  // Sets what Delete waits for, as for a slow disk.
  void SetDeleteWait(std::function<void()> wait) {
    absl::MutexLock lock(&mu_);
    delete_wait_ = std::move(wait);
  }

  absl::StatusOr<data::Dataset> Import(const DatasetId& id, data::ImportOptions options) override {
    data::Dataset dataset;
    dataset.id = id;
    dataset.uid = "imported";
    dataset.options = std::move(options);
    Put(dataset);
    return dataset;
  }
  absl::StatusOr<data::Dataset> Validate(const DatasetId& id, data::ImportOptions options) const override {
    if (options.source == "/missing") return absl::NotFoundError("/missing: not found");
    data::Dataset dataset;
    dataset.id = id;
    dataset.options = std::move(options);
    return dataset;
  }
  absl::StatusOr<data::Dataset> Get(const DatasetId& id) const override {
    absl::MutexLock lock(&mu_);
    const auto it = datasets_.find(id.value());
    if (it == datasets_.end()) return NotFound(id);
    return it->second;
  }
  std::vector<data::Dataset> List() const override {
    absl::MutexLock lock(&mu_);
    std::vector<data::Dataset> all;
    all.reserve(datasets_.size());
    for (const auto& [id, dataset] : datasets_) all.push_back(dataset);
    return all;
  }
  using data::Catalog::Delete;
  absl::Status Delete(const DatasetId& id, const std::string& etag,
                      const std::function<absl::Status()>& in_use) override {
    std::function<void()> wait;
    {
      absl::MutexLock lock(&mu_);
      wait = delete_wait_;
    }
    if (wait) wait();
    {
      absl::MutexLock lock(&mu_);
      if (datasets_.count(id.value()) == 0) return NotFound(id);
      if (!etag.empty() && etag != data::EtagOf(datasets_[id.value()])) {
        return WithReason(absl::AbortedError("has another etag"), "ETAG_MISMATCH");
      }
      PF_RETURN_IF_ERROR(in_use());
      datasets_.erase(id.value());
    }
    hub_.Notify(id.value());
    return absl::OkStatus();
  }
  absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const override { return source; }
  absl::StatusOr<data::OpenedDataset> Open(const DatasetId& id) const override {
    absl::MutexLock lock(&mu_);
    const auto it = opened_.find(id.value());
    if (it == opened_.end()) return NotFound(id);
    return it->second;
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  Usage usage() const override {
    Usage usage;
    for (const data::Dataset& dataset : List()) ++usage.datasets[static_cast<size_t>(dataset.state)];
    return usage;
  }
  void StopImports() override {}

 private:
  static absl::Status NotFound(const DatasetId& id) {
    return WithReason(absl::NotFoundError("dataset " + id.value() + " does not exist"), "DATASET_NOT_FOUND");
  }

  CountedHub hub_;
  mutable absl::Mutex mu_;
  std::map<std::string, data::Dataset> datasets_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, data::OpenedDataset> opened_ ABSL_GUARDED_BY(mu_);
  std::function<void()> delete_wait_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::api
