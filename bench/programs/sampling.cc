// Times sampling from one store, a run at a time, so that another program's runs can be interleaved with these.
// Reads commands from standard input and answers each with one line of JSON:
//   info                  what the store holds
//   neighbors SEED        one hop (--fan-out) of every node, in batches of seeds in shuffled order: NeighborSampler
//   neighbors-rows SEED   the same in the order of rows
//   neighbors-replace SEED   as `neighbors`, drawn with replacement: as many edges of every node that has one
//   subgraphs SEED        --fan-outs around each of --batches batches of seeds: NeighborSampler
//   prepared SEED         the same as a job prepares them: pages asked for, features gathered into padded batches
//   means SEED            as `prepared`, with the neighbours' means of the first layer in place of the last hop's rows
//   walk SEED             uniform RandomWalks
//   node2vec SEED P Q     Node2Vec's, from a tenth of the starts
// Every answer has "seconds" and "done", the edges or steps drawn in them; memory is allocated and read once before.
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
    settings_.walks = std::min<int64_t>(settings_.walks, static_cast<int64_t>(rows_.size()));
    walked_.resize(static_cast<size_t>(settings_.walks * settings_.length));
    batcher_ = Batcher(false);
    if (settings_.fan_outs.size() >= 2) means_ = Batcher(true);
    one_hop_ = Sampler({settings_.fan_out}, false);
    replacing_ = Sampler({settings_.fan_out}, true);
    hops_ = Sampler(settings_.fan_outs, false);
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
    } else if (command == "neighbors" || command == "neighbors-rows" || command == "neighbors-replace") {
      const auto batches = (rows_.size() + BatchSize() - 1) / BatchSize();
      Draw(command == "neighbors-replace" ? *replacing_ : *one_hop_, command == "neighbors-rows" ? rows_ : shuffled_,
           static_cast<int64_t>(batches), seed, answer);
    } else if (command == "subgraphs") {
      Draw(*hops_, shuffled_, settings_.batches, seed, answer);
    } else if (command == "prepared") {
      Prepare(*batcher_, seed, answer);
    } else if (command == "means" && means_ != nullptr) {
      Prepare(*means_, seed, answer);
    } else if (command == "walk" || command == "node2vec") {
      WalkOptions options{.length = settings_.length, .seed = seed};
      if (command == "node2vec") words >> options.p >> options.q;
      const auto starts = static_cast<size_t>(command == "walk" ? settings_.walks : (settings_.walks + 9) / 10);
      answer["seconds"] = Seconds([&] {
        return RandomWalks(graph_->view(), std::span(shuffled_).first(starts), options, settings_.threads,
                           std::span(walked_).first(starts * static_cast<size_t>(settings_.length)));
      });
      // The start is no step.
      answer["done"] = static_cast<int64_t>(starts) * (settings_.length - 1);
    } else {
      answer["error"] = "unknown command";
    }
    if (!words && words.fail() && !words.eof()) answer["error"] = "a number was expected";
    return answer;
  }

 private:
  std::unique_ptr<BlockBatcher> Batcher(bool means) const {
    auto batcher =
        BlockBatcher::Create(graph_, {.sampling = {.fan_outs = settings_.fan_outs, .last_hop_apart = means, .seed = 1},
                                      .threads = settings_.threads});
    Require(batcher.status());
    return *std::move(batcher);
  }
  std::unique_ptr<NeighborSampler> Sampler(std::vector<int64_t> fan_outs, bool replace) const {
    auto sampler = NeighborSampler::Create(
        graph_->view(), {.fan_outs = std::move(fan_outs), .replace = replace, .seed = 1}, settings_.threads);
    Require(sampler.status());
    return *std::move(sampler);
  }

  size_t BatchSize() const { return static_cast<size_t>(settings_.batch_size); }
  // Batch `b` of `nodes`, which begin again after their last batch.
  std::span<const NodeId> Seeds(const std::vector<NodeId>& nodes, uint64_t b) const {
    const size_t batches = (nodes.size() + BatchSize() - 1) / BatchSize();
    const size_t begin = b % batches * BatchSize();
    return std::span(nodes).subspan(begin, std::min(BatchSize(), nodes.size() - begin));
  }

  void Draw(NeighborSampler& sampler, const std::vector<NodeId>& nodes, int64_t batches, uint64_t seed,
            nlohmann::json& answer) {
    int64_t edges = 0;
    answer["seconds"] = Seconds([&]() -> absl::Status {
      for (uint64_t b = 0; b < static_cast<uint64_t>(batches); ++b) {
        const uint64_t stream = seed * static_cast<uint64_t>(batches) + b;
        if (absl::Status drawn = sampler.Sample(Seeds(nodes, b), stream, false, nullptr, subgraph_); !drawn.ok()) {
          return drawn;
        }
        edges += std::ssize(subgraph_.sources);
      }
      return absl::OkStatus();
    });
    answer["done"] = edges;
  }

  void Prepare(BlockBatcher& batcher, uint64_t seed, nlohmann::json& answer) {
    int64_t nodes = 0, edges = 0;
    answer["seconds"] = Seconds([&]() -> absl::Status {
      for (int64_t b = 0; b < settings_.batches; ++b) {
        const auto stream = seed * static_cast<uint64_t>(settings_.batches) + static_cast<uint64_t>(b);
        PageAdvisor* const asked = advisor_.WantsBatch() ? &advisor_ : nullptr;
        if (absl::Status sampled = batcher.Sample(Seeds(shuffled_, stream), stream, asked, subgraph_); !sampled.ok()) {
          return sampled;
        }
        nodes += std::ssize(subgraph_.nodes);
        edges += subgraph_.edges();
        absl::StatusOr<BlockSizes> sizes = SizesOf(subgraph_, graph_->view());
        if (!sizes.ok()) return sizes.status();
        for (int64_t& rows : sizes->nodes) rows = (rows / 4096 + 1) * 4096;
        if (absl::Status gathered = batcher.Gather(subgraph_, *sizes, batch_); !gathered.ok()) return gathered;
      }
      return absl::OkStatus();
    });
    answer["batches"] = settings_.batches;
    answer["nodes"] = nodes;
    answer["done"] = edges;
  }

  Settings settings_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<BlockBatcher> batcher_, means_;  // means_: nullptr where there is one hop
  PageAdvisor advisor_{{}};
  std::unique_ptr<NeighborSampler> one_hop_, replacing_, hops_;
  std::vector<NodeId> rows_, shuffled_, walked_;
  SampledSubgraph subgraph_;
  BlockBatch batch_;
};

int Main(int argc, char** argv) {
  CLI::App app{"Times sampling from one store; commands on standard input, one line of JSON each on standard output"};
  Settings settings;
  app.add_option("store", settings.store, "The directory of a large graph")->required();
  app.add_option("--threads", settings.threads, "Default 2");
  app.add_option("--fan-out", settings.fan_out, "Of neighbors; default 15");
  app.add_option("--walks", settings.walks, "Default 200000");
  app.add_option("--length", settings.length, "Nodes of a walk; default 40");
  app.add_option("--batches", settings.batches, "Of subgraphs and prepared; default 30");
  app.add_option("--batch-size", settings.batch_size, "Seeds; default 1024");
  app.add_option("--fan-outs", settings.fan_outs, "Of subgraphs and prepared, by hop; default 15 10");
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
