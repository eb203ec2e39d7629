// Edges as an import sorts them: a 64-bit key of two node rows, and what the edge carries. The narrower, the more fit
// into memory: the widest one that a graph needs is chosen once, and the sort is compiled for each.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/patience.h"
#include "base/status.h"
#include "data/sort/nameless_file.h"
#include "data/store/graph.h"

namespace permafrost::data {

// The row that edges are gathered under above, the other end below: sorted keys are an adjacency.
using EdgeKey = uint64_t;
constexpr EdgeKey MakeEdgeKey(NodeId major, NodeId minor) { return EdgeKey{major} << 32 | minor; }
constexpr NodeId MajorOf(EdgeKey key) { return static_cast<NodeId>(key >> 32); }
constexpr NodeId MinorOf(EdgeKey key) { return static_cast<NodeId>(key); }
constexpr EdgeKey SwapEnds(EdgeKey key) { return key << 32 | key >> 32; }

struct PlainEdge {
  static constexpr bool kHasWeight = false, kHasAll = false;
  EdgeKey key = 0;
};
struct WeightedEdge {
  static constexpr bool kHasWeight = true, kHasAll = false;
  EdgeKey key = 0;
  float weight = 0;
  uint32_t order = 0;  // set by the sorter, within what it sorts at once
};
// All that an edge can carry.
struct FullEdge {
  static constexpr bool kHasWeight = true, kHasAll = true;
  EdgeKey key = 0;
  uint64_t row = 0;  // of the source, rising: the order of equal keys
  int64_t timestamp = 0;
  float weight = 0;
};

// By key, then by the order in which the edges came. Equal plain edges cannot be told apart, and need no order.
inline bool Before(const PlainEdge& a, const PlainEdge& b) { return a.key < b.key; }
inline bool Before(const WeightedEdge& a, const WeightedEdge& b) {
  return a.key != b.key ? a.key < b.key : a.order < b.order;
}
inline bool Before(const FullEdge& a, const FullEdge& b) { return a.key != b.key ? a.key < b.key : a.row < b.row; }

// Edges on disk in the order they came, to be read once or more.
// Threads: one at a time. Memory: a piece. The file has no name, and so is gone whenever the process is.
template <class Record>
class EdgeSpool {
 public:
  static absl::StatusOr<EdgeSpool> Create(const std::filesystem::path& directory, std::stop_token stop) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory));
    return EdgeSpool(std::move(file), std::move(stop));
  }

  // Errors: of the disk; Cancelled.
  absl::Status Append(std::span<const Record> edges) { return file_.Append(std::as_bytes(edges), stop_); }

  // Calls take(std::span<Record>) with all of them, some at a time, until it fails.
  template <class Take>
  absl::Status ForEach(const Take& take) const {
    constexpr uint64_t kAtOnce = uint64_t{1} << 16;
    std::vector<Record> edges;
    for (uint64_t at = 0; at < file_.size(); at += edges.size() * sizeof(Record)) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      edges.resize(std::min(kAtOnce, (file_.size() - at) / sizeof(Record)));
      PF_RETURN_IF_ERROR(file_.Read(at, std::as_writable_bytes(std::span(edges))));
      PF_RETURN_IF_ERROR(take(std::span(edges)));
    }
    return absl::OkStatus();
  }

 private:
  EdgeSpool(NamelessFile file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  NamelessFile file_;
  std::stop_token stop_;
};

}  // namespace permafrost::data
