#include "data/catalog/import_queue.h"

#include <algorithm>
#include <utility>

namespace permafrost::data {

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

}  // namespace permafrost::data
