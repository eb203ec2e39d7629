#include "graphcache/entry_set.h"

#include <algorithm>

#include "graphcache/shape_schedule.h"

namespace permafrost::graphcache {
namespace {

Action AdmitFrozenMiss(spec::OnMiss on_miss, const Lookup& lookup) {
  switch (on_miss) {
    case spec::OnMiss::kPad:
      return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
    case spec::OnMiss::kEager:
      return Action::kRunEager;
    case spec::OnMiss::kTransient:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::OnMiss::kReject:
      return Action::kReject;
  }
  return Action::kRunEager;
}

}  // namespace

Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup) {
  switch (options.policy) {
    case spec::Policy::kNever:
      return Action::kRunEager;
    case spec::Policy::kClearPerStep:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::Policy::kAlways:
    case spec::Policy::kFreeze:
      if (lookup.exact) return Action::kReplay;
      if (frozen) return AdmitFrozenMiss(options.on_miss, lookup);
      if (lookup.full) return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
      return lookup.broken ? Action::kRunEager : Action::kCaptureKeep;
  }
  return Action::kRunEager;
}

namespace {

int64_t RowsOf(const Entry* entry) { return Rows(entry->info.shape); }

}  // namespace

Entry& EntrySet::Add(std::unique_ptr<Entry> entry) {
  const auto mode = static_cast<size_t>(entry->info.mode);
  if (entry->info.dynamic) {
    dynamic_[mode] = entry.get();
  } else {
    by_key_[Key(entry->info.mode, entry->info.shape)] = entry.get();
    std::vector<Entry*>& by_rows = by_rows_[mode];
    by_rows.insert(std::ranges::upper_bound(by_rows, Rows(entry->info.shape), {}, RowsOf), entry.get());
  }
  return *entries_.emplace_back(std::move(entry));
}

Entry* EntrySet::Find(Mode mode, const BatchShape& shape) const {
  const auto it = by_key_.find(Key(mode, shape));
  return it == by_key_.end() ? nullptr : it->second;
}

Entry* EntrySet::FindCheapest(Mode mode, const BatchShape& shape) const {
  const std::vector<Entry*>& entries = by_rows_[static_cast<size_t>(mode)];
  const auto first = std::ranges::lower_bound(entries, Rows(shape), {}, RowsOf);
  const auto found = std::find_if(first, entries.end(), [&](const Entry* e) { return e->info.shape.Holds(shape); });
  return found == entries.end() ? nullptr : *found;
}

void EntrySet::Drop(Mode mode) {
  dynamic_[static_cast<size_t>(mode)] = nullptr;
  by_rows_[static_cast<size_t>(mode)].clear();
  std::erase_if(by_key_, [mode](const auto& row) { return row.first.first == mode; });
  std::erase_if(entries_, [mode](const std::unique_ptr<Entry>& entry) { return entry->info.mode == mode; });
}

}  // namespace permafrost::graphcache
