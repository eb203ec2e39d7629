// Writes one large graph's store, section after section straight into its place: every byte is written once.
// Threads: one at a time. Memory: a buffer.
// Invariant: graph.pfg exists only after Finish, complete and synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stop.h"
#include "data/store/categories.h"
#include "data/store/format.h"
#include "data/store/graph.h"

namespace permafrost::data {

class GraphWriter {
 public:
  // `directory` exists; the caller removes it after an error. packed_rows: rows of node features without gaps between
  // them, though some lie on one page more for it.
  static absl::StatusOr<std::unique_ptr<GraphWriter>> Create(const std::filesystem::path& directory,
                                                             std::stop_token stop, bool packed_rows = false);
  virtual ~GraphWriter() = default;

  // Begins a section of rows of `width` elements, and ends the one before. Each kind once, in any order.
  virtual absl::Status Begin(SectionKind kind, ElementType type, uint32_t width = 1) = 0;
  // Appends whole rows, or parts of them, to the section begun last.
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  template <class T>
  absl::Status Write(SectionKind kind, ElementType type, std::span<const T> values, uint32_t width = 1) {
    if (absl::Status begun = Begin(kind, type, width); !begun.ok()) return begun;
    return Append(std::as_bytes(values));
  }
  // Holds what the categories of the graph's columns stand for, for the caller to fill in; Finish writes their
  // sections. If nobody calls this, the graph is like one from an older version, which did not keep them.
  virtual Categories& categories() = 0;
  // Checks that the sections make up a graph of summary.nodes and summary.edges, writes summary, block checksums and
  // header, syncs, and renames into place. Sets adjacency_bytes and store_bytes. Cancelled soon after the import shall
  // stop.
  virtual absl::Status Finish(GraphSummary& summary) = 0;
};

}  // namespace permafrost::data
