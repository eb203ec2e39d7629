// A catalog in a fresh directory, with an import root beside it and sources to import.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "data/catalog/catalog.h"
#include "data/ogb_folder.h"
#include "temp_dir.h"

namespace permafrost::data {

class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() { WriteFiles(source(), SmallSet()); }

  std::filesystem::path root() const { return temp_.path() / "root"; }
  std::filesystem::path source() const { return root() / "small"; }
  std::filesystem::path directory() const { return temp_.path() / "datasets"; }
  static constexpr int kThreads = 3;
  static DatasetId Id(const char* name) { return DatasetId(name); }
  ImportOptions Options() const {
    ImportOptions options;
    options.source = source();
    return options;
  }
  std::unique_ptr<Catalog> Open(ImportFunction importer = data::Import) {
    auto catalog = Catalog::Create({.directory = directory(),
                                    .import_roots = {root()},
                                    .threads = kThreads,
                                    .warn =
                                        [this](std::string_view line) {
                                          absl::MutexLock lock(&warnings_mu_);
                                          warnings_.emplace_back(line);
                                        },
                                    .importer = std::move(importer),
                                    .first_retry = first_retry_});
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return *std::move(catalog);
  }
  // Waits until the import has ended. NotFound if the dataset was deleted.
  static absl::StatusOr<Dataset> AwaitEnd(Catalog& catalog, const DatasetId& id) {
    return Await(catalog, id, [](const Dataset& dataset) { return dataset.state != DatasetState::kImporting; });
  }
  // Waits until `wanted(dataset)` is true. NotFound if the dataset was deleted.
  template <class F>
  static absl::StatusOr<Dataset> Await(Catalog& catalog, const DatasetId& id, const F& wanted) {
    struct Signal {
      absl::Mutex mu;
      bool changed = true;
    } signal;
    const auto subscription = catalog.Subscribe(id, [&signal] {
      absl::MutexLock lock(&signal.mu);
      signal.changed = true;
    });
    for (;;) {
      {
        absl::MutexLock lock(&signal.mu, absl::Condition(&signal.changed));
        signal.changed = false;
      }
      auto dataset = catalog.Get(id);
      if (!dataset.ok() || wanted(*dataset)) return dataset;
    }
  }
  // Returns the names of the entries in datasets/ and datasets/.imports/.
  std::vector<std::string> OnDisk() const {
    std::vector<std::string> names;
    for (const std::filesystem::path& path : {directory(), directory() / ".imports"}) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().filename() != ".imports") names.push_back(entry.path().filename());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Returns a source that keeps an import busy: it has far more edges than a test would wait for.
  std::filesystem::path LargeSource() {
    Files files = SmallSet();
    files["raw/num-edge-list.csv"] = "20000000\n0\n0\n";
    std::string edges;
    for (int i = 0; i < 1 << 18; ++i) edges += "0,1\n";
    files.erase("raw/edge.csv");
    const std::string member = Gzip(edges);
    for (int i = 0; i < 76; ++i) files["raw/edge.csv.gz"] += member;
    files.erase("raw/edge-feat.csv");
    WriteFiles(root() / "large", files);
    return root() / "large";
  }
  // Waits until the import of `id` reports progress.
  static void AwaitProgress(Catalog& catalog, const DatasetId& id) {
    absl::Mutex mu;
    bool moved = false;
    const auto subscription = catalog.Subscribe(id, [&] {
      const auto dataset = catalog.Get(id);
      absl::MutexLock lock(&mu);
      moved = moved || (dataset.ok() && dataset->progress.bytes_read > 0);
    });
    absl::MutexLock lock(&mu, absl::Condition(&moved));
  }
  static absl::Status Unused() { return absl::OkStatus(); }

  std::vector<std::string> Warnings() const {
    absl::MutexLock lock(&warnings_mu_);
    return warnings_;
  }

  TempDir temp_;
  absl::Duration first_retry_ = absl::Seconds(1);

 private:
  mutable absl::Mutex warnings_mu_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(warnings_mu_);  // about moves to quarantine and imports that wait
};

}  // namespace permafrost::data
