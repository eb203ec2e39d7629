// Finds the values of a graph whose memory an operator may write to. Threads: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace permafrost::program {

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

// "scatter_add_"
bool WritesInPlace(const Node& node);
// Values that a node takes, kNoValue left out.
std::vector<ValueIndex> InputsOf(const Node& node);

}  // namespace permafrost::program
