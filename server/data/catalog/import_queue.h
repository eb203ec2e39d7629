// The queue of datasets that the catalog's thread takes up: in the order that they came, but one that has to wait lets
// others go before it.
// Threads: one at a time; the catalog calls it under its lock.
#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "base/id.h"

namespace permafrost::data {

class ImportQueue {
 public:
  // `not_before`: by the clock that Take is told; the past by default.
  void Add(const DatasetId& id, absl::Duration not_before = -absl::InfiniteDuration());
  // False if it was not there.
  bool Remove(const DatasetId& id);
  // Takes out the first that need not wait any more. nullopt: there is none; `wait` is then how long it takes until
  // there is one (infinite: until one is added).
  std::optional<DatasetId> Take(absl::Duration now, absl::Duration& wait);

 private:
  struct Waiting {
    DatasetId id;
    absl::Duration not_before;
  };
  std::deque<Waiting> waiting_;
};

}  // namespace permafrost::data
