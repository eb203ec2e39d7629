// Limits for a program's archive. They bound the memory and time that reading a file can cost.
// Threads: plain values.
#pragma once

#include <cstdint>

namespace permafrost::program {

struct Limits {
  // Bytes of the archive, and of all tensors in it.
  int64_t archive_bytes = int64_t{16} << 30;
  int64_t tensor_bytes = int64_t{16} << 30;
  // Bytes of one JSON record. The largest of 15 exported modules has 0.5 MiB.
  int64_t json_bytes = int64_t{64} << 20;
  // Lists and objects within each other. A region within another adds seven.
  int64_t json_depth = 200;
  int64_t records = 100'000;
  // Nodes of a form, those of its regions included.
  int64_t nodes = 100'000;
  // Regions (autocast, no_grad) within regions.
  int64_t nested_regions = 8;
  int64_t dimensions = 16;
};

}  // namespace permafrost::program
