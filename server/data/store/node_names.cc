#include "data/store/node_names.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

// The text of a row; nullopt where it cannot be read.
std::optional<std::string_view> TextOf(const NodeNames& names, NodeId row) {
  if (!names.offsets.Touch(row, uint64_t{row} + 2)) return std::nullopt;
  const uint64_t begin = std::min(names.offsets[row], names.text.size());
  const uint64_t end = std::clamp(names.offsets[uint64_t{row} + 1], begin, names.text.size());
  if (!names.text.Touch(begin, end)) return std::nullopt;
  return std::string_view(names.text.data() + begin, end - begin);
}

absl::Status Damage(const NodeNames& names) {
  for (const absl::Status& status : {names.numbers.status(), names.offsets.status(), names.text.status()}) {
    PF_RETURN_IF_ERROR(status);
  }
  return absl::DataLossError("the graph's node names cannot be read");
}

// Calls found(row) for each row whose name is among the keys of `wanted`.
template <class Found>
absl::Status ForEachNamed(const Graph& graph, const std::unordered_map<std::string_view, std::vector<size_t>>& wanted,
                          const Found& found) {
  const NodeNames& names = graph.names();
  const uint64_t nodes = graph.view().nodes;
  if (names.numbers.empty() && names.offsets.empty()) {
    for (const auto& [name, places] : wanted) {
      uint32_t row = 0;
      if (absl::SimpleAtoi(AbslView(name), &row) && row < nodes) found(row, places);
    }
    return absl::OkStatus();
  }
  std::unordered_map<uint64_t, const std::vector<size_t>*> numbers;
  for (const auto& [name, places] : wanted) {
    uint64_t number = 0;
    if (absl::SimpleAtoi(AbslView(name), &number)) numbers.emplace(number, &places);
  }
  for (uint64_t row = 0; row < nodes; ++row) {
    const auto id = static_cast<NodeId>(row);
    if (!names.numbers.empty()) {
      if (!names.numbers.Touch(row, row + 1)) return Damage(names);
      if (const auto it = numbers.find(names.numbers[row]); it != numbers.end()) found(id, *it->second);
      continue;
    }
    const auto text = TextOf(names, id);
    if (!text) return Damage(names);
    if (const auto it = wanted.find(*text); it != wanted.end()) found(id, it->second);
  }
  return absl::OkStatus();
}

bool HasText(const NodeNames& names) { return names.numbers.empty() && !names.offsets.empty(); }

// A row with its key, which equal names share: the number, or a hash of the name as text.
struct KeyedRow {
  uint64_t key = 0;
  NodeId row = 0;
  auto operator<=>(const KeyedRow&) const = default;
};

absl::StatusOr<uint64_t> KeyOf(const NodeNames& names, NodeId row, bool as_text) {
  if (as_text) {
    PF_ASSIGN_OR_RETURN(const std::string name, NameOf(names, row));
    return Hash64(name);
  }
  if (names.numbers.empty()) return row;
  if (!names.numbers.Touch(row, uint64_t{row} + 1)) return Damage(names);
  return names.numbers[row];
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> MatchNames(const Graph& from, const Graph& to) {
  const bool as_text = HasText(from.names()) || HasText(to.names());
  std::vector<KeyedRow> known(from.view().nodes);
  for (uint64_t row = 0; row < known.size(); ++row) {
    const auto id = static_cast<NodeId>(row);
    PF_ASSIGN_OR_RETURN(const uint64_t key, KeyOf(from.names(), id, as_text));
    known[row] = {key, id};
  }
  std::ranges::sort(known);
  std::vector<int64_t> rows(to.view().nodes, kNoRow);
  for (uint64_t row = 0; row < rows.size(); ++row) {
    const auto id = static_cast<NodeId>(row);
    PF_ASSIGN_OR_RETURN(const uint64_t key, KeyOf(to.names(), id, as_text));
    auto found = std::ranges::lower_bound(known, key, {}, &KeyedRow::key);
    for (; found != known.end() && found->key == key && rows[row] == kNoRow; ++found) {
      if (as_text) {
        PF_ASSIGN_OR_RETURN(const std::string a, NameOf(from.names(), found->row));
        PF_ASSIGN_OR_RETURN(const std::string b, NameOf(to.names(), id));
        if (a != b) continue;
      }
      rows[row] = found->row;
    }
  }
  PF_RETURN_IF_ERROR(from.CheckIntact());
  PF_RETURN_IF_ERROR(to.CheckIntact());
  return rows;
}

absl::StatusOr<std::string> NameOf(const NodeNames& names, NodeId row) {
  if (!names.numbers.empty()) {
    if (!names.numbers.Touch(row, uint64_t{row} + 1)) return Damage(names);
    return std::to_string(names.numbers[row]);
  }
  if (names.offsets.empty()) return std::to_string(row);
  const auto text = TextOf(names, row);
  if (!text) return Damage(names);
  return std::string(*text);
}

absl::StatusOr<std::vector<NodeId>> FindNames(const Graph& graph, std::span<const std::string> wanted) {
  std::unordered_map<std::string_view, std::vector<size_t>> places;
  for (size_t i = 0; i < wanted.size(); ++i) places[wanted[i]].push_back(i);
  std::vector<NodeId> rows(wanted.size());
  std::vector<bool> known(wanted.size());
  PF_RETURN_IF_ERROR(ForEachNamed(graph, places, [&](NodeId row, const std::vector<size_t>& of_name) {
    for (const size_t i : of_name) {
      rows[i] = row;
      known[i] = true;
    }
  }));
  Violations violations;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (known[i]) continue;
    violations.Add(absl::StrCat("names[", i, "]"),
                   absl::StrCat("'", wanted[i], "' is none of the graph's ", graph.view().nodes, " nodes"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return rows;
}

}  // namespace permafrost::data
