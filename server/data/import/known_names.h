// The names of the files that each format reads from a folder. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace permafrost::data {

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

}  // namespace permafrost::data
