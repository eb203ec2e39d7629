// The executables that a graph cache holds, and which of them serves a shape.
// Threads: the device thread only. Owns every executable.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graphcache/cause.h"
#include "graphcache/executable.h"
#include "graphcache/snapshot.h"

namespace permafrost::graphcache {

struct Entry {
  EntryInfo info;
  std::unique_ptr<Executable> executable;  // nullptr: awaits its recapture, or could not be captured again
  bool awaits_recapture = false;
  Cause recapture_cause = Cause::kResume;
};

class EntrySet {
 public:
  Entry& Add(std::unique_ptr<Entry> entry);
  // Returns the entry of exactly this shape; nullptr: there is none.
  Entry* Find(Mode mode, const BatchShape& shape) const;
  // The one of the fewest rows that holds `shape`.
  Entry* FindCheapest(Mode mode, const BatchShape& shape) const;
  // The one for every shape, which none of the others finds.
  Entry* FindDynamic(Mode mode) const { return dynamic_[static_cast<size_t>(mode)]; }
  void Drop(Mode mode);
  // In the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& all() const { return entries_; }

 private:
  using Key = std::pair<Mode, BatchShape>;

  std::vector<std::unique_ptr<Entry>> entries_;
  std::map<Key, Entry*> by_key_;
  // By Mode, in the order of their rows, then of their addition.
  std::array<std::vector<Entry*>, 2> by_rows_;
  std::array<Entry*, 2> dynamic_{};  // by Mode
};

}  // namespace permafrost::graphcache
