// Writes the two kinds of store: the file, section by section, and what a graph and a set put into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "data/store/block_guard.h"
#include "data/store/categories.h"
#include "data/store/format.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Writes one store file, section after section straight into its place, and header and table in front at last.
// Threads: one at a time. Memory: a buffer, and 8 bytes for each block written.
class StoreFileWriter {
 public:
  static absl::StatusOr<StoreFileWriter> Create(const std::filesystem::path& path, std::stop_token stop);

  // Begins a section, and ends the one before.
  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width);
  // Begins a section of rows that will be read from all over it: it has a checksum a page, and its rows lie in
  // `groups`.
  absl::Status BeginPaged(SectionKind kind, ElementType type, uint32_t width, const RowGroups& groups);
  // Appends to the section begun last. Cancelled soon after the import shall stop.
  absl::Status Append(std::span<const std::byte> bytes);
  // Ends the section begun last. Internal error where its bytes are no whole rows.
  absl::Status End();
  // The entries of the sections that have ended.
  std::span<const SectionEntry> entries() const { return entries_; }

  // Writes block checksums, table and `header`, whose file_bytes, section_count and what tells the format it sets, and
  // syncs. Returns the file's length.
  absl::StatusOr<uint64_t> Finish(FileHeader header);

 private:
  StoreFileWriter(FileWriter file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  absl::Status Open(const SectionEntry& entry);
  absl::Status AppendPiece(std::span<const std::byte> bytes);
  uint64_t RowBytes() const { return open_.width * ElementBytes(open_.type); }

  FileWriter file_;
  std::stop_token stop_;
  std::vector<SectionEntry> entries_;
  SectionEntry open_{};    // `bytes` and `rows` unset; offset 0: none
  uint64_t appended_ = 0;  // bytes of rows in it
  BlockHashes hashes_;
  std::vector<uint64_t> checksums_;
};

// Writes one large graph's store, section after section straight into its place: every byte is written once.
// Threads: one at a time. Memory: a buffer.
// Invariant: graph.pfg exists only after Finish, complete and synced.
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

// Writes a store: sections grow side by side in part files, then are joined into one.
// Threads: one at a time. Memory: a buffer a section.
// Invariant: graphs.pfg exists only after Finish, complete and synced; the part files are gone then.
class GraphSetWriter {
 public:
  // `directory` exists; the caller removes it after an error.
  GraphSetWriter(std::filesystem::path directory, std::stop_token stop)
      : directory_(std::move(directory)), stop_(std::move(stop)) {}

  // Begins a section, or begins it anew, its earlier rows forgotten.
  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width = 1);
  // Appends to a section that was begun.
  absl::Status Append(SectionKind kind, std::span<const std::byte> rows);
  template <class T>
  absl::Status Append(SectionKind kind, std::span<const T> rows) {
    return Append(kind, std::as_bytes(rows));
  }
  // A whole section at once.
  template <class T>
  absl::Status Write(SectionKind kind, ElementType type, std::span<const T> values, uint32_t width = 1) {
    if (absl::Status begun = Begin(kind, type, width); !begun.ok()) return begun;
    return Append(kind, values);
  }

  // Holds what the categories of the set's columns stand for, for the caller to fill in; Finish writes their sections.
  // If nobody calls this, the set is like one from an older version, which did not keep them.
  Categories& categories() { return categories_ ? *categories_ : categories_.emplace(); }

  // Joins all sections with `summary`, whose counts go into the header and whose store_bytes is set. Copies every
  // byte, and is Cancelled soon after the import shall stop.
  absl::Status Finish(GraphSetSummary& summary);

 private:
  struct Part {
    ElementType type;
    uint32_t width;
    FileWriter file;
  };

  std::filesystem::path PartPath(SectionKind kind) const;
  absl::Status AppendPart(SectionKind kind, StoreFileWriter& out) const;

  std::filesystem::path directory_;
  std::stop_token stop_;
  std::map<SectionKind, Part> parts_;
  std::optional<Categories> categories_;
};

}  // namespace permafrost::data
