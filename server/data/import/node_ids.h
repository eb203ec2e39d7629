// Names the nodes of one large graph as its source does: by numbers or texts of its edges, or by files of names.
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

// The rows of nodes that the source calls by numbers or by text.
// Threads: const methods are safe anywhere; the others one at a time.

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
  // An upper bound, since some may be equal.
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

// Imports the names that a folder gives to the nodes of one large graph. They are in a file of names or numbers beside
// the graph, or in OGB's mapping.
// Threads: one at a time. Memory: 16 bytes a node of numbers; of texts what TextTable takes.
struct NameFile {
  enum class Kind {
    kArray,    // NPY: [nodes] of integers
    kRows,     // CSV: a name a node, in quotes where it holds a comma or a quote
    kMapping,  // CSV below a header, as OGB's mapping/nodeidx2paperid.csv.gz: row, name
  };
  SourceFile file;
  Kind kind = Kind::kRows;
};

// `ids`.npy, else `names`.csv[.gz|.zst], else the only mapping/nodeidx2*.csv[.gz|.zst]; nullopt if there is none of
// them. Errors: as FindSourceFile; InvalidArgument where the first two stand side by side.
absl::StatusOr<std::optional<NameFile>> FindNameFile(const std::filesystem::path& source, std::string_view ids,
                                                     std::string_view names);

struct DueNames {
  uint64_t nodes = 0;
  const std::string& why;  // where that number is from
  const Renumbering& renumbering;
  uint64_t memory_bytes = 0;
};

// Writes the names, as numbers where all are whole numbers below 2^64, and sets summary.named; without a file, or where
// each node is called by its row, what WriteSourceRows writes.
// Errors: InvalidArgument naming the line of what is no name, or the name of two nodes; ResourceExhausted. A mapping is
// no more than found: where it does not fit, a note says so, and nodes are called by their rows.
absl::Status WriteNodeNames(const std::optional<NameFile>& names, const DueNames& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary);

}  // namespace permafrost::data
