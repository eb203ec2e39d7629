#include "data/sampling/sample_query.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sampling/edge_draw.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

constexpr int64_t kMaxCount = 10'000;
// Makes the draw of the seeds independent of the draws that sample around them.
constexpr uint64_t kNodesStream = 0x6e6f646573;

absl::Status TooMany(std::string_view what, std::string_view remedy) {
  return absl::ResourceExhaustedError(absl::StrCat("the sample has more than ", kMaxSampledEdges, " ", AbslView(what),
                                                   ", the most that are shown; ask for ", AbslView(remedy)));
}

// Draws `count` distinct rows, or all rows if there are fewer.
std::vector<NodeId> DrawNodes(uint64_t rows, int64_t count, uint64_t seed) {
  std::vector<NodeId> nodes;
  SplitMix64 random(seed, kNodesStream);
  // Source: Bentley and Floyd 1987, "A sample of brilliance".
  const uint64_t wanted = std::min(rows, static_cast<uint64_t>(count));
  for (uint64_t last = rows - wanted; last < rows; ++last) {
    const auto draw = static_cast<NodeId>(ScaleBits(random.Next(), last + 1));
    const bool drawn = std::find(nodes.begin(), nodes.end(), draw) != nodes.end();
    nodes.push_back(drawn ? static_cast<NodeId>(last) : draw);
  }
  return nodes;
}

// Returns the most edges that the hop after the subgraph's last hop will draw. For LABOR, returns the average number.
absl::StatusOr<uint64_t> EdgesOfNextHop(const GraphView& view, const NeighborSamplingOptions& options,
                                        const SampledSubgraph& subgraph) {
  const auto hops = static_cast<size_t>(subgraph.hops());
  const int64_t fan_out = options.fan_outs[hops];
  uint64_t edges = 0;
  bool ok = true;
  for (auto i = static_cast<size_t>(hops == 0 ? 0 : subgraph.row_ends[hops - 1]); i < subgraph.nodes.size(); ++i) {
    // With LABOR, a hop may draw more edges than this, so the caller checks the number of edges after each hop too.
    edges += MaxDrawn(view.in.Of(subgraph.nodes[i], ok).size(), fan_out, options.replace);
  }
  if (options.max_edges > 0) edges = std::min(edges, static_cast<uint64_t>(options.max_edges - subgraph.edges()));
  return ok ? absl::StatusOr<uint64_t>(edges) : view.in.offsets.status();
}

// Samples the first hop, then the first two hops anew, and so on. A sample that is too large is thus refused before
// it takes memory. This works because a sample of fewer hops draws the same edges in these hops.
absl::Status SampleSubgraph(const GraphView& view, const NeighborSamplingOptions& options,
                            std::span<const NodeId> seeds, std::span<const int64_t> times, int threads,
                            SampledSubgraph& subgraph) {
  // Checks all options before the first hop.
  PF_RETURN_IF_ERROR(NeighborSampler::Create(view, options, threads).status());
  subgraph.nodes.assign(seeds.begin(), seeds.end());
  subgraph.row_ends.assign(1, static_cast<int64_t>(seeds.size()));
  for (size_t hops = 1; hops <= options.fan_outs.size(); ++hops) {
    PF_ASSIGN_OR_RETURN(const uint64_t more, EdgesOfNextHop(view, options, subgraph));
    if (subgraph.sources.size() + more > static_cast<uint64_t>(kMaxSampledEdges)) {
      return TooMany("edges", "fewer nodes, hops or neighbours");
    }
    NeighborSamplingOptions first_hops = options;
    first_hops.fan_outs.resize(hops);
    PF_ASSIGN_OR_RETURN(auto sampler, NeighborSampler::Create(view, first_hops, threads));
    PF_RETURN_IF_ERROR(sampler->Sample(seeds, 0, true, nullptr, subgraph, times));
    if (subgraph.edges() > kMaxSampledEdges) return TooMany("edges", "fewer nodes, hops or neighbours");
  }
  return absl::OkStatus();
}

absl::Status SampleNeighbors(const GraphView& view, const NeighborSamplingOptions& options,
                             std::optional<int64_t> seed_time, int threads, SampleAnswer& answer) {
  SampledSubgraph subgraph;
  std::vector<int64_t> times;
  PF_RETURN_IF_ERROR(SeedTimes(options.temporal, seed_time, view).Of(answer.nodes, times));
  PF_RETURN_IF_ERROR(SampleSubgraph(view, options, answer.nodes, times, threads, subgraph));
  int64_t before = 0;
  for (const int64_t end : subgraph.row_ends) {
    answer.nodes_of_hop.push_back(end - std::exchange(before, end));
  }
  answer.edges.reserve(subgraph.sources.size());
  int64_t hop = 1;
  for (size_t row = 0; row + 1 < subgraph.offsets.size(); ++row) {
    // The edges of nodes first found in hop h are drawn in hop h + 1.
    while (static_cast<int64_t>(row) >= subgraph.row_ends[static_cast<size_t>(hop - 1)]) ++hop;
    for (auto e = static_cast<size_t>(subgraph.offsets[row]); e < static_cast<size_t>(subgraph.offsets[row + 1]); ++e) {
      SampleAnswer::Edge edge{.source = subgraph.nodes[static_cast<size_t>(subgraph.sources[e])],
                              .target = subgraph.nodes[row],
                              .hop = hop};
      const uint64_t place = subgraph.edge_places[e];
      if (!view.in.weights.empty()) {
        if (!view.in.weights.Touch(place, place + 1)) return view.in.weights.status();
        edge.weight = view.in.weights[place];
      }
      if (!view.in.timestamps.empty()) {
        if (!view.in.timestamps.Touch(place, place + 1)) return view.in.timestamps.status();
        edge.timestamp = view.in.timestamps[place];
      }
      if (!subgraph.owners.empty()) edge.seed = subgraph.nodes[subgraph.owners[row]];
      answer.edges.push_back(edge);
    }
  }
  return absl::OkStatus();
}

