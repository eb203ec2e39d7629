// Finds which values of a graph share memory, and which of them an operator may write to. Aliases uses the alias
// annotations of libtorch's schemas, and finds the inputs of a graph that are written to. SharedMemory serves
// rewritings and is torch-free. It assumes that an operator returns views, unless the operator is listed as returning
// fresh memory.
// Threads: one thread at a time per Aliases; SharedMemory is a plain value.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "program/program.h"

namespace permafrost::program {

class Aliases {
 public:
  explicit Aliases(const Graph& graph) : graph_(graph), sources_of_(graph.values.size(), kNone) {}

  // Notes that each output of the node may be one of `sources`, or a view of one.
  void Follow(const Node& node, std::vector<ValueIndex> sources);
  void Write(ValueIndex value) { written_.push_back(value); }
  // Returns the graph's inputs whose memory the written values share. It visits each value and each list of sources
  // once, so its time is linear.
  std::set<ValueIndex> WrittenInputs() const;

 private:
  static constexpr int32_t kNone = -1;
  const Graph& graph_;
  std::vector<int32_t> sources_of_;               // by value: an index in sources_, or kNone
  std::vector<std::vector<ValueIndex>> sources_;  // shared by the outputs of a node
  std::vector<ValueIndex> written_;
};

// Returns true if an operator may return its arguments, or views of them, although its schema does not say so.
bool ReturnsArguments(const Node& node);

class SharedMemory {
 public:
  explicit SharedMemory(const Graph& graph);
  // Returns true if an operator may write to the value, or to another value that shares its memory, at any time. An
  // operator that is not listed as returning fresh memory is assumed to return views of all its arguments.
  bool IsWritten(ValueIndex value) const { return WritersOf(value) > 0; }
  // Returns how many nodes may write to the value, or to another value that shares its memory.
  int64_t WritersOf(ValueIndex value) const { return writers_[roots_[value]]; }

 private:
  ValueIndex Find(ValueIndex value);
  void Join(const std::vector<ValueIndex>& values);

  std::vector<ValueIndex> roots_;  // by value: the same root for values that share memory
  std::vector<int64_t> writers_;   // by root
};

}  // namespace permafrost::program
