// The operators that bench/run operators times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace permafrost::nn {

// An operator beside the same of PyTorch's operators: forward, and backward where it has a gradient.
struct OperatorCase {
  std::string name, shape;
  std::function<void()> fused, plain;
};
std::vector<OperatorCase> MakeOperatorCases();

// The work of one kind of parallel region by itself, to find from which size on several threads pay. Sizes are in the
// unit of `constant`, which says where the operators go parallel.
struct ParallelRegion {
  std::string name, constant;
  // Work of about `size` in as many parts as threads are set, whatever the size.
  std::function<std::function<void()>(int64_t size)> make;
};
std::vector<ParallelRegion> MakeParallelRegions();

}  // namespace permafrost::nn
