#include "data/rows/use_schedule.h"

#include <utility>

namespace permafrost::data {

UseSchedule::Batch* UseSchedule::Find(UseSlot slot) {
  const size_t ahead = BatchesBefore(slot);
  return ahead < batches_.size() && !batches_[ahead].used ? &batches_[ahead] : nullptr;
}

uint64_t UseSchedule::Announce(std::span<const NodeId> rows, std::span<const NodeId> more, const Visit& known) {
  if (batches_.size() == kUseSlots || rows.size() + more.size() >= size_t{1} << kPlaceBits) return 0;
  const uint64_t number = first_ + batches_.size();
  const UseSlot slot = SlotOf(number);
  // All memory first: what fails leaves nothing announced.
  Batch made;
  made.rows.reserve(rows.size() + more.size());
  made.after.reserve(rows.size() + more.size());
  Batch& batch = batches_.emplace_back(std::move(made));
  for (const std::span<const NodeId> part : {rows, more}) {
    for (const NodeId row : part) {
      const auto last_slot = static_cast<UseSlot>(last_[row] >> kPlaceBits);
      if (next_[row] == kNoUse) {
        next_[row] = slot;
        known(row);
      } else if (last_slot == slot) {
        continue;  // stands twice
      } else if (Batch* const before = Find(last_slot)) {
        before->after[last_[row] & ((uint32_t{1} << kPlaceBits) - 1)] = slot;
      }
      last_[row] = uint32_t{slot} << kPlaceBits | static_cast<uint32_t>(batch.rows.size());
      batch.rows.push_back(row);
      batch.after.push_back(kNoUse);
    }
  }
  return number;
}

void UseSchedule::Use(uint64_t number, const Visit& changed) {
  if (number < first_ || number >= first_ + batches_.size()) return;
  Batch& batch = batches_[number - first_];
  if (batch.used) return;
  batch.used = true;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const NodeId row = batch.rows[i];
    if (next_[row] != SlotOf(number)) continue;  // an earlier batch, announced before, uses it first
    next_[row] = Find(batch.after[i]) != nullptr ? batch.after[i] : kNoUse;
    changed(row);
  }
  std::vector<NodeId>().swap(batch.rows);
  std::vector<UseSlot>().swap(batch.after);
  while (!batches_.empty() && batches_.front().used) {
    batches_.pop_front();
    ++first_;
  }
}

}  // namespace permafrost::data
