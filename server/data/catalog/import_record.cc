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

namespace permafrost::data {
namespace {

struct RecordSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<ImportRecord>& r) {
    auto& options = r.options;
    a("create_time", r.create_time);
    a("uid", r.uid);
    std::string source = options.source.string();
    a("source", source);
    if constexpr (!std::is_const_v<typename A::template Visited<ImportRecord>>) options.source = source;
    a("format", options.format, kImportFormatNames);
    // Older versions wrote this field: they always added inverse edges or never did.
    std::optional<bool> add_inverse_edges;
    if constexpr (!std::is_const_v<typename A::template Visited<ImportRecord>>) {
      a("add_inverse_edges", add_inverse_edges);
      if (add_inverse_edges) options.inverse_edges = *add_inverse_edges ? InverseEdges::kAdd : InverseEdges::kKeep;
    }
    a("inverse_edges", options.inverse_edges, kInverseEdgesNames);
    a("coalesce", options.coalesce);
    a("keep_out_edges", options.keep_out_edges);
    a("split", options.split);
    a("split_seed", options.split_seed);
    a("train_fraction", options.train_fraction);
    a("valid_fraction", options.valid_fraction);
    a("edge_list", options.edge_list);
    a("tu", options.tu);
    a("node_features", options.node_features, kNodeFeatureChoiceNames);
    a("feature_type", options.feature_type, kFeatureTypeNames);
    a("order", options.order, kNodeOrderNames);
    a("memory_bytes", options.memory_bytes);
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
  template <class A>
  static void Fields(A& a, typename A::template Visited<TuOptions>& tu) {
    a("node_features", tu.node_features, kTuNodeFeaturesNames);
    a("one_hot", tu.one_hot);
    a("max_degree", tu.max_degree);
  }
  template <class A>
  static void Fields(A& a, typename A::template Visited<EdgeListOptions>& e) {
    a("node_ids", e.node_ids, kNodeIdsNames);
    a("columns", e.columns, kEdgeColumnNames);
    a("header", e.header, kHeaderNames);
    // Characters are stored as numbers, because one by itself may be no UTF-8.
    a("delimiter", e.delimiter);
    a("comment", e.comment);
    a("quote", e.quote);
    a("num_nodes", e.num_nodes);
  }
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
