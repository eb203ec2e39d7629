// Imports one large graph into a store, as the daemon would, for the benchmarks beside this file.
// usage: data_import SOURCE DIRECTORY [--directed] [--memory-mb N]
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "base/file.h"
#include "data/import/import.h"

int main(int argc, char** argv) {
  CLI::App app{"Imports one large graph into a store"};
  permafrost::data::ImportOptions options;
  std::string directory;
  bool directed = false;
  uint64_t memory_mb = 0;
  app.add_option("source", options.source, "A file of edges, or a directory in OGB's or NPY layout")->required();
  app.add_option("directory", directory, "Where the store is written")->required();
  app.add_flag("--directed", directed, "Leave inverse edges out");
  app.add_option("--memory-mb", memory_mb, "Memory for sorting and buffers; 0: a quarter of the machine's");
  CLI11_PARSE(app, argc, argv);
  options.inverse_edges = directed ? permafrost::data::InverseEdges::kKeep : permafrost::data::InverseEdges::kAdd;
  options.memory_bytes = memory_mb << 20;
  if (const absl::Status made = permafrost::CreateDirectories(directory); !made.ok()) {
    std::fprintf(stderr, "data_import: %s\n", made.ToString().c_str());
    return 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto imported = permafrost::data::Import(options, directory, {}, {});
  if (!imported.ok()) {
    std::fprintf(stderr, "data_import: %s\n", imported.status().ToString().c_str());
    return 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto& graph = std::get<permafrost::data::GraphSummary>(*imported);
  const nlohmann::json line = {{"nodes", graph.nodes},
                               {"edges", graph.edges},
                               {"adjacency_bytes", graph.adjacency_bytes},
                               {"store_bytes", graph.store_bytes},
                               {"seconds", seconds}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}
