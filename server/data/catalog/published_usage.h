// The catalog's totals of all datasets, for callers that must not wait for its lock, which is held while the disk is
// written.
// Threads: all methods are safe anywhere.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "data/catalog/catalog.h"
#include "data/catalog/weak_dataset.h"

namespace permafrost::data {

class PublishedUsage {
 public:
  // `usage` but for mapped_bytes, which are those of `stores`.
  void Publish(const Catalog::Usage& usage, std::vector<WeakDataset> stores) {
    absl::MutexLock lock(&mu_);
    usage_ = usage;
    stores_.swap(stores);
  }

  // A store that nobody uses any more counts no longer.
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

}  // namespace permafrost::data
