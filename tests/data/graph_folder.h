// Hand-written sources of one large graph, and the stores made from them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "data/import/import.h"
#include "data/ogb_folder.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Imports a source that is one large graph.
inline absl::StatusOr<GraphSummary> ImportGraph(const ImportOptions& options, const std::filesystem::path& store,
                                                const ImportObserver& observer, std::stop_token stop,
                                                const ImportLimits& limits = {}) {
  const auto summary = Import(options, store, observer, std::move(stop), limits);
  if (!summary.ok()) return summary.status();
  return std::get<GraphSummary>(*summary);
}

inline absl::StatusOr<GraphSummary> ImportGraphInto(const std::filesystem::path& store, const ImportOptions& options,
                                                    const ImportLimits& limits = {}) {
  std::filesystem::remove_all(store);
  std::filesystem::create_directories(store);
  return ImportGraph(options, store, /*observer=*/{}, std::stop_token(), limits);
}

// Imports `options.source` into `store`, opens the graph and verifies all of it. Returns nullptr after a failure.
inline std::shared_ptr<const Graph> MakeGraph(const std::filesystem::path& store, const ImportOptions& options) {
  const auto summary = ImportGraphInto(store, options);
  EXPECT_TRUE(summary.ok()) << summary.status();
  if (!summary.ok()) return nullptr;
  const auto graph = Graph::Open(store);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return nullptr;
  const absl::Status whole = (*graph)->VerifyAll([](uint64_t, uint64_t) { return true; });
  EXPECT_TRUE(whole.ok()) << whole;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(store), std::filesystem::directory_iterator()), 1)
      << "temporary files are left";
  return *graph;
}

template <class T>
std::vector<T> Values(const Column<T>& column) {
  EXPECT_TRUE(column.Touch(0, column.size()));
  return {column.data(), column.data() + column.size()};
}

inline std::vector<NodeId> NeighborsOf(const Adjacency& adjacency, NodeId node) {
  bool ok = true;
  const Adjacency::Extent extent = adjacency.Of(node, ok);
  EXPECT_TRUE(ok && adjacency.neighbors.Touch(extent.begin, extent.end));
  return {adjacency.neighbors.data() + extent.begin, adjacency.neighbors.data() + extent.end};
}

// Returns an NPY file, version 1, with `values`.
template <class T>
std::string Npy(const std::string& descr, const std::string& shape, const std::vector<T>& values,
                const std::string& fortran_order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + fortran_order + ", 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00\x76\x00", 10);
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

}  // namespace permafrost::data
