// Links of one large graph that its source divides, and the pairs without an edge that it evaluates them against, as
// NPY files below split/links.
// Threads: one at a time. Memory: a piece of a file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/import/unread_files.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// The folder below a source's split/.
inline constexpr std::string_view kLinkFolder = "links";

struct LinkFiles {
  std::array<SourceFile, 3> links;                     // by Split: [links, 2] source, target
  std::array<std::optional<SourceFile>, 3> negatives;  // of validation and test: [links, K] targets or [pairs, 2]

  int64_t bytes() const;
  void AddTo(SourceContents& contents) const;
};

// nullopt where the source divides no links. Errors: NotFound where one of train, valid and test is missing.
absl::StatusOr<std::optional<LinkFiles>> FindLinkFiles(const std::filesystem::path& source);

// Writes the links and negatives, and sets summary.links. `why`: where the number of nodes is from. Negatives with two
// columns are pairs. Errors: InvalidArgument naming file and element.
absl::Status WriteLinks(const LinkFiles& files, uint64_t nodes, const std::string& why, const Renumbering& renumbering,
                        ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary);

}  // namespace permafrost::data
