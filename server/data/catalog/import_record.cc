#include "data/catalog/import_record.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "spec/stored_fields.h"

namespace permafrost::data {
namespace {

struct RecordSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportRecord>& r) {
    a("create_time", r.create_time);
    a("uid", r.uid);
    if constexpr (!std::is_const_v<typename A::template Visited<ImportRecord>>) {
      // Older versions wrote this field: they always added inverse edges or never did.
      std::optional<bool> add_inverse_edges;
      a("add_inverse_edges", add_inverse_edges);
      if (add_inverse_edges) r.options.inverse_edges = *add_inverse_edges ? InverseEdges::kAdd : InverseEdges::kKeep;
    }
    spec::StoredFields(a, r.options);
    a("error", r.error);
    a("starts", r.starts);
    a("wait", r.wait);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportWait>& w) {
    a("tries", w.tries);
    a("error", w.error);
    a("retry_time", w.retry_time);
    a("delay", w.delay);
  }
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& options) { spec::StoredFields(a, options); }
};

// Starts of one import that the process may die in before it is given up.
constexpr int kMaxStarts = 3;

}  // namespace

std::string WhyNotBegun(const ImportRecord& record) {
  if (!record.error.empty() || record.starts < kMaxStarts) return record.error;
  return absl::StrCat("the server died ", record.starts,
                      " times while importing it; delete it and import again to retry");
}

std::string MakeDatasetUid() {
  std::random_device random;
  std::uniform_int_distribution<uint64_t> bits;
  return HashHex(bits(random)) + HashHex(bits(random));
}

std::string DatasetUidOfTime(absl::Time create_time) { return absl::StrCat(absl::ToUnixMicros(create_time)); }

std::string RecordToJson(const ImportRecord& record) { return WriteJson<RecordSchema>(record) + "\n"; }

absl::StatusOr<ImportRecord> RecordFromJson(std::string_view text) {
  auto record = ReadJson<RecordSchema, ImportRecord>("import record", std::string(text));
  if (record.ok() && record->create_time == absl::InfinitePast()) {
    return absl::DataLossError("import record: create_time: is missing");
  }
  if (record.ok() && record->options.source.empty()) return absl::DataLossError("import record: source: is missing");
  if (record.ok() && record->uid.empty()) record->uid = DatasetUidOfTime(record->create_time);
  return record;
}

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
