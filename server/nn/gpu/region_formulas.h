// How steps of an edge region that work value by value are written in CUDA C++ (region_source.h).
// Threads: pure functions, safe anywhere.
#pragma once

#include <array>
#include <string>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn::gpu {

// The type of values, as C.
struct ValueType {
  const char* name;                // "float"
  const char* suffix;              // what its math functions and literals end with: "f"
  std::string (*literal)(double);  // the shortest literal of a number, which is rounded to the type first
};
// T: float or double.
template <class T>
ValueType ValueTypeOf();

// Returns an expression for a step by value. operands: names of variables. NaN passes as in the CPU's kernels
// (nn/kernels/edge_region_values.cc).
std::string FormulaOf(const RegionStep& step, const std::array<std::string, 3>& operands, const ValueType& type);

}  // namespace permafrost::nn::gpu
