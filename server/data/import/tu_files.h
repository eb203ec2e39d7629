// The files of a TUDataset: NAME_A.txt and those beside it, in a directory or a ZIP archive as distributed. Threads:
// pure, except for opened files.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/import/unread_files.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"

namespace permafrost::data {

struct TuFiles {
  // A table of nodes or of edges: whole numbers that are categories, and numbers that are measures.
  struct Features {
    std::optional<SourceFile> labels, attributes;
  };

  std::string name;  // "MUTAG"
  SourceFile edges, graph_of_node;
  std::optional<SourceFile> graph_labels, graph_attributes;
  Features node, edge;
  bool degrees = false;  // make node features of degrees

  std::string stem;                         // the path of every file up to its table: "raw/MUTAG"
  std::vector<std::string> all_of_archive;  // paths of its members

  // Edges and labels are read twice.
  int64_t bytes() const;
  SourceContents contents(const std::filesystem::path& source) const;
};

// NAME_graph_indicator.txt tells the name. A directory may have the files in raw/, as PyG lays them out; an archive in
// any folder. Takes what options.tu asks for. Errors: NotFound for missing files, InvalidArgument for several sets in
// one source, what is no ZIP archive, and options that no TUDataset can be asked for; what TypeOfSource and ListZip
// say.
absl::StatusOr<TuFiles> FindTuFiles(const ImportOptions& options, const ImportLimits& limits);

// True if the directory, or its raw/, has a NAME_graph_indicator.txt. Errors: as TypeOfSource.
absl::StatusOr<bool> IsTuDirectory(const std::filesystem::path& directory);
// True if the file is called NAME.zip.
bool IsZipName(const std::filesystem::path& file);

}  // namespace permafrost::data
