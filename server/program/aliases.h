// Finds what shares memory in a graph, and which of it an operator may write to. Aliases follows the alias annotations
// of libtorch's schemas, and tells which inputs of a graph are written to. SharedMemory is torch-free, for rewritings:
// it assumes views where it does not know better. Threads: Aliases by one thread at a time; SharedMemory is a plain
// value.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "program/program.h"

namespace permafrost::program {

class Aliases {
 public:
  explicit Aliases(const Graph& graph) : graph_(graph), sources_of_(graph.values.size(), kNone) {}

  // The node's outputs may be any of `sources`, or views of them.
  void Follow(const Node& node, std::vector<ValueIndex> sources);
  void Write(ValueIndex value) { written_.push_back(value); }
  // Returns the graph's inputs that Write reaches. Visits each value and each list of sources once, so time is linear.
  std::set<ValueIndex> WrittenInputs() const;

 private:
  static constexpr int32_t kNone = -1;
  const Graph& graph_;
  std::vector<int32_t> sources_of_;               // by value: a place in sources_
  std::vector<std::vector<ValueIndex>> sources_;  // shared by the outputs of a node
  std::vector<ValueIndex> written_;
};

// Tells whether an operator may return what it takes, or views of it, although its schema does not say so.
bool ReturnsArguments(const Node& node);

class SharedMemory {
 public:
  explicit SharedMemory(const Graph& graph);
  // True if an operator may write to the value, or to another that shares its memory, at any time. An operator not
  // listed as returning fresh memory is assumed to return views of all its arguments.
  bool IsWritten(ValueIndex value) const { return WritersOf(value) > 0; }
  // Returns how many nodes may write to the value, or to another that shares its memory.
  int64_t WritersOf(ValueIndex value) const { return writers_[roots_[value]]; }

 private:
  ValueIndex Find(ValueIndex value);
  void Join(const std::vector<ValueIndex>& values);

  std::vector<ValueIndex> roots_;  // values that share memory have one
  std::vector<int64_t> writers_;   // by root
};

}  // namespace permafrost::program
