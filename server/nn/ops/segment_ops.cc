#include "nn/ops/segment_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>
#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/kernels/segments.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {

void CheckPlaces(const char* name, const char* of, int64_t rows, int64_t edges) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(rows >= 0 && rows < kMost && edges < kMost, name, ": ", rows, " ", of, " and ", edges, " edges; below ",
              kMost, " are taken");
}

void MakeOffsets(const int64_t* keys, int64_t count, int64_t rows, int32_t* offsets) {
  std::fill_n(offsets, rows + 1, 0);
  for (int64_t k = 0; k < count; ++k) {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(keys[k] >= 0 && keys[k] < rows);
    ++offsets[keys[k] + 1];
  }
  std::partial_sum(offsets, offsets + rows + 1, offsets);
}

void EndsToBegins(int64_t rows, int32_t* offsets) {
  std::copy_backward(offsets, offsets + rows, offsets + rows + 1);
  offsets[0] = 0;
}

namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor, Tensor> EdgeIndexCpu(const Tensor& source_in, const Tensor& target_in,
                                                        int64_t nodes) {
  const int64_t edges = source_in.numel();
  TORCH_CHECK(source_in.dim() == 1 && target_in.sizes() == source_in.sizes() && source_in.scalar_type() == at::kLong &&
                  target_in.scalar_type() == at::kLong,
              "edge_index: source and target must be [E] int64, not ", source_in.toString(), source_in.sizes(), " and ",
              target_in.toString(), target_in.sizes());
  CheckPlaces("edge_index", "nodes", nodes, edges);
  const Tensor source = source_in.contiguous(), target = target_in.contiguous();
  const auto ints = at::TensorOptions().dtype(at::kInt);
  Tensor in_offsets = at::empty({nodes + 1}, ints), out_offsets = at::empty({nodes + 1}, ints);
  Tensor out_targets = at::empty({edges}, ints), out_edges = at::empty({edges}, ints);
  const int64_t* const from = source.const_data_ptr<int64_t>();
  const int64_t* const to = target.const_data_ptr<int64_t>();
  int32_t* const offsets = out_offsets.mutable_data_ptr<int32_t>();
  MakeOffsets(to, edges, nodes, in_offsets.mutable_data_ptr<int32_t>());
  MakeOffsets(from, edges, nodes, offsets);
  int32_t* const targets = out_targets.mutable_data_ptr<int32_t>();
  int32_t* const places = out_edges.mutable_data_ptr<int32_t>();
  // Each offset moves to the end of its row, which is where the next row begins.
  for (int64_t k = 0; k < edges; ++k) {
    const int32_t at = offsets[from[k]]++;
    targets[at] = static_cast<int32_t>(to[k]);
    places[at] = static_cast<int32_t>(k);
  }
  EndsToBegins(nodes, offsets);
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
  CheckPlaces("transpose_csr", "nodes", nodes, size);
  TORCH_CHECK(starts[0] == 0 && starts[rows] <= size, "transpose_csr: offsets are ", starts[0], "..", starts[rows],
              ", edges ", size);
  const auto ints = at::TensorOptions().dtype(at::kInt);
  Tensor out_offsets = at::empty({nodes + 1}, ints), out_rows = at::empty({size}, ints),
         out_edges = at::empty({size}, ints);
  int32_t* const begins = out_offsets.mutable_data_ptr<int32_t>();
  int32_t* const row_of = out_rows.mutable_data_ptr<int32_t>();
  int32_t* const edge_of = out_edges.mutable_data_ptr<int32_t>();
  MakeOffsets(source, starts[rows], nodes, begins);
  // Placing the edges moves each offset to its row's end, which is where the next row begins.
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t e = starts[r]; e < starts[r + 1]; ++e) {
      const int32_t place = begins[source[e]]++;
      row_of[place] = static_cast<int32_t>(r);
      edge_of[place] = static_cast<int32_t>(e);
    }
  }
  EndsToBegins(nodes, begins);
  // Sets entries beyond the last edge to 0, because an audit compares all bytes.
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

