// A fake of this process's MPS. Its hooks record every call, next to the stand-in's kernels. Its cache of compiled
// graphs is like libtorch's MPSGraphCache: operators of MPSGraph leave an entry for each shape. The fake checks the
// duties of a backend: it calls MPS on one thread, inside an autorelease pool, and runs nothing while caches are
// emptied.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace permafrost::device {

class FakeMps {
 public:
  static FakeMps& Get();

  // Resets the fake: no recorded calls, no graphs, no owner, and no memory except that of tensors.
  void Reset();
  // Sets the driver's memory besides tensors and graphs, and the driver's memory per graph.
  void SetDriver(int64_t bytes, int64_t bytes_of_a_graph);
  void SetRecommendedMax(int64_t bytes);
  // With `kept`, emptyCache wrongly leaves the graphs in place.
  void SetKeptGraphs(bool kept);
  // With `leak`, each optimizer step leaves one more graph, whatever its shapes.
  void SetLeak(bool leak);
  // With `fault`, gradients are too large by one per cent.
  void SetFault(bool fault);

  // The copies between host and device so far. Reading a value back counts as one.
  struct Copies {
    int64_t to_device = 0, to_host = 0;
    int64_t waited_for = 0;  // the part of `to_device` that was waited for
    bool operator==(const Copies&) const = default;
  };
  Copies copies() const;
  int64_t graphs() const;
  // Returns the calls that change something, in order: "synchronize", "empty", and one "op" for consecutive
  // operators.
  std::vector<std::string> calls() const;
  // Returns one line for each call that real MPS would not tolerate.
  std::vector<std::string> violations() const;
};

}  // namespace permafrost::device
