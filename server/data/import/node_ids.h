// The rows of nodes that the source calls by numbers or by text.
// Threads: const methods are safe anywhere; the others one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "data/import/renumbering.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// Numbers, rows in rising order.
// Memory: at most kBytesEach for each distinct one.
class NumberTable {
 public:
  static constexpr uint64_t kBytesEach = 48;

  // Takes in numbers, in any order and any number of times.
  void Add(std::span<const uint64_t> numbers);
  // After the last Add.
  void Finish();
  uint64_t size() const { return numbers_.size(); }
  // At most: some may be equal.
  uint64_t size_so_far() const { return numbers_.size() + pending_.size(); }
  // kNoRow for a number that was never added.
  static constexpr NodeId kNoRow = NodeId{UINT32_MAX};
  NodeId Row(uint64_t number) const;
  // True if every row is its own number.
  bool IsRows() const { return numbers_.empty() || numbers_.back() == numbers_.size() - 1; }
  absl::Status Write(const Renumbering& renumbering, GraphWriter& writer) const;

  // Merges what was added since, so that size_so_far counts each once.
  void Settle();

 private:
  std::vector<uint64_t> numbers_;              // rising
  std::vector<uint64_t> pending_;              // not yet among them
  std::vector<NodeId> rows_;                   // by number, from the first; where they lie close together
  absl::flat_hash_map<uint64_t, NodeId> map_;  // where they do not
};

// Texts, rows in the order of first appearance.
class TextTable {
 public:
  // The row of `text`; given to it now, if it has none. At most kMaxNodes.
  NodeId Row(std::string_view text);
  uint64_t size() const { return texts_.size(); }
  uint64_t memory_bytes() const;
  absl::Status Write(const Renumbering& renumbering, GraphWriter& writer) const;

 private:
  std::string_view Keep(std::string_view text);
  absl::flat_hash_map<std::string_view, NodeId> map_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  uint64_t text_bytes_ = 0;
  char* block_end_ = nullptr;  // of the last block
  size_t room_ = 0;            // left before it
};

}  // namespace permafrost::data
