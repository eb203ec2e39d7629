// Writes small graphs, and reads everything that an open graph holds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "data/store/format.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// The sections of one graph, as an import would write them.
struct TestGraph {
  struct Part {
    SectionKind kind;
    ElementType type;
    uint32_t width;
    std::string bytes;
  };
  GraphSummary summary;
  std::vector<Part> parts;

  template <class T>
  void Add(SectionKind kind, ElementType type, const std::vector<T>& values, uint32_t width = 1) {
    parts.push_back(
        {kind, type, width, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))});
  }
  const Part* Find(SectionKind kind) const {
    for (const Part& part : parts) {
      if (part.kind == kind) return &part;
    }
    return nullptr;
  }
  void Drop(SectionKind kind) {
    std::erase_if(parts, [kind](const Part& part) { return part.kind == kind; });
  }
  // Creates `directory` and writes the graph into it.
  absl::Status Write(const std::filesystem::path& directory, bool packed_rows = false, std::stop_token stop = {}) {
    std::filesystem::create_directories(directory);
    auto writer = GraphWriter::Create(directory, std::move(stop), packed_rows);
    if (!writer.ok()) return writer.status();
    for (const Part& part : parts) {
      // Appends in pieces that do not end at a row's end.
      if (absl::Status s = (*writer)->Begin(part.kind, part.type, part.width); !s.ok()) return s;
      const auto bytes = std::as_bytes(std::span(part.bytes));
      const size_t first = std::min<size_t>(bytes.size(), 70'001);
      if (absl::Status s = (*writer)->Append(bytes.first(first)); !s.ok()) return s;
      if (absl::Status s = (*writer)->Append(bytes.subspan(first)); !s.ok()) return s;
    }
    return (*writer)->Finish(summary);
  }
};

struct TestGraphOptions {
  uint64_t nodes = 9000, edges = 20'000;  // large enough that offsets and edges span several blocks
  bool symmetric = false;
  // kNone stands for sparse features.
  DataType features = DataType::kFloat32;
  bool text_names = false;
};

