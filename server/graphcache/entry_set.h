// Keeps the executables of a graph cache, and decides how a step is run by them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graphcache/executable.h"
#include "graphcache/findings.h"
#include "graphcache/snapshot.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// Decides how a step is run: a pure function of the policy, of what the cache holds, and of the batch's shape.
// Threads: values and a pure function.
enum class Action {
  kReplay,        // replay the executable of exactly this shape
  kReplayPadded,  // pad the batch and replay the larger executable with the fewest rows
  kCaptureKeep,   // capture this shape, keep the executable, replay it
  kCaptureDrop,   // capture this shape, replay the executable, drop it
  kRunEager,      // run the step uncaptured
  kReject,        // fail the job without running the step
};

// The part of the cache that could serve a shape.
struct Lookup {
  bool exact = false;   // an executable of exactly this shape
  bool larger = false;  // an executable that the batch fits into when it is padded
  bool broken = false;  // a graph break was found: the step cannot be captured
  bool full = false;    // as many executables are held as may be
};

// kNever and kClearPerStep take nothing from the cache, and never freeze. kAlways and kFreeze replay an executable of
// the exact shape; a new shape is captured and kept until the cache is `frozen`, and then handled as on_miss says.
// Where it is full, and not frozen, a new shape is padded, or runs eager where nothing larger is held. Where the step
// cannot be captured, kRunEager takes the place of a capture; kReject is returned all the same.
Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup);

// The executables that a graph cache holds, and which of them serves a shape.
// Threads: the device thread only. Owns every executable.
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
  // All entries, in the order in which they were added.
  const std::vector<std::unique_ptr<Entry>>& all() const { return entries_; }

 private:
  using Key = std::pair<Mode, BatchShape>;

  std::vector<std::unique_ptr<Entry>> entries_;
  std::map<Key, Entry*> by_key_;
  // Entries by Mode, ordered by their rows, then by their addition.
  std::array<std::vector<Entry*>, 2> by_rows_;
  std::array<Entry*, 2> dynamic_{};  // by Mode
};

}  // namespace permafrost::graphcache
