// Works on the rows of a region. Rows are gathered, expanded and reduced to change level or width. Elementwise steps
// run over contiguous values. Functions of both kinds come with their gradients.
// If `base` is null, the output is the result alone. Otherwise the output is base + result, and `base` may be the
// output itself.
// Threads: any, each with rows of its own. Rows are added in their order. SumGroups adds up the values of a group
// vector by vector, and then adds the lanes.
#pragma once

#include <cstdint>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// The targets of a tile. Target t has edges [offsets[t] - offsets[0], offsets[t + 1] - offsets[0]) of the tile.
struct RegionSegments {
  const int32_t* offsets;
  int64_t targets;
};

// to[j] = from[index[places[j]]] for j < rows. If `index` is null, to[j] = from[places[j]].
template <class T>
void GatherRows(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows, T* to);
// to[places[j]] = from[j] for j < rows.
template <class T>
void ScatterRows(const T* from, int64_t width, const int32_t* places, int64_t rows, T* to);
// to[index[places[j]]] += from[j] for j < rows, in the order of j.
template <class T>
void AddToTable(const T* from, int64_t width, const int64_t* index, const int32_t* places, int64_t rows, T* to);
// For rows [begin, end): to[r] = sum over p in [offsets[r], offsets[r + 1]) of from[places[p]].
template <class T>
void SumOfPlaces(const T* from, int64_t width, const int32_t* offsets, const int32_t* places, int64_t begin,
                 int64_t end, T* to);

// edges[e] = base[e] + targets[target of e]
template <class T>
void ExpandTargets(const RegionSegments& segments, int64_t width, const T* targets, const T* base, T* edges);
// targets[t] = base[t] + sum of the target's edges. Edge e's row is edges[rows[e]], or edges[e] if `rows` is null.
template <class T>
void SumEdges(const RegionSegments& segments, int64_t width, const T* edges, const int64_t* rows, const T* base,
              T* targets);
// targets[t] = the largest (or smallest) value of the target's edges. It is 0 without edges, and NaN if a value is
// NaN.
template <class T>
void ExtremeOfEdges(const RegionSegments& segments, int64_t width, bool largest, const T* edges, T* targets);
// The gradient of ExtremeOfEdges, given its result `extreme`. to[e] = base[e] + (edges[e] equals extreme[t] ? g[t] /
// n : 0), where n is the number of the target's edges that equal extreme[t]. If extreme[t] is 0, n is one more, as in
// scatter_reduce on zeros.
template <class T>
void ExtremeGradient(const RegionSegments& segments, int64_t width, const T* edges, const T* extreme, const T* g,
                     const T* base, T* to);

// to[i * times + j] = from[i] for i < n, j < times.
template <class T>
void RepeatValues(const T* from, int64_t n, int64_t times, T* to);
// to[i] = base[i] + sum over j < group of from[i * group + j], for i < n.
template <class T>
void SumGroups(const T* from, int64_t n, int64_t group, const T* base, T* to);
// to[c] += sum over r < rows of from[r * width + c].
template <class T>
void AddToRow(const T* from, int64_t rows, int64_t width, T* to);

// Rows of values. Row j begins at base + stride * rows[j], or at base + stride * j if `rows` is null. Each value stands
// for `repeat` columns of the step that reads the rows. `repeat` is more than 1 only where TakesWidth allows it.
template <class T>
struct RegionRows {
  const T* base = nullptr;
  const int64_t* rows = nullptr;
  int64_t stride = 0;
  int64_t repeat = 1;
  RegionRows From(int64_t first) const {
    return rows == nullptr ? RegionRows{base == nullptr ? nullptr : base + first * stride, nullptr, stride, repeat}
                           : RegionRows{base, rows + first, stride, repeat};
  }
};
// The operands of a step. Operands that the step lacks are not read.
template <class T>
struct RegionValues {
  RegionRows<T> a, b, c;
};

// Tells what SumValues adds up for each edge: the value of a kAdd or kMul step, its ReLU, or (for kAdd only) operand
// c where the value is positive or NaN.
enum class SumOf : uint8_t { kValue, kRelu, kPassed };
// targets[t] = the sum over the target's edges. `in` has a row for each edge of the segments.
template <class T>
void SumValues(const RegionSegments& segments, const RegionStep& step, SumOf what, const RegionValues<T>& in,
               T* targets);

// Computes the values of an elementwise step. out: [rows, width]; it may be the memory of an operand whose rows are
// contiguous.
template <class T>
void ComputeValues(const RegionStep& step, const RegionValues<T>& in, int64_t rows, T* out);

// The gradient for operand k: to = g * d(step) / d(operand k), elementwise. y: the step's values. The rows of y and
// `to` are contiguous. Only values that the formula contains are read (ReadsOf in edge_region_plan.h). The formulas
// are PyTorch's, also for 0, inf and NaN. `to` must not overlap any other array.
template <class T>
void ValueGradient(const RegionStep& step, int k, const RegionValues<T>& in, const T* y, const RegionRows<T>& g,
                   int64_t rows, T* to);

// Returns whether all values are in [0, limit).
bool AreInRange(const int32_t* values, int64_t count, int32_t limit);
bool AreInRange(const int64_t* values, int64_t count, int64_t limit);

// out[i] = a[i] + b[i]. `out` may be a or b.
template <class T>
void AddValues(const T* a, const T* b, int64_t n, T* out);

}  // namespace permafrost::nn
