// Writes a store: sections grow side by side in part files, then are joined into one.
// Threads: one at a time. Memory: a buffer a section.
// Invariant: graphs.pfg exists only after Finish, complete and synced; the part files are gone then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/file.h"
#include "base/stop.h"
#include "data/store/categories.h"
#include "data/store/format.h"
#include "data/store/graph_set.h"
#include "data/store/store_file_writer.h"

namespace permafrost::data {

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
