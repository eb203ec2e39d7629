#include "nn/ops/edge_index.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "nn/gpu/operators.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// offsets[i + 1]: how many keys are i; then the sums before each.
void CountInto(const int64_t* keys, int64_t count, int32_t* offsets, int64_t rows) {
  std::fill_n(offsets, rows + 1, 0);
  for (int64_t k = 0; k < count; ++k) ++offsets[keys[k] + 1];
  std::partial_sum(offsets, offsets + rows + 1, offsets);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EdgeIndexCpu(const Tensor& source_in, const Tensor& target_in,
                                                        int64_t nodes) {
  const int64_t edges = source_in.numel();
  TORCH_CHECK(source_in.dim() == 1 && target_in.sizes() == source_in.sizes() && source_in.scalar_type() == at::kLong &&
                  target_in.scalar_type() == at::kLong,
              "edge_index: source and target must be [E] int64, not ", source_in.toString(), source_in.sizes(), " and ",
              target_in.toString(), target_in.sizes());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(nodes >= 0 && nodes < kMost && edges < kMost, "edge_index: ", nodes, " nodes and ", edges,
              " edges; below ", kMost, " are taken");
  const Tensor source = source_in.contiguous(), target = target_in.contiguous();
  const auto ints = at::TensorOptions().dtype(at::kInt);
  Tensor in_offsets = at::empty({nodes + 1}, ints), out_offsets = at::empty({nodes + 1}, ints);
  Tensor out_targets = at::empty({edges}, ints), out_edges = at::empty({edges}, ints);
  const int64_t* const from = source.const_data_ptr<int64_t>();
  const int64_t* const to = target.const_data_ptr<int64_t>();
  int32_t* const offsets = out_offsets.mutable_data_ptr<int32_t>();
  CountInto(to, edges, in_offsets.mutable_data_ptr<int32_t>(), nodes);
  CountInto(from, edges, offsets, nodes);
  int32_t* const targets = out_targets.mutable_data_ptr<int32_t>();
  int32_t* const places = out_edges.mutable_data_ptr<int32_t>();
  // Each offset moves to the end of its row, which is where the next row begins.
  for (int64_t k = 0; k < edges; ++k) {
    const int32_t at = offsets[from[k]]++;
    targets[at] = static_cast<int32_t>(to[k]);
    places[at] = static_cast<int32_t>(k);
  }
  for (int64_t i = nodes; i > 0; --i) offsets[i] = offsets[i - 1];
  offsets[0] = 0;
  return {in_offsets, out_offsets, out_targets, out_edges};
}

constexpr Operator<EdgeIndexCpu> kEdgeIndex{
    "edge_index(Tensor source, Tensor target, int nodes) -> (Tensor, Tensor, Tensor, Tensor)"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) { kEdgeIndex.Register(library, nullptr, gpu::EdgeIndex); }

EdgeIndex IndexEdges(const Tensor& source, const Tensor& target, int64_t nodes) {
  auto [in_offsets, out_offsets, out_targets, out_edges] = kEdgeIndex(source, target, nodes);
  return {in_offsets, out_offsets, out_targets, out_edges};
}

namespace {

std::tuple<Tensor, Tensor, Tensor> TransposeCsrCpu(const Tensor& offsets_in, const Tensor& sources_in, int64_t nodes) {
  TORCH_CHECK(offsets_in.dim() == 1 && offsets_in.numel() >= 1 && offsets_in.scalar_type() == at::kLong &&
                  sources_in.dim() == 1 && sources_in.scalar_type() == at::kLong,
              "transpose_csr: offsets and sources must be [R + 1] and [E] int64, not ", offsets_in.toString(),
              offsets_in.sizes(), " and ", sources_in.toString(), sources_in.sizes());
  const Tensor offsets = offsets_in.contiguous(), sources = sources_in.contiguous();
  const int64_t rows = offsets.numel() - 1, size = sources.numel();
  const int64_t* const starts = offsets.const_data_ptr<int64_t>();
  const int64_t* const source = sources.const_data_ptr<int64_t>();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(nodes >= 0 && nodes < kMost && size < kMost, "transpose_csr: ", nodes, " nodes and ", size,
              " edges; below ", kMost, " are taken");
  TORCH_CHECK(starts[0] == 0 && starts[rows] <= size, "transpose_csr: offsets are ", starts[0], "..", starts[rows],
              ", edges ", size);
  const auto ints = at::TensorOptions().dtype(at::kInt);
  Tensor out_offsets = at::zeros({nodes + 1}, ints), out_rows = at::empty({size}, ints),
         out_edges = at::empty({size}, ints);
  int32_t* const begins = out_offsets.mutable_data_ptr<int32_t>();
  int32_t* const row_of = out_rows.mutable_data_ptr<int32_t>();
  int32_t* const edge_of = out_edges.mutable_data_ptr<int32_t>();
  for (int64_t e = 0; e < starts[rows]; ++e) {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(source[e] >= 0 && source[e] < nodes);
    ++begins[source[e]];
  }
  // Each offset is moved to the begin of its row, and by the edges to its end, which is where the next one begins.
  int32_t before = 0;
  for (int64_t s = 0; s <= nodes; ++s) before += std::exchange(begins[s], before);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t e = starts[r]; e < starts[r + 1]; ++e) {
      const int32_t place = begins[source[e]]++;
      row_of[place] = static_cast<int32_t>(r);
      edge_of[place] = static_cast<int32_t>(e);
    }
  }
  std::copy_backward(begins, begins + nodes, begins + nodes + 1);
  begins[0] = 0;
  // Entries beyond the last row have no edges. No byte is left unset: an audit compares them all.
  for (int32_t* const of : {row_of, edge_of}) std::fill(of + starts[rows], of + size, 0);
  return {out_offsets, out_rows, out_edges};
}

constexpr Operator<TransposeCsrCpu> kTransposeCsr{
    "transpose_csr(Tensor offsets, Tensor sources, int nodes) -> (Tensor, Tensor, Tensor)"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) { kTransposeCsr.Register(library); }

CsrTranspose TransposeCsr(const Tensor& offsets, const Tensor& sources, int64_t nodes) {
  if (!offsets.is_cpu()) return {};
  auto [out_offsets, rows, edges] = kTransposeCsr(offsets, sources, nodes);
  return {out_offsets, rows, edges};
}

}  // namespace permafrost::nn