namespace {

// A thread should get at least this many values, since small parallel regions are slow on shared cores.
constexpr int64_t kGrain = kParallelGathers / 2;
void Check(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "segment_reduce: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong,
              "segment_reduce: offsets must be [R + 1] int64, not ", offsets.toString(), offsets.sizes());
  TORCH_CHECK(sources.dim() == 1 && sources.scalar_type() == at::kLong,
              "segment_reduce: sources must be [E] int64, not ", sources.toString(), sources.sizes());
  TORCH_CHECK(!weights || (weights->sizes() == sources.sizes() && weights->scalar_type() == x.scalar_type()),
              "segment_reduce: weights must be [E] of x's type");
}

// Segments, as the kernels read them.
struct Segments {
  Segments(const Tensor& offsets_in, const Tensor& sources_in)
      : offsets(offsets_in.contiguous()),
        sources(sources_in.contiguous()),
        starts(offsets.const_data_ptr<int64_t>()),
        source(sources.const_data_ptr<int64_t>()),
        rows(offsets.numel() - 1),
        entries(starts[rows]) {
    TORCH_CHECK(starts[0] == 0 && entries <= sources.numel(), "segment_reduce: offsets are ", starts[0], "..", entries,
                ", entries ", sources.numel());
  }
  Tensor offsets, sources;
  const int64_t* starts;
  const int64_t* source;
  int64_t rows, entries;
};

// Calls body(first, last) for ranges of rows of about equal cost. A row costs 1, and each of its entries costs 1
// more.
template <class Offset, class Body>
void ForRowRanges(const Offset* starts, int64_t rows, int64_t columns, Body body) {
  const int64_t total = static_cast<int64_t>(starts[rows]) + rows;
  const int64_t parts = std::clamp<int64_t>(total * columns / kGrain, 1, 8 * static_cast<int64_t>(ThreadCount()));
  const auto cut = [&](int64_t part) {
    const auto all = std::views::iota(int64_t{0}, rows);
    const int64_t before = total / parts * part + total % parts * part / parts;
    return part == parts ? rows : *std::ranges::partition_point(all, [&](int64_t r) { return starts[r] + r < before; });
  };
  ParallelFor(0, parts, 1, [&](int64_t begin, int64_t end) { body(cut(begin), cut(end)); });
}

Tensor WithUnitColumns(const Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

Tensor ContiguousWeights(const OptionalTensor& weights) { return weights ? weights->contiguous() : Tensor(); }

// Returns the factor of each row's sum.
Tensor ScaleOf(const Segments& segments, bool mean, at::ScalarType type) {
  return mean ? MeanScale(segments.offsets, type) : Tensor();
}

Tensor ForwardCpu(const Tensor& x_in, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights_in,
                  bool mean) {
  Check(x_in, offsets, sources, weights_in);
  const Tensor x = WithUnitColumns(x_in), weights = ContiguousWeights(weights_in);
  const Segments segments(offsets, sources);
  const Tensor scale = ScaleOf(segments, mean, x.scalar_type());
  const int64_t columns = x.size(1);
  Tensor out = at::empty({segments.rows, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_reduce", [&] {
    const SegmentRows<scalar_t> rows{.x = x.const_data_ptr<scalar_t>(),
                                     .stride = x.stride(0),
                                     .width = columns,
                                     .offsets = segments.starts,
                                     .source = segments.source,
                                     .weights = DataOrNull<scalar_t>(weights),
                                     .self = nullptr,
                                     .scale = DataOrNull<scalar_t>(scale)};
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ForRowRanges(segments.starts, segments.rows, columns, [&](int64_t first, int64_t last) {
      SumSegments<scalar_t>(rows, first, last, to + first * columns, columns);
    });
  });
  return out;
}

// grad: [R, C]. Returns [rows_of_x, C]. The gradient is a gather too, over the transposed segments.
Tensor BackwardCpu(const Tensor& grad_in, const Tensor& offsets, const Tensor& sources,
                   const OptionalTensor& weights_in, int64_t rows_of_x, bool mean) {
  Check(grad_in, offsets, sources, weights_in);
  const Tensor grad = WithUnitColumns(grad_in), weights = ContiguousWeights(weights_in);
  const Segments segments(offsets, sources);
  const Tensor scale = ScaleOf(segments, mean, grad.scalar_type());
  const CsrTranspose transpose = TransposeCsr(segments.offsets, segments.sources, rows_of_x);
  const auto* const starts = transpose.offsets.const_data_ptr<int32_t>();
  Tensor gx = at::empty({rows_of_x, grad.size(1)}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "segment_reduce_backward", [&] {
    const SegmentGradient<scalar_t> gradient{.offsets = starts,
                                             .rows = transpose.rows.const_data_ptr<int32_t>(),
                                             .edges = transpose.edges.const_data_ptr<int32_t>(),
                                             .targets = segments.rows,
                                             .g = grad.const_data_ptr<scalar_t>(),
                                             .own = nullptr,
                                             .stride = grad.stride(0),
                                             .width = grad.size(1),
                                             .weights = DataOrNull<scalar_t>(weights),
                                             .self = nullptr,
                                             .scale = DataOrNull<scalar_t>(scale)};
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    ForRowRanges(starts, rows_of_x, grad.size(1),
                 [&](int64_t first, int64_t last) { SumGradient<scalar_t>(gradient, first, last, to); });
  });
  return gx;
}

Tensor SegmentOfEntryCpu(const Tensor& offsets_in, int64_t entries) {
  const Tensor offsets = offsets_in.contiguous();
  const int64_t* const starts = offsets.const_data_ptr<int64_t>();
  const int64_t rows = offsets.numel() - 1;
  TORCH_CHECK(starts[0] == 0 && starts[rows] <= entries, "segment_of_entry: offsets are ", starts[0], "..",
              starts[rows], ", entries ", entries);
  Tensor out = at::empty({entries}, offsets.options());
  int64_t* const segment = out.mutable_data_ptr<int64_t>();
  ForRowRanges(starts, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) std::fill(segment + starts[r], segment + starts[r + 1], r);
  });
  std::fill(segment + starts[rows], segment + entries, rows);
  return out;
}

