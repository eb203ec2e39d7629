// TUDatasets for tests: small ones written as files, the shared ones, and their imports.
#pragma once

#include <gtest/gtest.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "data/import/import.h"
#include "data/ogb_folder.h"

namespace permafrost::data {

namespace fs = std::filesystem;

// Three graphs of 3, 1 and 2 nodes with labels 1, -1 and 1. Graph 0 is a path 1-2-3 in which the edge 1->2 occurs
// twice. Graph 1 has no edge. Graph 2 is the edge 5-6 with a self-loop at 6.
inline Files SmallTu() {
  return {{"S_A.txt", "1, 2\n2, 1\n1, 2\n2, 3\n3, 2\n5, 6\n6, 5\n6, 6\n"},
          {"S_graph_indicator.txt", "1\n1\n1\n2\n3\n3\n"},
          {"S_graph_labels.txt", "1\n-1\n1\n"}};
}

inline std::string ZipOf(const fs::path& path, const Files& files) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  for (const auto& [name, bytes] : files) {
    EXPECT_GE(zip_file_add(archive, name.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0),
                           ZIP_FL_ENC_UTF_8),
              0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  return path.string();
}

inline absl::StatusOr<GraphSetSummary> ImportTu(const fs::path& source, const fs::path& store,
                                                ImportOptions options = {}, const ImportLimits& limits = {}) {
  fs::remove_all(store);
  fs::create_directories(store);
  options.source = source;
  const auto summary = Import(options, store, /*observer=*/{}, std::stop_token(), limits);
  if (!summary.ok()) return summary.status();
  return std::get<GraphSetSummary>(*summary);
}

inline std::shared_ptr<const GraphSet> StoreOf(const fs::path& directory, const Files& files,
                                               const ImportOptions& options = {}) {
  WriteFiles(directory / "source", files);
  const auto summary = ImportTu(directory / "source", directory / "store", options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (!summary.ok()) return nullptr;
  auto set = GraphSet::Open(directory / "store");
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? *std::move(set) : nullptr;
}

inline std::string FileBytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline Files With(Files files, const Files& changes) {
  for (const auto& [name, text] : changes) files[name] = text;
  return files;
}

inline fs::path SharedTu(const std::string& name) {
  const fs::path path = fs::path(PERMAFROST_SOURCE_DIR) / ".." / "shared" / "data" / "tu" / (name + ".zip");
  return fs::exists(path) ? path : fs::path();
}

}  // namespace permafrost::data
