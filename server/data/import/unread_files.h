// Files of a source that an import does not read: named in a note, or refused where they were surely meant to be read.
// Threads: one at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"

namespace permafrost::data {

// The names of the files that each format reads from a folder. Threads: pure.

// A file that a format reads where it is there.
struct KnownName {
  std::string stem;                       // below the source, without its ending: "raw/node-feat"
  std::vector<std::string_view> endings;  // ".csv", ".csv.gz"; the first is the plain one
  std::string table;                      // names of one table are forms of it; one of them is accepted
};

// split: the name of the folder below split/ that is read; empty: none.
std::vector<KnownName> OgbGraphsNames(std::string_view split);
std::vector<KnownName> OgbNodesNames(std::string_view split);
std::vector<KnownName> NpyNames();
// stem: the path of every file up to its table: "raw/MUTAG".
std::vector<KnownName> TuNames(std::string_view stem);

struct SourceContents {
  // All files, by their paths below the source. nullopt: the files of `folder`; none if `folder` is empty.
  std::optional<std::vector<std::string>> all;
  std::filesystem::path folder;
  std::vector<std::string> read;  // of them
  std::vector<KnownName> known;

  void Add(const SourceFile& file) { read.push_back(file.name); }
  void Add(const std::optional<SourceFile>& file) {
    if (file) Add(*file);
  }
};

// Notes the files that are not read: the first ten of them, and how many more there are. Files and folders whose names
// begin with "." are passed over, and so is what lies deeper than four folders or beyond the first 10,000 entries.
// Errors: InvalidArgument, naming the file and the right name, for
// - a second form of a table that is read, such as raw/edge.csv beside raw/edge.csv.gz, or node_label.npz beside
//   node_label.npy; but of sparse features text beside the .npz is only named,
// - a known name in another case, with '_' for '-', with "features" for "feat", in the wrong folder, or with an ending
//   that is not read,
// - a name within two edits of a known one whose table is not there: one in a word of three or four letters, two in a
//   longer one.
absl::Status TellUnreadFiles(const SourceContents& contents, ImportMonitor& monitor);

}  // namespace permafrost::data
