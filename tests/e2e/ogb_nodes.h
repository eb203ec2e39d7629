// A small graph for node-level jobs.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace permafrost::e2e {

// Writes a graph of `nodes` nodes in OGB's node-property layout. There are four classes of nodes. Neighbours are
// mostly of one class, and features correlate with it.
inline void WriteOgbNodes(const std::filesystem::path& directory, int nodes) {
  std::filesystem::create_directories(directory / "raw");
  std::filesystem::create_directories(directory / "split/random");
  const auto open = [&](const char* name) { return std::ofstream(directory / name); };
  std::mt19937 random(3);
  std::vector<int> kinds(static_cast<size_t>(nodes));
  for (int& kind : kinds) kind = static_cast<int>(random() % 4);
  std::ofstream edges = open("raw/edge.csv"), features = open("raw/node-feat.csv"), labels = open("raw/node-label.csv");
  open("raw/num-node-list.csv") << nodes << "\n";
  int count = 0;
  for (int v = 0; v < nodes; ++v) {
    for (int k = 0; k < 6; ++k) {
      const int u = static_cast<int>(random() % static_cast<unsigned>(nodes));
      if (u == v || (kinds[static_cast<size_t>(u)] != kinds[static_cast<size_t>(v)] && random() % 5 != 0)) continue;
      edges << v << "," << u << "\n";
      ++count;
    }
    for (int c = 0; c < 12; ++c) {
      features << (c > 0 ? "," : "")
               << (c % 4 == kinds[static_cast<size_t>(v)] ? 0.4 : 0.0) + static_cast<double>(random() % 1000) / 1000;
    }
    features << "\n";
    labels << kinds[static_cast<size_t>(v)] << "\n";
  }
  open("raw/num-edge-list.csv") << count << "\n";
  std::ofstream train = open("split/random/train.csv"), valid = open("split/random/valid.csv"),
                test = open("split/random/test.csv");
  for (int v = 0; v < nodes; ++v) (v % 5 < 3 ? train : v % 5 == 3 ? valid : test) << v << "\n";
}

// Adds edge features to the graph of WriteOgbNodes: two columns of floats that depend on the edge's number.
inline void WriteEdgeFeatures(const std::filesystem::path& directory) {
  std::ifstream edges(directory / "raw/edge.csv");
  std::ofstream features(directory / "raw/edge-feat.csv");
  std::string line;
  for (int number = 0; std::getline(edges, line); ++number) {
    features << number % 7 << ".5," << (number * 3) % 11 / 10.0 << "\n";
  }
}

}  // namespace permafrost::e2e
