// This process's MPS: hooks that note every call, beside the stand-in's kernels, and a cache of compiled graphs as
// libtorch's MPSGraphCache has one, in which operators of MPSGraph leave an entry for each shape. The fake checks what
// a backend owes MPS: one thread, a pool around what it does, nothing running while caches are emptied. Threads: safe
// anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace permafrost::device {

class FakeMps {
 public:
  static FakeMps& Get();

  // Begins anew: nothing noted, no graph, no owner, no memory but what tensors hold.
  void Reset();
  // Sets what the driver holds beside tensors and graphs, and what a graph takes of it.
  void SetDriver(int64_t bytes, int64_t bytes_of_a_graph);
  void SetRecommendedMax(int64_t bytes);
  // Graphs that emptyCache leaves, which it should not.
  void SetKeptGraphs(bool kept);
  // Each optimizer step leaves one more graph, whatever its shapes.
  void SetLeak(bool leak);
  // Gradients are a hundredth too large.
  void SetFault(bool fault);

  // Copies between host and device so far; a value read back is one.
  struct Copies {
    int64_t to_device = 0, to_host = 0;
    int64_t waited_for = 0;  // of those to the device
    bool operator==(const Copies&) const = default;
  };
  Copies copies() const;
  int64_t graphs() const;
  // Calls that change something, in order: "synchronize", "empty", and "op" for operators in a row.
  std::vector<std::string> calls() const;
  // One line for each thing that MPS would not bear.
  std::vector<std::string> violations() const;
};

}  // namespace permafrost::device