Tensor SegmentOfEntryComposite(const Tensor& offsets, int64_t entries) {
  return at::searchsorted(offsets, at::arange(entries, offsets.options()), /*out_int32=*/false, /*right=*/true) - 1;
}

// Returns [R + 1, 1]: the factor of each segment's sum, and 0 for padding at the end.
Tensor ScaleWithPadding(const Tensor& offsets, const Tensor& like) {
  return at::cat({MeanScale(offsets, like.scalar_type()), at::zeros({1}, like.options())}).unsqueeze(1);
}

Tensor ForwardComposite(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights,
                        bool mean) {
  Check(x, offsets, sources, weights);
  const int64_t rows = offsets.size(0) - 1;
  // Entries beyond the last offset may name rows that x does not have.
  Tensor messages = SelectRows(x, sources.clamp_max(x.size(0) - 1));
  if (weights) messages = messages * weights->unsqueeze(1);
  // Padding is summed into one extra row, which is cut off.
  Tensor out = AddRows(at::zeros({rows + 1, x.size(1)}, x.options()), SegmentOfEntryComposite(offsets, sources.size(0)),
                       messages);
  if (mean) out = out * ScaleWithPadding(offsets, x);
  return out.narrow(0, 0, rows).contiguous();
}

Tensor ForwardGpu(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights,
                  bool mean) {
  Check(x, offsets, sources, weights);
  return HasKernels(x) ? gpu::SegmentReduce(x, offsets, sources, weights, mean)
                       : ForwardComposite(x, offsets, sources, weights, mean);
}

Tensor BackwardComposite(const Tensor& grad, const Tensor& offsets, const Tensor& sources,
                         const OptionalTensor& weights, int64_t rows_of_x, bool mean) {
  Check(grad, offsets, sources, weights);
  Tensor padded = at::cat({grad, at::zeros({1, grad.size(1)}, grad.options())});
  if (mean) padded = padded * ScaleWithPadding(offsets, grad);
  const Tensor segment = SegmentOfEntryComposite(offsets, sources.size(0));
  Tensor messages = SelectRows(padded, segment);
  // Weights of padding may be anything, even NaN.
  if (weights) {
    const Tensor real = segment.lt(offsets.size(0) - 1);
    messages = messages * at::where(real, *weights, at::zeros({}, grad.options())).unsqueeze(1);
  }
  // Messages of entries beyond the last offset are 0, whatever row such an entry names.
  return AddRows(at::zeros({rows_of_x, grad.size(1)}, grad.options()), sources.clamp_max(rows_of_x - 1), messages);
}