// Makes a graph of random edges with every section that the options allow. A symmetric graph has no mirrored edges
// either, because nothing checks that.
inline TestGraph MakeTestGraph(const TestGraphOptions& o) {
  std::mt19937_64 random(7);
  const auto below = [&random](uint64_t n) { return n == 0 ? 0 : random() % n; };
  TestGraph g;
  g.summary.nodes = static_cast<int64_t>(o.nodes);
  g.summary.edges = static_cast<int64_t>(o.edges);
  g.summary.symmetric = o.symmetric;
  g.summary.weighted = g.summary.timestamped = g.summary.named = true;
  g.summary.split_name = "time";
  using K = SectionKind;
  const auto offsets = [&](uint64_t total) {
    std::vector<uint64_t> out(o.nodes + 1);
    for (uint64_t& x : out) x = below(total + 1);
    std::sort(out.begin(), out.end());
    out.front() = 0;
    out.back() = total;
    return out;
  };
  const auto make = [&](uint64_t n, auto value) {
    std::vector<decltype(value())> out(n);
    for (auto& x : out) x = value();
    return out;
  };
  const auto adjacency = [&](K first) {
    const auto kind = [first](uint32_t i) { return static_cast<K>(static_cast<uint32_t>(first) + i); };
    g.Add(kind(0), ElementType::kUint64, offsets(o.edges));
    g.Add(kind(1), ElementType::kUint32, make(o.edges, [&] { return static_cast<uint32_t>(below(o.nodes)); }));
    g.Add(kind(2), ElementType::kFloat32, make(o.edges, [&] { return static_cast<float>(below(100)); }));
    g.Add(kind(3), ElementType::kInt64, make(o.edges, [&] { return -static_cast<int64_t>(below(1000)); }));
    g.Add(kind(4), ElementType::kUint64, make(o.edges, [&] { return below(o.edges); }));
  };
  adjacency(K::kInOffsets);
  if (!o.symmetric) adjacency(K::kOutOffsets);
  constexpr uint32_t kWidth = 3;
  if (o.features != DataType::kNone) {
    const ElementType type = ElementTypeOf(o.features);
    g.Add(K::kNodeFeatures, type,
          make(o.nodes * kWidth * ElementBytes(type), [&] { return static_cast<uint8_t>(below(256)); }), kWidth);
    g.summary.node_features = {.type = o.features, .width = kWidth, .min = {}, .max = {}};
    g.summary.edge_features = g.summary.node_features;
    if (o.features == DataType::kInt8) {
      g.Add(K::kNodeFeatureScales, ElementType::kFloat32, std::vector<float>{0.5f, 1, 2}, kWidth);
      g.summary.edge_features.type = DataType::kUint8;  // as wide as int8, but without scales
    }
    g.Add(K::kEdgeFeatures, ElementTypeOf(g.summary.edge_features.type),
          make(o.edges * kWidth * ElementBytes(type), [&] { return static_cast<uint8_t>(below(256)); }), kWidth);
  } else {
    const uint64_t nonzeros = o.nodes * 2;
    g.Add(K::kNodeFeatureOffsets, ElementType::kUint64, offsets(nonzeros));
    g.Add(K::kNodeFeatureColumns, ElementType::kUint32,
          make(nonzeros, [&] { return static_cast<uint32_t>(below(50)); }));
    g.Add(K::kNodeFeatureValues, ElementType::kFloat32, make(nonzeros, [&] { return static_cast<float>(below(9)); }));
    g.summary.node_features = {.type = DataType::kSparse, .width = 50, .min = {}, .max = {}};
    g.summary.node_feature_nonzeros = static_cast<int64_t>(nonzeros);
  }
  g.summary.position_columns = 4;
  g.Add(K::kPositions, ElementType::kFloat32, make(o.nodes * 4, [&] { return static_cast<float>(below(9)) - 4; }), 4);
  g.summary.num_targets = 2;
  g.Add(K::kLabels, ElementType::kFloat32, make(o.nodes * 2, [&] { return static_cast<float>(below(7)); }), 2);
  for (size_t s = 0; s < 3; ++s) {
    std::vector<uint32_t> ids;
    for (uint64_t n = s; n < o.nodes; n += 3) ids.push_back(static_cast<uint32_t>(n));
    g.summary.split_nodes[s] = static_cast<int64_t>(ids.size());
    g.Add(static_cast<K>(static_cast<size_t>(K::kTrainNodes) + s), ElementType::kUint32, ids);
  }
  constexpr K kLinks[] = {K::kTrainLinks, K::kValidLinks, K::kTestLinks};
  if (o.nodes > 0) {
    g.summary.links = {.given = true, .parts = {{{5, 0, 0}, {3, 4, 0}, {2, 0, 6}}}};
    const auto any_nodes = [&](int64_t count) {
      return make(static_cast<uint64_t>(count), [&] { return static_cast<uint32_t>(below(o.nodes)); });
    };
    for (size_t s = 0; s < 3; ++s) {
      g.Add(kLinks[s], ElementType::kUint32, any_nodes(2 * g.summary.links.parts[s].links), 2);
    }
    g.Add(K::kValidNegatives, ElementType::kUint32, any_nodes(int64_t{3} * 4), 4);
    g.Add(K::kTestNegatives, ElementType::kUint32, any_nodes(int64_t{2} * 6), 2);
  }
  if (o.text_names) {
    g.Add(K::kNodeNameOffsets, ElementType::kUint64, offsets(o.nodes * 5));
    g.Add(K::kNodeNameText, ElementType::kBytes, make(o.nodes * 5, [&] { return static_cast<char>('a' + below(26)); }));
  } else {
    g.Add(K::kNodeNumbers, ElementType::kUint64, make(o.nodes, [&] { return below(UINT64_MAX); }));
  }
  return g;
}

