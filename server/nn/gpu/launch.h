// Launches the kernels of kernels.cu. Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>

#include "base/operators.h"

namespace permafrost::nn::gpu {

// The text of kernels.cu, to be compiled by the device.
extern const char* const kKernelSource;

// Sets the launcher that all later steps use. null: steps run PyTorch's operators alone.
void UseKernels(std::shared_ptr<const KernelLauncher> launcher);
const std::shared_ptr<const KernelLauncher>& Kernels();

// The most rows for kernels whose blocks walk whole columns. With more rows a few blocks would work long while the rest
// of the device is idle.
inline constexpr int64_t kMostRows = 1 << 15;

// Blocks that a launch may have in its second dimension.
inline constexpr int64_t kMostBlocks = 65'535;
// The most edges for the kernel edge_index, which compares each edge with all others. More are sorted by PyTorch.
inline constexpr int64_t kMostCountedEdges = 1 << 14;

// kernels.cu defines the same.
inline constexpr int64_t kColumns = 8, kShares = 128, kLanes = 32, kRows = 8;
inline constexpr int64_t kMostTables = 16;

constexpr unsigned Blocks(int64_t values, int64_t of_block) {
  return static_cast<unsigned>((values + of_block - 1) / of_block);
}

// The arguments must have the types that the kernel declares.
template <class... Arguments>
void Launch(const char* kernel, KernelLauncher::Extent blocks, KernelLauncher::Extent threads, Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0) return;
  void* pointers[] = {reinterpret_cast<void*>(&arguments)...};
  Kernels()->Launch(kernel, blocks, threads, pointers);
}

// A kernel whose blocks take kColumns columns each.
template <class... Arguments>
void LaunchOnColumns(const char* kernel, int64_t columns, int64_t others, Arguments... arguments) {
  TORCH_CHECK(others <= kMostBlocks, kernel, ": ", others, " blocks; at most ", kMostBlocks);
  Launch(kernel, {.x = Blocks(columns, kColumns), .y = static_cast<unsigned>(others)},
         {.x = static_cast<unsigned>(kColumns), .y = static_cast<unsigned>(kShares)}, arguments...);
}

// A kernel whose blocks take kRows rows each.
template <class... Arguments>
void LaunchOnRows(const char* kernel, int64_t rows, Arguments... arguments) {
  Launch(kernel, {.x = Blocks(rows, kRows)}, {.x = static_cast<unsigned>(kLanes), .y = static_cast<unsigned>(kRows)},
         arguments...);
}

// The data of a tensor of float32, as a kernel takes it.
inline const float* From(const at::Tensor& t) { return t.const_data_ptr<float>(); }
inline float* To(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }

}  // namespace permafrost::nn::gpu