constexpr Operator<ForwardCpu> kSegmentReduce{
    "segment_reduce(Tensor x, Tensor offsets, Tensor sources, Tensor? weights, bool mean) -> Tensor"};
constexpr Operator<BackwardCpu> kSegmentReduceBackward{
    "segment_reduce_backward(Tensor grad, Tensor offsets, Tensor sources, Tensor? weights, int rows_of_x, bool mean) "
    "-> Tensor"};
constexpr Operator<SegmentOfEntryCpu> kSegmentOfEntry{"segment_of_entry(Tensor offsets, int entries) -> Tensor"};

class SegmentReduceFunction : public torch::autograd::Function<SegmentReduceFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& offsets,
                        const Tensor& sources, const OptionalTensor& weights, bool mean) {
    context->save_for_backward({offsets, sources, weights.value_or(Tensor())});
    context->saved_data["rows"] = x.size(0);
    context->saved_data["mean"] = mean;
    return kSegmentReduce(x, offsets, sources, weights, mean);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {kSegmentReduceBackward(grads[0], saved[0], saved[1], IfDefined(saved[2]),
                                   context->saved_data["rows"].toInt(), context->saved_data["mean"].toBool()),
            Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// Sums rows of the transposed weight over segments. The gradient has the weight's memory layout, on which fused
// optimizers rely.
class SparseLinearFunction : public torch::autograd::Function<SparseLinearFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& weight, const Tensor& offsets,
                        const Tensor& columns, const OptionalTensor& values) {
    context->save_for_backward({offsets, columns, values.value_or(Tensor())});
    context->saved_data["in"] = weight.size(1);
    return kSegmentReduce(weight.t().contiguous(), offsets, columns, values, false);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor transposed = kSegmentReduceBackward(grads[0], saved[0], saved[1], IfDefined(saved[2]),
                                                     context->saved_data["in"].toInt(), false);
    return {transposed.t().contiguous(), Tensor(), Tensor(), Tensor()};
  }
};

// A thread should get at least this many values.
constexpr int64_t kDenseGrain = 1 << 15;

void CheckSparse(const Tensor& offsets, const Tensor& columns, const OptionalTensor& values) {
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong,
              "dense_of_sparse: offsets must be [R + 1] int64, not ", offsets.toString(), offsets.sizes());
  TORCH_CHECK(columns.dim() == 1 && columns.scalar_type() == at::kLong,
              "dense_of_sparse: columns must be [E] int64, not ", columns.toString(), columns.sizes());
  TORCH_CHECK(!values || values->sizes() == columns.sizes(), "dense_of_sparse: values must be [E]");
}

Tensor DenseCpu(const Tensor& offsets_in, const Tensor& columns_in, const OptionalTensor& values_in, int64_t width,
                at::ScalarType type) {
  CheckSparse(offsets_in, columns_in, values_in);
  const Tensor offsets = offsets_in.contiguous(), columns = columns_in.contiguous();
  const Tensor values = values_in ? values_in->to(type).contiguous() : Tensor();
  const int64_t rows = offsets.numel() - 1;
  Tensor out = at::empty({rows, width}, columns.options().dtype(type));
  AT_DISPATCH_FLOATING_TYPES(type, "dense_of_sparse", [&] {
    const int64_t *const starts = offsets.const_data_ptr<int64_t>(), *const column = columns.const_data_ptr<int64_t>();
    const scalar_t* const value = DataOrNull<scalar_t>(values);
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    const int64_t grain = std::max<int64_t>(1, kDenseGrain / std::max<int64_t>(1, width));
    ParallelFor(0, rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        scalar_t* const row = to + r * width;
        std::fill(row, row + width, scalar_t{0});
        for (int64_t e = starts[r]; e < starts[r + 1]; ++e) row[column[e]] += value == nullptr ? scalar_t{1} : value[e];
      }
    });
  });
  return out;
}

