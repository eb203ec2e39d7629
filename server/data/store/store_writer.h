// Writers of a store's file: one that writes any sections, and one for each of the two kinds of store.
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

// Writes one store file. Each section goes straight to its place in the file; the header and the table are written
// last, at the front. Threads: one at a time. Memory: a buffer, and 8 bytes for each block written.
class StoreFileWriter {
 public:
  static absl::StatusOr<StoreFileWriter> Create(const std::filesystem::path& path, std::stop_token stop);

  // Ends the current section, if any, and begins another one.
  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width);
  // Begins a section whose rows will be read in random order. It has a checksum for each page, and its rows lie in
  // `groups`.
  absl::Status BeginPaged(SectionKind kind, ElementType type, uint32_t width, const RowGroups& groups);
  // Appends to the current section. Returns Cancelled soon after `stop` is requested.
  absl::Status Append(std::span<const std::byte> bytes);
  // Ends the current section. Returns Internal if the bytes appended are not whole rows.
  absl::Status End();
  // Returns the entries of the sections that have ended.
  std::span<const SectionEntry> entries() const { return entries_; }

  // Writes the block checksums, the table and `header`, and syncs. Fills in the fields of `header` that describe the
  // file: magic, version, endianness, file_bytes, section_count, block_bytes and checksum. Returns the length of the
  // file.
  absl::StatusOr<uint64_t> Finish(FileHeader header);

 private:
  StoreFileWriter(FileWriter file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  absl::Status Open(const SectionEntry& entry);
  absl::Status AppendPiece(std::span<const std::byte> bytes);
  uint64_t RowBytes() const { return open_.width * ElementBytes(open_.type); }

  FileWriter file_;
  std::stop_token stop_;
  std::vector<SectionEntry> entries_;
  SectionEntry open_{};    // the current section, `bytes` and `rows` not set yet; offset 0 if no section is open
  uint64_t appended_ = 0;  // bytes of rows in the current section
  BlockHashes hashes_;
  std::vector<uint64_t> checksums_;
};

// Writes the store of one large graph. Each section goes straight to its place in the file, so that every byte is
// written once.
// Threads: one at a time. Memory: a buffer.
// Invariant: graph.pfg exists only after Finish, and is then complete and synced.
class GraphWriter {
 public:
  // `directory` must exist, and the caller removes it after an error. With `packed_rows`, rows of node features lie
  // without gaps, so some rows lie on one page more than they need.
  static absl::StatusOr<std::unique_ptr<GraphWriter>> Create(const std::filesystem::path& directory,
                                                             std::stop_token stop, bool packed_rows = false);
  virtual ~GraphWriter() = default;

  // Ends the current section, if any, and begins one with rows of `width` elements. Sections may come in any order,
  // and each kind only once.
  virtual absl::Status Begin(SectionKind kind, ElementType type, uint32_t width = 1) = 0;
  // Appends bytes to the current section: whole rows or parts of rows.
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  template <class T>
  absl::Status Write(SectionKind kind, ElementType type, std::span<const T> values, uint32_t width = 1) {
    if (absl::Status begun = Begin(kind, type, width); !begun.ok()) return begun;
    return Append(std::as_bytes(values));
  }
  // Returns the tables of the graph's categories, for the caller to fill in. Finish writes their sections. If nobody
  // calls this, the graph is like one that an older version imported: its categories are unknown.
  virtual Categories& categories() = 0;
  // Checks that the sections form a graph with summary.nodes and summary.edges. Writes the summary, the block
  // checksums and the header, syncs, and renames the file into place. Sets summary.adjacency_bytes and
  // summary.store_bytes. Returns Cancelled soon after `stop` is requested.
  virtual absl::Status Finish(GraphSummary& summary) = 0;
};

// Writes the store of a set of graphs. Sections grow side by side in part files, which Finish joins into one file.
// Threads: one at a time. Memory: a buffer for each section.
// Invariant: graphs.pfg exists only after Finish, and is then complete and synced. The part files are gone by then.
class GraphSetWriter {
 public:
  // `directory` must exist, and the caller removes it after an error.
  GraphSetWriter(std::filesystem::path directory, std::stop_token stop)
      : directory_(std::move(directory)), stop_(std::move(stop)) {}

  // Begins a section. If it was begun before, drops its rows and begins anew.
  absl::Status Begin(SectionKind kind, ElementType type, uint32_t width = 1);
  // Appends whole rows or parts of rows to a section that was begun.
  absl::Status Append(SectionKind kind, std::span<const std::byte> rows);
  template <class T>
  absl::Status Append(SectionKind kind, std::span<const T> rows) {
    return Append(kind, std::as_bytes(rows));
  }
  // Writes a whole section at once.
  template <class T>
  absl::Status Write(SectionKind kind, ElementType type, std::span<const T> values, uint32_t width = 1) {
    if (absl::Status begun = Begin(kind, type, width); !begun.ok()) return begun;
    return Append(kind, values);
  }

  // Returns the tables of the set's categories, for the caller to fill in. Finish writes their sections. If nobody
  // calls this, the set is like one that an older version imported: its categories are unknown.
  Categories& categories() { return categories_ ? *categories_ : categories_.emplace(); }

  // Joins all sections and `summary` into the store's file, copying every byte. Takes the header's counts from
  // `summary`, and sets summary.store_bytes. Returns Cancelled soon after `stop` is requested.
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