absl::Status SampleWalks(const GraphView& view, const WalkOptions& options, int threads, SampleAnswer& answer) {
  if (options.length > 0 && static_cast<int64_t>(answer.nodes.size()) > kMaxSampledEdges / options.length) {
    return TooMany("walk steps", "fewer or shorter walks");
  }
  answer.walk_length = options.length;
  answer.walks.resize(answer.nodes.size() * static_cast<size_t>(std::max<int64_t>(options.length, 0)));
  return RandomWalks(view, answer.nodes, options, threads, answer.walks);
}

absl::Status NameRows(const NodeNames& names, SampleAnswer& answer) {
  std::vector<NodeId> rows = answer.nodes;
  rows.insert(rows.end(), answer.walks.begin(), answer.walks.end());
  for (const SampleAnswer::Edge& edge : answer.edges) {
    rows.push_back(edge.source);
    rows.push_back(edge.target);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (const NodeId row : rows) {
    PF_ASSIGN_OR_RETURN(std::string name, NameOf(names, row));
    answer.names.emplace_back(row, std::move(name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SampleAnswer> Sample(const Graph& graph, const SampleQuery& query, int threads) {
  const GraphView& view = graph.view();
  Violations violations;
  std::vector<NodeId> nodes = query.nodes;
  if (!query.names.empty()) {
    if (!nodes.empty()) violations.Add("names", "stand beside nodes; one of them is accepted");
    if (query.names.size() > static_cast<size_t>(kMaxCount)) {
      violations.Add("names", absl::StrCat(query.names.size(), " names; at most ", kMaxCount, " are accepted"));
    }
    PF_RETURN_IF_ERROR(violations.ToStatus());
    PF_ASSIGN_OR_RETURN(nodes, FindNames(graph, query.names));
  }
  const std::string_view given = query.names.empty() ? "nodes" : "names";
  if (nodes.empty() && (query.count < 1 || query.count > kMaxCount)) {
    violations.Add("count", absl::StrCat(query.count, " is outside 1..", kMaxCount));
  }
  if (nodes.size() > static_cast<size_t>(kMaxCount)) {
    violations.Add("nodes", absl::StrCat(nodes.size(), " nodes; at most ", kMaxCount, " are accepted"));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] >= view.nodes) {
      violations.Add(absl::StrCat("nodes[", i, "]"),
                     absl::StrCat(nodes[i], " is none of the graph's ", view.nodes, " rows"));
    }
  }
  if (std::holds_alternative<NeighborSamplingOptions>(query.kind)) {
    absl::flat_hash_set<NodeId> seen;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (seen.insert(nodes[i]).second) continue;
      violations.Add(absl::StrCat(AbslView(given), "[", i, "]"),
                     absl::StrCat(query.names.empty() ? absl::StrCat(nodes[i]) : query.names[i],
                                  " stands twice; each may stand once"));
    }
  }
  if (query.seed_time) {
    const auto* sampling = std::get_if<NeighborSamplingOptions>(&query.kind);
    if (sampling == nullptr || sampling->temporal == spec::TemporalSampling::kNone) {
      violations.Add("seed_time", "is given without temporal; accepted: with temporal uniform or last");
    }
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());

  const auto seed = std::visit([](const auto& kind) { return kind.seed; }, query.kind);
  SampleAnswer answer;
  answer.nodes = nodes.empty() ? DrawNodes(view.nodes, query.count, seed) : std::move(nodes);
  const auto begin = std::chrono::steady_clock::now();
  if (const auto* sampling = std::get_if<NeighborSamplingOptions>(&query.kind)) {
    PF_RETURN_IF_ERROR(SampleNeighbors(view, *sampling, query.seed_time, threads, answer));
  } else {
    PF_RETURN_IF_ERROR(SampleWalks(view, std::get<WalkOptions>(query.kind), threads, answer));
  }
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (graph.summary().named) PF_RETURN_IF_ERROR(NameRows(graph.names(), answer));
  PF_RETURN_IF_ERROR(graph.CheckIntact());
  return answer;
}

}  // namespace permafrost::data
