// Times sampling from one store, a run at a time, so that another program's runs can be interleaved with these.
// Reads commands from standard input and answers each with one line of JSON:
//   info                  what the store holds
//   fanout SEED           one hop of the NeighborSampler that trains around every node, in shuffled order
//   fanout-rows SEED      the same in the order of rows
//   walk SEED             uniform RandomWalks
//   node2vec SEED P Q     Node2Vec's
//   batches SEED          a sampled subgraph (15, 10) of each of the batches, with the pages asked for
//   gather SEED           the same, with the features gathered into padded batches
// Every answer has "seconds" and what was done in them; memory is allocated and read once before.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/batching/block_batch.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/random_walk.h"

namespace permafrost::data {
namespace {

struct Settings {
  std::string store;
  int threads = 2;
  int64_t fan_out = 15, walks = 200'000, length = 40, batches = 30, batch_size = 1024;
  std::vector<int64_t> fan_outs = {15, 10};
};

void Require(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <class F>
double Seconds(const F& work) {
  const auto begin = std::chrono::steady_clock::now();
  Require(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Bench {
 public:
  Bench(Settings settings, std::shared_ptr<const Graph> graph)
      : settings_(std::move(settings)), graph_(std::move(graph)) {
    rows_.resize(graph_->view().nodes);
    std::iota(rows_.begin(), rows_.end(), NodeId{0});
    shuffled_ = rows_;
    SplitMix64 random(1, 1);
    Shuffle(std::span(shuffled_), random);
    auto one_hop =
        NeighborSampler::Create(graph_->view(), {.fan_outs = {settings_.fan_out}, .seed = 1}, settings_.threads);
    Require(one_hop.status());
    one_hop_ = *std::move(one_hop);
    settings_.walks = std::min<int64_t>(settings_.walks, static_cast<int64_t>(rows_.size()));
    walked_.resize(static_cast<size_t>(settings_.walks * settings_.length));
    auto batcher = BlockBatcher::Create(
        graph_, {.sampling = {.fan_outs = settings_.fan_outs, .seed = 1}, .threads = settings_.threads});
    Require(batcher.status());
    batcher_ = *std::move(batcher);
  }

  nlohmann::json Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    uint64_t seed = 0;
    words >> command >> seed;
    nlohmann::json answer = {{"command", command}};
    if (command == "info") {
      const GraphSummary& summary = graph_->summary();
      answer["nodes"] = summary.nodes;
      answer["edges"] = summary.edges;
      answer["adjacency_bytes"] = summary.adjacency_bytes;
      answer["store_bytes"] = summary.store_bytes;
    } else if (command == "fanout" || command == "fanout-rows") {
      const std::vector<NodeId>& nodes = command == "fanout" ? shuffled_ : rows_;
      answer["seconds"] =
          Seconds([&] { return one_hop_->Sample(nodes, seed, /*with_edge_places=*/false, nullptr, subgraph_); });
      answer["edges"] = subgraph_.sources.size();
    } else if (command == "walk" || command == "node2vec") {
      WalkOptions options{.length = settings_.length, .seed = seed};
      if (command == "node2vec") words >> options.p >> options.q;
      answer["seconds"] = Seconds([&] {
        return RandomWalks(graph_->view(), std::span(shuffled_).first(static_cast<size_t>(settings_.walks)), options,
                           settings_.threads, walked_);
      });
      // The start is no step.
      answer["steps"] = settings_.walks * (settings_.length - 1);
    } else if (command == "batches" || command == "gather") {
      Batches(command == "gather", seed, answer);
    } else {
      answer["error"] = "unknown command";
    }
    if (!words && words.fail() && !words.eof()) answer["error"] = "a number was expected";
    return answer;
  }

 private:
  void Batches(bool gather, uint64_t seed, nlohmann::json& answer) {
    const auto size = static_cast<size_t>(settings_.batch_size);
    const size_t available = rows_.size() / size;
    int64_t nodes = 0, edges = 0;
    answer["seconds"] = Seconds([&]() -> absl::Status {
      for (int64_t b = 0; b < settings_.batches; ++b) {
        const auto stream = seed * static_cast<uint64_t>(settings_.batches) + static_cast<uint64_t>(b);
        const auto seeds = std::span(shuffled_).subspan(stream % available * size, size);
        if (absl::Status sampled = batcher_->Sample(seeds, stream, &advisor_, subgraph_); !sampled.ok()) return sampled;
        nodes += static_cast<int64_t>(subgraph_.nodes.size());
        edges += static_cast<int64_t>(subgraph_.sources.size());
        if (!gather) continue;
        absl::StatusOr<BlockSizes> sizes = SizesOf(subgraph_, graph_->view());
        if (!sizes.ok()) return sizes.status();
        for (int64_t& rows : sizes->nodes) rows = (rows / 4096 + 1) * 4096;
        if (absl::Status gathered = batcher_->Gather(subgraph_, *sizes, batch_); !gathered.ok()) return gathered;
      }
      return absl::OkStatus();
    });
    answer["batches"] = settings_.batches;
    answer["nodes"] = nodes;
    answer["edges"] = edges;
    const PageCounters pages = advisor_.counters();
    answer["pages_wanted"] = pages.wanted_pages;
    answer["advised_bytes"] = pages.advised_bytes;
    answer["resident_share"] =
        pages.sampled_pages == 0 ? 0.0
                                 : static_cast<double>(pages.resident_pages) / static_cast<double>(pages.sampled_pages);
  }

  Settings settings_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<NeighborSampler> one_hop_;
  std::unique_ptr<BlockBatcher> batcher_;
  PageAdvisor advisor_{{}};
  std::vector<NodeId> rows_, shuffled_, walked_;
  SampledSubgraph subgraph_;
  BlockBatch batch_;
};

int Main(int argc, char** argv) {
  CLI::App app{"Times sampling from one store; commands on standard input, one line of JSON each on standard output"};
  Settings settings;
  app.add_option("store", settings.store, "The directory of a large graph")->required();
  app.add_option("--threads", settings.threads, "Default 2");
  app.add_option("--fan-out", settings.fan_out, "Of fanout; default 15");
  app.add_option("--walks", settings.walks, "Default 200000");
  app.add_option("--length", settings.length, "Nodes of a walk; default 40");
  app.add_option("--batches", settings.batches, "Of one run; default 30");
  app.add_option("--batch-size", settings.batch_size, "Default 1024");
  app.add_option("--fan-outs", settings.fan_outs, "Of batches, by hop; default 15 10");
  CLI11_PARSE(app, argc, argv);
  try {
    auto graph = Graph::Open(settings.store);
    Require(graph.status());
    Bench bench(settings, *graph);
    for (std::string line; std::getline(std::cin, line);) std::cout << bench.Answer(line).dump() << std::endl;
    Require((*graph)->CheckIntact());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_sampling: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace permafrost::data

int main(int argc, char** argv) { return permafrost::data::Main(argc, argv); }
