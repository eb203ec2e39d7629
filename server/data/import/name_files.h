// Imports the names that a folder gives to the nodes of one large graph. They are in a file of names or numbers beside
// the graph, or in OGB's mapping.
// Threads: one at a time. Memory: 16 bytes a node of numbers; of texts what TextTable takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

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
