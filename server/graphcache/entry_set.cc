#include "graphcache/entry_set.h"

#include <algorithm>

#include "graphcache/shape_plan.h"

namespace permafrost::graphcache {
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
