// Small sets of graphs, written as OGB files and imported, for tests that train.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

#include "data/import/import.h"
#include "data/store/graph_set.h"

namespace permafrost::train {

struct TinyGraph {
  std::vector<unsigned> categories;                         // one for each node
  std::vector<std::pair<unsigned, unsigned>> edges;         // imported with their inverses
  std::vector<unsigned> edge_categories;                    // one for each edge; if empty, all are 0
  double label = std::numeric_limits<double>::quiet_NaN();  // NaN: missing
  std::vector<double> further;                              // labels of the second and later targets
};

// Imports graphs with one category column each for nodes and edges. The importer draws splits of 80, 10 and 10 %.
// Without `labelled`, there are no targets.
inline std::shared_ptr<const data::GraphSet> ImportGraphs(const std::filesystem::path& directory,
                                                          const std::vector<TinyGraph>& graphs, bool labelled = true) {
  namespace fs = std::filesystem;
  fs::create_directories(directory / "source/raw");
  const auto open = [&](const char* name) { return std::ofstream(directory / "source/raw" / name); };
  auto nodes = open("num-node-list.csv"), edges = open("num-edge-list.csv"), edge = open("edge.csv");
  auto node_features = open("node-feat.csv"), edge_features = open("edge-feat.csv"), labels = open("graph-label.csv");
  for (const TinyGraph& graph : graphs) {
    nodes << graph.categories.size() << "\n";
    edges << graph.edges.size() << "\n";
    for (const unsigned category : graph.categories) node_features << category << "\n";
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      edge << graph.edges[e].first << "," << graph.edges[e].second << "\n";
      edge_features << (graph.edge_categories.empty() ? 0 : graph.edge_categories[e]) << "\n";
    }
    if (!std::isnan(graph.label)) labels << graph.label;
    for (const double label : graph.further) std::isnan(label) ? labels << "," : labels << "," << label;
    labels << "\n";
  }
  for (std::ofstream* file : {&nodes, &edges, &edge, &node_features, &edge_features, &labels}) file->close();
  if (!labelled) fs::remove(directory / "source/raw/graph-label.csv");
  fs::create_directories(directory / "store");
  data::ImportOptions import;
  import.source = directory / "source";
  import.format = data::ImportFormat::kOgbGraphs;
  const auto summary = data::Import(import, directory / "store", [](const auto&) {}, {});
  if (!summary.ok()) throw std::runtime_error(std::string(summary.status().message()));
  auto set = data::GraphSet::Open(directory / "store");
  if (!set.ok()) throw std::runtime_error(std::string(set.status().message()));
  return *std::move(set);
}

// Imports `graphs` random trees of 1 to 12 nodes. The label is the share of category 0 among the nodes, so it can be
// learned. Every 11th label is missing.
inline std::shared_ptr<const data::GraphSet> ImportTinyGraphs(const std::filesystem::path& directory, int graphs) {
  std::mt19937 random(7);
  std::vector<TinyGraph> set;
  for (int g = 0; g < graphs; ++g) {
    TinyGraph graph;
    const unsigned n = 1 + random() % 12;
    unsigned zeros = 0;
    for (unsigned v = 0; v < n; ++v) {
      graph.categories.push_back(random() % 3);
      zeros += graph.categories.back() == 0 ? 1 : 0;
    }
    for (unsigned v = 1; v < n; ++v) {
      graph.edges.emplace_back(v, random() % v);
      graph.edge_categories.push_back(random() % 2);
    }
    if (g % 11 != 10) graph.label = static_cast<double>(zeros) / n;
    set.push_back(std::move(graph));
  }
  return ImportGraphs(directory, set);
}

}  // namespace permafrost::train
