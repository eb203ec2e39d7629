// Finds the inputs of a graph that its operators write to, also through views. Threads: one thread at a time.
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

}  // namespace permafrost::program
