// Groups the edges of a batch or block by target and by source, so that messages and their gradients can be gathered.
// Sums need no atomics, and their order does not depend on the number of threads.
//
// Also defines message passing over CSR, and linear maps of sparse rows, as operators that a capture sees. Offsets
// begin at 0 and rise. Indices come from our own batcher, which keeps them in range; release builds do not check each
// index. Entries beyond the last offset are padding. No row reaches them, and they may hold any values in range.
// Threads: any; kernels use ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace permafrost::nn {

// Helpers of the operators below and of permafrost::segments_of, which group edges by row. Places are int32.
// Errors: c10::Error if a count exceeds int32. The message begins with the operator's `name`, and uses `of` as the
// word for rows, such as "nodes".
void CheckPlaces(const char* name, const char* of, int64_t rows, int64_t edges);
// Writes offsets, [rows + 1]. Row r gets places [offsets[r], offsets[r + 1]), one for each key that equals r. `count`
// is the number of all keys.
void MakeOffsets(const int64_t* keys, int64_t count, int64_t rows, int32_t* offsets);
// Moves each offset from the end of its row back to the row's beginning.
void EndsToBegins(int64_t rows, int32_t* offsets);

// The edges of a batch, grouped by target and by source.
struct EdgeIndex {
  at::Tensor in_offsets;   // [N + 1] int32: edges [in_offsets[i], in_offsets[i + 1]) end at row i
  at::Tensor out_offsets;  // [N + 1] int32: offsets into out_targets and out_edges
  at::Tensor out_targets;  // [E] int32: the target of each edge, ordered by source
  at::Tensor out_edges;    // [E] int32: the number of each edge, ordered by source
};

// source, target: [E] int64 rows in [0, nodes), target rising; nodes and E below 2^31. Runs on the CPU and on a GPU.
// permafrost::edge_index; not differentiable.
EdgeIndex IndexEdges(const at::Tensor& source, const at::Tensor& target, int64_t nodes);

// The out-edges of a block whose in-edges are CSR. Source row s has places [offsets[s], offsets[s + 1]). At these
// places, `rows` holds the rows that gather s, in rising order. `edges` holds the number of the edge by which each of
// these rows gathers s. A gradient that covers only the first T rows stops at the first entry of `rows` that is T or
// more.
struct CsrTranspose {
  at::Tensor offsets;  // [N + 1] int32
  at::Tensor rows;     // [E] int32; entries beyond the last offset may be anything
  at::Tensor edges;    // [E] int32; entries beyond the last offset may be anything
};

// offsets: [R + 1] int64, from 0, rising; sources: [E] int64, in [0, nodes) up to the last offset; nodes and E below
// 2^31. permafrost::transpose_csr, one pass on one thread; not differentiable. On devices other than the CPU it
// returns undefined tensors, because nothing reads a transpose there.
CsrTranspose TransposeCsr(const at::Tensor& offsets, const at::Tensor& sources, int64_t nodes);

// out[r] = sum over e in [offsets[r], offsets[r + 1]) of weights[e] * x[sources[e]].
// x: [N, C] float32 or float64; gaps between its rows are accepted. offsets: [R + 1] int64; sources: [E] int64, below
// N up to the last offset; weights: [E] of x's type, not differentiated, or undefined (all 1). Returns [R, C].
// Differentiable in x. On devices without kernels it is made of index_select and index_add.
at::Tensor SegmentSum(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources,
                      const at::Tensor& weights);

// Returns the mean over each segment; 0 if it is empty. Same as SegmentSum without weights, divided by the counts.
at::Tensor SegmentMean(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources);

// A linear map of sparse rows, without bias: y[r] = sum over e in [offsets[r], offsets[r + 1]) of values[e] *
// weight[:, columns[e]]. weight: [out, in] float32 or float64; values: of weight's type, not differentiated, or
// undefined (all 1). Returns [R, out]. Differentiable in weight.
at::Tensor SparseLinear(const at::Tensor& weight, const at::Tensor& offsets, const at::Tensor& columns,
                        const at::Tensor& values);

// Returns [R]: 1 / the number of entries of each row; 1 if it has none.
at::Tensor MeanScale(const at::Tensor& offsets, at::ScalarType type);

// Returns [entries] int64: for each entry, the row whose segment holds it; R for padding.
at::Tensor SegmentOfEntry(const at::Tensor& offsets, int64_t entries);

// Makes sparse rows dense: out[r, c] = the sum of values[e] over all e in [offsets[r], offsets[r + 1]) with
// columns[e] == c. offsets: [R + 1] int64, from 0, rising; columns: [E] int64 < width, where entries beyond the last
// offset are padding; values: [E] of `type`, or undefined (all 1). Returns [R, width]. Not differentiable.
at::Tensor DenseOfSparse(const at::Tensor& offsets, const at::Tensor& columns, const at::Tensor& values, int64_t width,
                         at::ScalarType type);

// out[r, c] = max over e in [offsets[r], offsets[r + 1]) of x[sources[e], c]; 0 if the segment is empty. Offsets and
// sources are as for SegmentSum. x: [N, C] float32 or float64. transpose: TransposeCsr of these entries, or of the
// entries of more rows. If it is undefined, it is made when needed. Returns [R, C].
// Differentiable in x. Equal maxima share the gradient, as in PyTorch's amax. PyG's MaxAggregation also shares the
// gradient, but loses half of it where the maximum is 0. On the CPU this is one operator; on other devices and in
// other lowerings it is scatter_reduce over the gathered rows.
at::Tensor SegmentMax(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources,
                      const CsrTranspose& transpose = {});

}  // namespace permafrost::nn
