// Message passing of GINE and GIN over CSR without a tensor of messages: relu(x_j + e_ji) lives in registers.
// Threads: any, each with rows of its own. Sums are in the order of the edges.
#pragma once

#include <cstdint>

namespace permafrost::nn {

// The inputs that messages are made of. The row of edge k in `edges` is code[k], or k where there is no code. Without
// edges (GIN) the message is x_j itself, without ReLU.
template <class T>
struct GineMessages {
  const T* x;      // [N, width]
  const T* edges;  // [codes or E, width]; null: GIN
  const int32_t* code;
  int64_t width;
};

// For rows i in [begin, end): sum[i] = x[i] + the sum of relu(x[source[k]] + edge k) over k in [offsets[i],
// offsets[i + 1]). sum: [N, width].
template <class T>
void GineSum(const GineMessages<T>& messages, const int32_t* offsets, const int64_t* source, int64_t begin, int64_t end,
             T* sum);

// The gradient, as a gather over out-edges. For rows j in [begin, end): gx[j] = g[j] + the sum of g[target[p]] where
// x[j] + edge[p] > 0, over p in [offsets[j], offsets[j + 1]); the same is added to ge, [codes, width], at the edge's
// code, or written to row edge[p] of ge, [E, width], where there is no code. GIN: all of g passes, and ge is not read.
template <class T>
void GineGradient(const GineMessages<T>& messages, const int32_t* offsets, const int32_t* target, const int32_t* edge,
                  const T* g, int64_t begin, int64_t end, T* gx, T* ge);

}  // namespace permafrost::nn
