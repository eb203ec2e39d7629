// The edges of a batch, or of a block, in the orders that messages and their gradients are gathered by: no atomics, and
// sums whose order does not depend on the number of threads.
//
// Message passing over CSR, and linear maps of sparse rows, as registered operators (so that a capture sees them).
// Offsets begin at 0 and rise. Indices come from our own batcher, which keeps them in range: release builds do not look
// at each. Entries beyond the last offset are padding, which no row reaches and whose values may be anything in range.
// Threads: any; kernels use ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Places of rows in int32, as the operators below and permafrost::segments_of make them.
// Refuses more than int32 counts. The message begins with the operator's name, and says what the rows are of.
void CheckPlaces(const char* name, const char* of, int64_t rows, int64_t edges);
// offsets: [rows + 1]. Row r has places offsets[r] .. offsets[r + 1): one for each of the `count` keys that are r.
void MakeOffsets(const int64_t* keys, int64_t count, int64_t rows, int32_t* offsets);
// Takes each row's offset back to where the row begins, after it was moved to the row's end.
void EndsToBegins(int64_t rows, int32_t* offsets);

// Both orders of a batch's edges.
struct EdgeIndex {
  at::Tensor in_offsets;   // [N + 1] int32: edges in_offsets[i] .. in_offsets[i + 1] end at row i
  at::Tensor out_offsets;  // [N + 1] int32, into the two below
  at::Tensor out_targets;  // [E] int32: where each edge ends, in the order of where it begins
  at::Tensor out_edges;    // [E] int32: its place among the edges
};

// source, target: [E] int64 rows in [0, nodes), target rising; nodes and E below 2^31. On the CPU, and on a GPU.
// permafrost::edge_index; not differentiable.
EdgeIndex IndexEdges(const at::Tensor& source, const at::Tensor& target, int64_t nodes);

// The out-edges of a block whose in-edges are CSR. Source row s has places offsets[s] .. offsets[s + 1): in `rows` they
// hold the rows that gather it, rising, and in `edges` the entries at which they do. A gradient of the first T rows
// alone ends where rows reach T.
struct CsrTranspose {
  at::Tensor offsets;  // [N + 1] int32
  at::Tensor rows;     // [E] int32, of which entries beyond the last offset are anything
  at::Tensor edges;    // [E] int32, likewise
};

// offsets: [R + 1] int64, from 0, rising; sources: [E] int64, those up to the last offset in [0, nodes); nodes and E
// below 2^31. permafrost::transpose_csr, one pass on one thread; not differentiable. On devices other than the CPU
// nothing is made, since nothing reads it there.
CsrTranspose TransposeCsr(const at::Tensor& offsets, const at::Tensor& sources, int64_t nodes);

// out[r] = sum over e in [offsets[r], offsets[r + 1]) of weights[e] * x[sources[e]].
// x: [N, C] float32 or float64, whose rows may lie apart; offsets: [R + 1] int64; sources: [E] int64, those up to the
// last offset < N; weights: [E] of x's type or undefined (all 1), not differentiated. Returns [R, C]. Differentiable in
// x. On devices other than the CPU it is made of index_select and index_add.
at::Tensor SegmentSum(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources,
                      const at::Tensor& weights);

// The mean over each segment; 0 where it is empty. As SegmentSum without weights, divided by the counts.
at::Tensor SegmentMean(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources);

// y[r] = sum over e in [offsets[r], offsets[r + 1]) of values[e] * weight[:, columns[e]]: a linear map without bias of
// sparse rows. weight: [out, in] float32 or float64; values: undefined (all 1) or of its type, not differentiated.
// Returns [R, out]. Differentiable in weight.
at::Tensor SparseLinear(const at::Tensor& weight, const at::Tensor& offsets, const at::Tensor& columns,
                        const at::Tensor& values);

// [R] 1 / the number of each row's entries; 1 where there is none.
at::Tensor MeanScale(const at::Tensor& offsets, at::ScalarType type);

// [entries] int64: the r whose segment holds each entry; R for padding.
at::Tensor SegmentOfEntry(const at::Tensor& offsets, int64_t entries);

// Sparse rows made dense: out[r, columns[e]] = the sum of values[e] over e in [offsets[r], offsets[r + 1]) of that
// column; 0 elsewhere. offsets: [R + 1] int64, from 0, rising; columns: [E] int64 < width, of which entries beyond the
// last offset are padding; values: [E] of `type`, or undefined: all 1. Returns [R, width]. Not differentiable.
at::Tensor DenseOfSparse(const at::Tensor& offsets, const at::Tensor& columns, const at::Tensor& values, int64_t width,
                         at::ScalarType type);

// out[r, c] = max over e in [offsets[r], offsets[r + 1]) of x[sources[e], c]; 0 where the segment is empty. Offsets and
// sources are as for SegmentSum. x: [N, C] float32 or float64. transpose: of these rows and sources, or of more;
// undefined: made where it is needed. Returns [R, C]. Differentiable in x: entries that are equally large share the
// gradient, as in PyTorch's amax (and PyG's MaxAggregation, but for a largest value of 0, half of whose gradient it
// loses). On the CPU this is one operator; on other devices and in other lowerings it is scatter_reduce over the
// gathered rows.
at::Tensor SegmentMax(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources,
                      const CsrTranspose& transpose = {});

}  // namespace permafrost::nn
