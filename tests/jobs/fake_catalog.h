// A catalog that keeps datasets and their stores in memory.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/change_hub.h"
#include "base/status.h"
#include "data/catalog/catalog.h"

namespace permafrost::jobs {

class FakeGraphSet : public data::GraphSet {
 public:
  const data::GraphSetSummary& summary() const override { return summary_; }
  uint64_t checksum() const override { return 0; }
  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override { return Empty(); }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override { return Empty(); }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override { return Empty(); }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override { return Empty(); }
  absl::StatusOr<data::FeatureTable> node_features() const override { return Empty(); }
  absl::StatusOr<data::FeatureTable> edge_features() const override { return Empty(); }
  absl::StatusOr<std::span<const float>> labels() const override { return Empty(); }
  absl::StatusOr<std::span<const uint32_t>> split(data::Split) const override { return Empty(); }
  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t, uint64_t)>&) const override { return Empty(); }
  uint64_t mapped_bytes() const override { return 0; }

 private:
  static absl::Status Empty() { return absl::UnimplementedError("a fake set has no graphs"); }
  data::GraphSetSummary summary_;
};

// A graph in memory: edges of weights 1, 2 and 3 lead from nodes 1, 2 and 3 to node 0. The test scripts its
// verification.
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
  void Put(data::Dataset dataset) {
    const DatasetId id = dataset.id;
    {
      absl::MutexLock lock(&mu_);
      datasets_[id] = std::move(dataset);
    }
    hub_.Notify(id.value());
  }
  void Put(const std::string& id, data::DatasetState state = data::DatasetState::kReady, std::string error = "") {
    data::Dataset dataset;
    dataset.id = DatasetId(id);
    dataset.uid = "of " + id + " " + std::to_string(++put_);
    dataset.state = state;
    dataset.error = std::move(error);
    if (state == data::DatasetState::kReady) dataset.summary = data::GraphSetSummary();
    Put(std::move(dataset));
  }
  // Adds a READY dataset that holds one large graph.
  void PutGraph(const std::string& id, const data::GraphSummary& summary) {
    Put(id);
    absl::MutexLock lock(&mu_);
    datasets_[DatasetId(id)].summary = summary;
  }
  // Adds a READY dataset with the given store.
  void PutStore(const std::string& id, data::OpenedDataset store) {
    Put(id);
    absl::MutexLock lock(&mu_);
    stores_[DatasetId(id)] = std::move(store);
  }
  void Remove(const std::string& id) {
    absl::MutexLock lock(&mu_);
    datasets_.erase(DatasetId(id));
  }
  // Sets the error that Open returns for every dataset. Call it before a server starts.
  void SetOpenError(absl::Status error) { open_error_ = std::move(error); }
  // Called by Get before it answers, for instance to simulate a deletion at that moment.
  void OnGet(std::function<void()> hook) {
    absl::MutexLock lock(&mu_);
    on_get_ = std::move(hook);
  }
  // Called by Resolve before it answers, for instance to simulate a slow disk.
  void OnResolve(std::function<void()> hook) { on_resolve_ = std::move(hook); }

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
    std::function<void()> on_get;
    {
      absl::MutexLock lock(&mu_);
      on_get = on_get_;
    }
    if (on_get) on_get();
    absl::MutexLock lock(&mu_);
    if (const auto it = datasets_.find(id); it != datasets_.end()) return it->second;
    return NotFound(id);
  }
  std::vector<data::Dataset> List() const override {
    absl::MutexLock lock(&mu_);
    std::vector<data::Dataset> all;
    all.reserve(datasets_.size());
    for (const auto& [id, dataset] : datasets_) all.push_back(dataset);
    return all;
  }
  absl::Status Delete(const DatasetId& id, const std::string& etag,
                      const std::function<absl::Status()>& in_use) override {
    {
      absl::MutexLock lock(&mu_);
      const auto it = datasets_.find(id);
      if (it == datasets_.end()) return NotFound(id);
      if (!etag.empty() && etag != data::EtagOf(it->second)) {
        return WithReason(absl::AbortedError("has another etag"), "ETAG_MISMATCH");
      }
      PF_RETURN_IF_ERROR(in_use());
      datasets_.erase(it);
    }
    hub_.Notify(id.value());
    return absl::OkStatus();
  }
  absl::StatusOr<data::OpenedDataset> Open(const DatasetId& id) const override {
    PF_ASSIGN_OR_RETURN(const data::Dataset dataset, Get(id));
    PF_RETURN_IF_ERROR(open_error_);
    absl::MutexLock lock(&mu_);
    if (const auto it = stores_.find(id); it != stores_.end()) return it->second;
    if (dataset.summary && std::holds_alternative<data::GraphSummary>(*dataset.summary)) return graph_;
    return graphs_;
  }
  absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const override {
    if (on_resolve_) on_resolve_();
    if (source.string().starts_with(root_)) return source;
    return WithReason(absl::PermissionDeniedError(source.string() + " is outside"), "PATH_OUTSIDE_IMPORT_ROOTS");
  }
  // Makes Resolve refuse every path that does not begin with `root`.
  void SetRoot(std::string root) { root_ = std::move(root); }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  Usage usage() const override {
    Usage usage;
    for (const data::Dataset& dataset : List()) ++usage.datasets[static_cast<size_t>(dataset.state)];
    return usage;
  }
  void StopImports() override {}

  const std::shared_ptr<const data::GraphSet>& graphs() const { return graphs_; }
  const std::shared_ptr<const data::Graph>& graph() const { return graph_; }

 private:
  static absl::Status NotFound(const DatasetId& id) {
    return WithReason(absl::NotFoundError("dataset " + id.value() + " does not exist"), "DATASET_NOT_FOUND");
  }

  ChangeHub hub_{absl::ZeroDuration()};
  absl::Status open_error_;
  const std::shared_ptr<const data::GraphSet> graphs_ = std::make_shared<FakeGraphSet>();
  const std::shared_ptr<const data::Graph> graph_ = std::make_shared<FakeGraph>();
  mutable absl::Mutex mu_;
  std::map<DatasetId, data::Dataset> datasets_ ABSL_GUARDED_BY(mu_);
  std::map<DatasetId, data::OpenedDataset> stores_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_get_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> put_ = 0;
  std::function<void()> on_resolve_;
  std::string root_ = "/";
};

}  // namespace permafrost::jobs
