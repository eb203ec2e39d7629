// Hand-written sources of sets of small graphs, and the stores made from them.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "data/import/import.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

using Files = std::map<std::string, std::string>;  // maps a path relative to the source to the file's text

// Three graphs with 5 nodes and 5 edges in the files: a triangle with a doubled edge, a lone node, and a node with a
// self-loop.
//   graph 0: nodes 0..2, edges 2->0, 0->1, 2->0, 1->2
//   graph 1: 1 node, no edge
//   graph 2: 1 node, edge 0->0
inline Files SmallSet() {
  return {{"raw/num-node-list.csv", "3\n1\n1\n"},
          {"raw/num-edge-list.csv", "4\n0\n1\n"},
          {"raw/edge.csv", "2,0\n0,1\n2,0\n1,2\n0,0\n"},
          {"raw/node-feat.csv", "1,10\n2,20\n3,30\n4,40\n5,50\n"},
          {"raw/edge-feat.csv", "0.5\n1\n2\n3\n4\n"},
          {"raw/graph-label.csv", "1.5\n\n-2\n"},
          {"split/plain/train.csv", "2\n0\n"},
          {"split/plain/valid.csv", "1\n"},
          {"split/plain/test.csv", ""}};
}

// Returns SmallSet with positions of its nodes.
inline Files PlacedSet() {
  Files files = SmallSet();
  files["raw/node-pos.csv"] = "0,1,2,3\n1.5,-1,0,1\n3,4,5,6\n6,7,8,9\n-9,1e3,0.25,0\n";
  return files;
}

inline std::string Gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

inline void WriteText(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
  ASSERT_EQ(std::fclose(file), 0);
}

inline void WriteFiles(const std::filesystem::path& source, const Files& files) {
  for (const auto& [name, text] : files) WriteText(source / name, text);
}

// Imports a set of small graphs.
inline absl::StatusOr<GraphSetSummary> ImportOgbGraphs(ImportOptions options, const std::filesystem::path& store,
                                                       const ImportObserver& observer, std::stop_token stop,
                                                       const ImportLimits& limits = {}) {
  options.format = ImportFormat::kOgbGraphs;
  const auto summary = Import(options, store, observer, std::move(stop), limits);
  if (!summary.ok()) return summary.status();
  return std::get<GraphSetSummary>(*summary);
}

// Imports `options.source` into the fresh directory `store`.
inline absl::StatusOr<GraphSetSummary> ImportInto(const std::filesystem::path& store, const ImportOptions& options) {
  std::filesystem::create_directories(store);
  return ImportOgbGraphs(options, store, /*observer=*/{}, std::stop_token());
}

// Writes `files` below `directory`, imports them and opens the store.
inline std::shared_ptr<const GraphSet> MakeStore(const std::filesystem::path& directory, const Files& files,
                                                 ImportOptions options = {}) {
  WriteFiles(directory / "source", files);
  options.source = directory / "source";
  const auto summary = ImportInto(directory / "store", options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (!summary.ok()) return nullptr;
  auto set = GraphSet::Open(directory / "store");
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? *std::move(set) : nullptr;
}

// Returns the path of a set of this project's shared data, or an empty path if it is absent.
inline std::filesystem::path SharedGraphs(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "graphs" / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

template <class T>
std::vector<T> ToVector(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace permafrost::data
