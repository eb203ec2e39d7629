// A small set of random graphs, written as OGB files and imported, for tests that train.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stop_token>

#include "data/import/import.h"
#include "data/store/graph_set.h"

namespace permafrost::train {

// `graphs` graphs of 1..12 nodes with one node and one edge category column. The label is learnable: the share of
// category 0 among the nodes; every 11th is missing.
inline std::shared_ptr<const data::GraphSet> ImportTinyGraphs(const std::filesystem::path& directory, int graphs) {
  namespace fs = std::filesystem;
  fs::create_directories(directory / "source/raw");
  const auto open = [&](const char* name) { return std::ofstream(directory / "source/raw" / name); };
  auto nodes = open("num-node-list.csv"), edges = open("num-edge-list.csv"), edge = open("edge.csv");
  auto node_features = open("node-feat.csv"), edge_features = open("edge-feat.csv"), labels = open("graph-label.csv");
  std::mt19937 random(7);
  for (int g = 0; g < graphs; ++g) {
    const unsigned n = 1 + random() % 12;
    unsigned zeros = 0;
    for (unsigned v = 0; v < n; ++v) {
      const unsigned category = random() % 3;
      zeros += category == 0 ? 1 : 0;
      node_features << category << "\n";
    }
    for (unsigned v = 1; v < n; ++v) {
      edge << v << "," << random() % v << "\n";
      edge_features << random() % 2 << "\n";
    }
    nodes << n << "\n";
    edges << n - 1 << "\n";
    if (g % 11 != 10) labels << static_cast<double>(zeros) / n;
    labels << "\n";
  }
  for (std::ofstream* file : {&nodes, &edges, &edge, &node_features, &edge_features, &labels}) file->close();
  fs::create_directories(directory / "store");
  const auto summary = data::Import({.source = directory / "source"}, directory / "store", [](const auto&) {}, {});
  if (!summary.ok()) throw std::runtime_error(std::string(summary.status().message()));
  return *data::GraphSet::Open(directory / "store");
}

}  // namespace permafrost::train