// Padding is summed into one extra row, which is cut off.
Tensor DenseComposite(const Tensor& offsets, const Tensor& columns, const OptionalTensor& values, int64_t width,
                      at::ScalarType type) {
  CheckSparse(offsets, columns, values);
  const auto options = columns.options().dtype(type);
  const int64_t rows = offsets.size(0) - 1;
  const Tensor to = SegmentOfEntry(offsets, columns.size(0)) * width + columns;
  return at::zeros({(rows + 1) * width}, options)
      .scatter_add(0, to, values ? values->to(type) : at::ones(columns.sizes(), options))
      .view({rows + 1, width})
      .narrow(0, 0, rows);
}

constexpr Operator<DenseCpu> kDense{
    "dense_of_sparse(Tensor offsets, Tensor columns, Tensor? values, int width, ScalarType type) -> Tensor"};

// A thread should get at least this many values.
constexpr int64_t kMaxGrain = 1 << 14;

void CheckSegments(const Tensor& x, const Tensor& offsets, const Tensor& sources) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "segment_max: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  TORCH_CHECK(offsets.dim() == 1 && offsets.numel() >= 1 && offsets.scalar_type() == at::kLong,
              "segment_max: offsets must be [R + 1] int64, not ", offsets.toString(), offsets.sizes());
  TORCH_CHECK(sources.dim() == 1 && sources.scalar_type() == at::kLong, "segment_max: sources must be [E] int64, not ",
              sources.toString(), sources.sizes());
}

// Returns the fewest rows that are worth a thread if `entries` are spread evenly over `rows`.
int64_t GrainOf(int64_t rows, int64_t entries, int64_t columns) {
  const int64_t of_row = std::max<int64_t>(1, columns * (1 + entries / std::max<int64_t>(1, rows)));
  return std::max<int64_t>(1, kMaxGrain / of_row);
}

Tensor MaxForwardCpu(const Tensor& x_in, const Tensor& offsets_in, const Tensor& sources_in) {
  CheckSegments(x_in, offsets_in, sources_in);
  const Tensor x = x_in.contiguous(), offsets = offsets_in.contiguous(), sources = sources_in.contiguous();
  const int64_t rows = offsets.numel() - 1, columns = x.size(1);
  Tensor out = at::empty({rows, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_max", [&] {
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    const int64_t *const starts = offsets.const_data_ptr<int64_t>(), *const source = sources.const_data_ptr<int64_t>();
    const MaxRows<scalar_t> segments{.x = from, .width = columns, .offsets = starts, .source = source};
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ParallelFor(0, rows, GrainOf(rows, starts[rows], columns),
                [&](int64_t begin, int64_t end) { LargestOfSegments(segments, begin, end, to); });
  });
  return out;
}

// grad, largest: [R, C]. Entries equal to their segment's maximum share its gradient equally. Computes the shares
// first, and then gathers them over the transposed segments.
Tensor MaxBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& largest_in, const Tensor& offsets_in,
                      const Tensor& sources_in, const Tensor& out_offsets, const Tensor& out_rows) {
  CheckSegments(x_in, offsets_in, sources_in);
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous(), largest = largest_in.contiguous();
  const Tensor offsets = offsets_in.contiguous(), sources = sources_in.contiguous();
  const int64_t rows = offsets.numel() - 1, columns = x.size(1), nodes = x.size(0);
  Tensor shares = at::empty_like(grad), gx = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_max_backward", [&] {
    const scalar_t *const from = x.const_data_ptr<scalar_t>(), *const most = largest.const_data_ptr<scalar_t>();
    const scalar_t* const g = grad.const_data_ptr<scalar_t>();
    const int64_t *const starts = offsets.const_data_ptr<int64_t>(), *const source = sources.const_data_ptr<int64_t>();
    const MaxRows<scalar_t> segments{.x = from, .width = columns, .offsets = starts, .source = source};
    scalar_t* const share = shares.mutable_data_ptr<scalar_t>();
    ParallelFor(0, rows, GrainOf(rows, starts[rows], columns),
                [&](int64_t begin, int64_t end) { SharesOfLargest(segments, most, g, begin, end, share); });
    const MaxGradient<scalar_t> gradient{.offsets = out_offsets.const_data_ptr<int32_t>(),
                                         .rows = out_rows.const_data_ptr<int32_t>(),
                                         .targets = rows,
                                         .x = from,
                                         .largest = most,
                                         .share = share,
                                         .width = columns};
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    ParallelFor(0, nodes, GrainOf(nodes, starts[rows], columns),
                [&](int64_t begin, int64_t end) { GradientOfLargest(gradient, begin, end, to); });
  });
  return gx;
}