// Calls visit(kind, column) for every column that is present.
template <class Visit>
void ForEachColumn(const Graph& graph, Visit visit) {
  using K = SectionKind;
  const GraphView& v = graph.view();
  const auto adjacency = [&visit](K first, const Adjacency& a) {
    const auto kind = [first](uint32_t i) { return static_cast<K>(static_cast<uint32_t>(first) + i); };
    if (a.present()) visit(kind(0), a.offsets);
    if (!a.neighbors.empty()) visit(kind(1), a.neighbors);
    if (!a.weights.empty()) visit(kind(2), a.weights);
    if (!a.timestamps.empty()) visit(kind(3), a.timestamps);
    if (!a.edge_ids.empty()) visit(kind(4), a.edge_ids);
  };
  adjacency(K::kInOffsets, v.in);
  if (!graph.summary().symmetric) adjacency(K::kOutOffsets, v.out);
  if (const auto* dense = std::get_if<DenseFeatures>(&v.node_features)) {
    visit(K::kNodeFeatures, dense->bytes);
    if (!dense->scales.empty()) visit(K::kNodeFeatureScales, dense->scales);
  }
  if (const auto* sparse = std::get_if<SparseFeatures>(&v.node_features)) {
    visit(K::kNodeFeatureOffsets, sparse->offsets);
    visit(K::kNodeFeatureColumns, sparse->columns);
    visit(K::kNodeFeatureValues, sparse->values);
  }
  if (const auto* positions = std::get_if<DenseFeatures>(&v.positions)) visit(K::kPositions, positions->bytes);
  if (!v.edge_features.bytes.empty()) visit(K::kEdgeFeatures, v.edge_features.bytes);
  if (!v.labels.empty()) visit(K::kLabels, v.labels);
  for (size_t s = 0; s < 3; ++s) {
    if (!v.splits[s].empty()) visit(static_cast<K>(static_cast<size_t>(K::kTrainNodes) + s), v.splits[s]);
  }
  for (size_t s = 0; s < 3; ++s) {
    const GivenLinks& given = v.given_links;
    if (!given.links[s].empty()) visit(static_cast<K>(static_cast<size_t>(K::kTrainLinks) + s), given.links[s]);
    if (!given.negatives[s].empty()) {
      visit(static_cast<K>(static_cast<size_t>(K::kValidNegatives) + s - 1), given.negatives[s]);
    }
  }
  const NodeNames& names = graph.names();
  if (!names.numbers.empty()) visit(K::kNodeNumbers, names.numbers);
  if (!names.offsets.empty()) visit(K::kNodeNameOffsets, names.offsets);
  if (!names.text.empty()) visit(K::kNodeNameText, names.text);
}

// Reads every column the way samplers do: through Touch and Adjacency::Of. It trusts ids once they have been touched.
// Returns false if anything was damaged.
inline bool ReadEverything(const Graph& graph) {
  bool ok = true;
  uint64_t sum = 0;
  ForEachColumn(graph, [&](SectionKind, const auto& column) {
    constexpr uint64_t kPiece = 1000;
    for (uint64_t at = 0; at < column.size(); at += kPiece) {
      const uint64_t end = std::min(column.size(), at + kPiece);
      if (!column.Touch(at, end)) {
        ok = false;
        continue;
      }
      for (uint64_t i = at; i < end; ++i) {
        std::remove_cvref_t<decltype(column[0])> value = column[i];
        unsigned char first = 0;
        std::memcpy(&first, &value, 1);
        sum += first;
      }
    }
  });
  const GraphView& v = graph.view();
  std::vector<uint64_t> degrees(v.nodes);
  for (const Adjacency* a : {&v.in, &v.out}) {
    if (!a->present()) continue;
    for (uint64_t n = 0; n < v.nodes; ++n) {
      const auto extent = a->Of(static_cast<NodeId>(n), ok);
      if (!a->neighbors.Touch(extent.begin, extent.end)) {
        ok = false;
        continue;
      }
      for (uint64_t e = extent.begin; e < extent.end; ++e) ++degrees[a->neighbors[e]];
    }
  }
  for (const uint64_t d : degrees) sum += d;
  static std::atomic<uint64_t> read_by_all{0};  // keeps the reads from being optimised away
  read_by_all += sum;
  return ok;
}

}  // namespace permafrost::data
