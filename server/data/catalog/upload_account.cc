#include "data/catalog/upload_account.h"

namespace permafrost::data {

void UploadAccount::Put(const UploadId& id, uint64_t declared, uint64_t received) {
  const absl::MutexLock lock(&mu_);
  records_[id] = {.declared = declared, .received = received, .sending = false, .since_use = Stopwatch()};
}

void UploadAccount::Erase(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  records_.erase(id);
}

void UploadAccount::SetReceived(const UploadId& id, uint64_t received) {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  if (it == records_.end()) return;
  it->second.received = received;
  it->second.since_use.Restart();
}

void UploadAccount::SetSending(const UploadId& id, bool sending) {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  if (it == records_.end()) return;
  it->second.sending = sending;
  // Not when it ends: a call that sent nothing for minutes keeps no room for as long again.
  if (sending) it->second.since_use.Restart();
}

void UploadAccount::Use(const UploadId& id) {
  const absl::MutexLock lock(&mu_);
  if (const auto it = records_.find(id); it != records_.end()) it->second.since_use.Restart();
}

std::optional<UploadAccount::Entry> UploadAccount::Find(const UploadId& id) const {
  const absl::MutexLock lock(&mu_);
  const auto it = records_.find(id);
  return it == records_.end() ? std::nullopt : std::optional(Of(it->second));
}

std::map<UploadId, UploadAccount::Entry> UploadAccount::All() const {
  const absl::MutexLock lock(&mu_);
  std::map<UploadId, Entry> all;
  for (const auto& [id, record] : records_) all[id] = Of(record);
  return all;
}

UploadAccount::Totals UploadAccount::totals() const {
  const absl::MutexLock lock(&mu_);
  Totals totals;
  for (const auto& [id, record] : records_) {
    ++totals.uploads;
    totals.received += record.received;
    totals.counted += Of(record).counted;
  }
  return totals;
}

uint64_t UploadAccount::CountedBeside(const UploadId& id) const {
  const absl::MutexLock lock(&mu_);
  uint64_t counted = 0;
  for (const auto& [other, record] : records_) counted += other == id ? 0 : Of(record).counted;
  return counted;
}

UploadAccount::Entry UploadAccount::Of(const Record& record) const {
  const absl::Duration idle = record.since_use.Elapsed();
  return {.declared = record.declared,
          .received = record.received,
          .counted = record.sending || idle < keep_room_ ? record.declared : record.received,
          .sending = record.sending,
          .idle = idle};
}

}  // namespace permafrost::data