constexpr Operator<MaxForwardCpu> kMaxForward{"segment_max(Tensor x, Tensor offsets, Tensor sources) -> Tensor"};
constexpr Operator<MaxBackwardCpu> kMaxBackward{
    "segment_max_backward(Tensor grad, Tensor x, Tensor largest, Tensor offsets, Tensor sources, Tensor out_offsets, "
    "Tensor out_rows) -> Tensor"};

class SegmentMaxFunction : public torch::autograd::Function<SegmentMaxFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& offsets,
                        const Tensor& sources, const Tensor& out_offsets, const Tensor& out_rows) {
    Tensor largest = kMaxForward(x, offsets, sources);
    context->save_for_backward({x, largest, offsets, sources, out_offsets, out_rows});
    return largest;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {kMaxBackward(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]), Tensor(), Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kSegmentReduce.Register(library, ForwardComposite, ForwardGpu);
  kSegmentReduceBackward.Register(library, BackwardComposite);
  kSegmentOfEntry.Register(library, SegmentOfEntryComposite);
  kDense.Register(library, &DenseComposite);
  kMaxForward.Register(library);
  kMaxBackward.Register(library);
}

Tensor MeanScale(const Tensor& offsets, at::ScalarType type) {
  return offsets.diff().clamp_min(1).to(type).reciprocal();
}

Tensor SegmentSum(const Tensor& x, const Tensor& offsets, const Tensor& sources, const Tensor& weights) {
  return SegmentReduceFunction::apply(x, offsets, sources, IfDefined(weights), false);
}

Tensor SegmentMean(const Tensor& x, const Tensor& offsets, const Tensor& sources) {
  return SegmentReduceFunction::apply(x, offsets, sources, OptionalTensor(), true);
}

Tensor SparseLinear(const Tensor& weight, const Tensor& offsets, const Tensor& columns, const Tensor& values) {
  return SparseLinearFunction::apply(weight, offsets, columns, IfDefined(values));
}

Tensor SegmentOfEntry(const Tensor& offsets, int64_t entries) { return kSegmentOfEntry(offsets, entries); }

Tensor DenseOfSparse(const Tensor& offsets, const Tensor& columns, const Tensor& values, int64_t width,
                     at::ScalarType type) {
  return kDense(offsets, columns, IfDefined(values), width, type);
}

Tensor SegmentMax(const Tensor& x, const Tensor& offsets, const Tensor& sources, const CsrTranspose& transpose) {
  if (IsFused(x)) {
    const bool differentiated = at::GradMode::is_enabled() && x.requires_grad();
    if (!differentiated) return kMaxForward(x, offsets, sources);
    const CsrTranspose out =
        transpose.offsets.defined() ? transpose : TransposeCsr(offsets, sources, /*nodes=*/x.size(0));
    return SegmentMaxFunction::apply(x, offsets, sources, out.offsets, out.rows);
  }
  const int64_t rows = offsets.size(0) - 1;
  const Tensor row = SegmentOfEntry(offsets, sources.size(0)).unsqueeze(1).expand({sources.size(0), x.size(1)});
  // Padding entries go to a row beyond the last. They may name rows that x does not have. If the initial value equals
  // the result, scatter_reduce gives it a share of the gradient, even with include_self=false. So the initial value
  // is -infinity, which no finite value equals.
  const Tensor largest = at::full({rows + 1, x.size(1)}, -std::numeric_limits<double>::infinity(), x.options())
                             .scatter_reduce(0, row, SelectRows(x, sources.clamp_max(x.size(0) - 1)), "amax")
                             .narrow(0, 0, rows);
  const Tensor is_empty = offsets.narrow(0, 1, rows).eq(offsets.narrow(0, 0, rows)).unsqueeze(1);
  return at::where(is_empty, at::zeros({}, x.options()), largest);
}

}  // namespace permafrost::nn
