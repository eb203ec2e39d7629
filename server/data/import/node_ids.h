// Keeps the names that the source gives to the nodes of one large graph. The names are the numbers or texts by which
// its edges refer to nodes, or the entries of a file of names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// Tables that map the source's names of nodes to rows.
// Threads: const methods are safe anywhere; the others one at a time.

// Maps numbers to rows, in rising order of numbers.
// Memory: at most kBytesEach for each distinct number.
class NumberTable {
 public:
  static constexpr uint64_t kBytesEach = 48;

  // Adds numbers, in any order. A number may occur any number of times.
  void Add(std::span<const uint64_t> numbers);
  // Call it after the last Add and before Row.
  void Finish();
  uint64_t size() const { return numbers_.size(); }
  // Returns an upper bound of what size() would be after Finish. Equal numbers that are not merged yet count
  // separately.
  uint64_t size_so_far() const { return numbers_.size() + pending_.size(); }
  // Row returns kNoRow for a number that was never added.
  static constexpr NodeId kNoRow = NodeId{UINT32_MAX};
  NodeId Row(uint64_t number) const;
  // Returns true if every number equals its row.
  bool IsRows() const { return numbers_.empty() || numbers_.back() == numbers_.size() - 1; }
  absl::Status Write(const Renumbering& renumbering, GraphWriter& writer) const;

  // Merges the pending numbers, so that size_so_far counts each distinct number once.
  void Settle();

 private:
  std::vector<uint64_t> numbers_;              // distinct, rising
  std::vector<uint64_t> pending_;              // not merged yet
  std::vector<NodeId> rows_;                   // index: number - numbers_.front(); used if numbers lie close together
  absl::flat_hash_map<uint64_t, NodeId> map_;  // used if numbers lie far apart
};

// Maps texts to rows, in the order of first appearance.
class TextTable {
 public:
  // Returns the row of `text`. A new text gets the next row. Add at most kMaxNodes texts.
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
  char* block_end_ = nullptr;  // end of the last block
  size_t room_ = 0;            // unused bytes at the end of the last block
};

// Imports the names that a folder gives to the nodes of one large graph. The names stand in a file of names or
// numbers beside the graph, or in OGB's mapping.
// Threads: one at a time. Memory: 16 bytes per node for numbers; for texts same as TextTable.
struct NameFile {
  enum class Kind {
    kArray,    // NPY: integers [nodes]
    kRows,     // CSV: one name per node, in quotes if it holds a comma or a quote
    kMapping,  // CSV with a header, such as OGB's mapping/nodeidx2paperid.csv.gz: row, name
  };
  SourceFile file;
  Kind kind = Kind::kRows;
};

// Returns `ids`.npy, else `names`.csv[.gz|.zst], else mapping/nodeidx2*.csv[.gz|.zst] if exactly one such mapping
// exists. Returns nullopt if none is found. Errors: same as FindSourceFile; InvalidArgument if both `ids`.npy and a
// `names` file exist.
absl::StatusOr<std::optional<NameFile>> FindNameFile(const std::filesystem::path& source, std::string_view ids,
                                                     std::string_view names);

struct DueNames {
  uint64_t nodes = 0;
  const std::string& why;  // where `nodes` comes from, for messages
  const Renumbering& renumbering;
  uint64_t memory_bytes = 0;
};

// Writes the names and sets summary.named. The names are stored as numbers if all are whole numbers below 2^64, and
// as texts otherwise. If there is no file of names, or every name equals the node's row, does the same as
// WriteSourceRows.
// Errors: InvalidArgument for an invalid name (with its line) and for a name that two nodes share; ResourceExhausted.
// A mapping is optional: if it does not fit the graph, a note says so, and nodes are named by their rows.
absl::Status WriteNodeNames(const std::optional<NameFile>& names, const DueNames& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary);

}  // namespace permafrost::data
