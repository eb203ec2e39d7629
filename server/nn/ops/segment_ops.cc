#include "nn/ops/segment_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <ranges>

namespace permafrost::nn {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Values that a thread should have at least: small parallel regions collapse when cores are shared. With half as many
// each, 25 us of work for one, two threads were as fast as one: `bench/run parallel --filter gathers`.
constexpr int64_t kGrain = 1 << 15;
// Source rows lie anywhere: the one that many entries ahead is asked for early.
constexpr int64_t kAhead = 8;
constexpr int64_t kCacheLine = 64;  // bytes

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

// Segments as the kernels read them.
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

// Calls body(first, last) for ranges of rows that cost about the same, a row costing one and each of its entries one.
template <class Body>
void ForRowRanges(const int64_t* starts, int64_t rows, int64_t columns, Body body) {
  const int64_t total = starts[rows] + rows;
  const int64_t parts =
      std::clamp<int64_t>(total * columns / kGrain, 1, 8 * static_cast<int64_t>(at::get_num_threads()));
  const auto cut = [&](int64_t part) {
    const auto all = std::views::iota(int64_t{0}, rows);
    const int64_t before = total / parts * part + total % parts * part / parts;
    return part == parts ? rows : *std::ranges::partition_point(all, [&](int64_t r) { return starts[r] + r < before; });
  };
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) { body(cut(begin), cut(end)); });
}

// to[r] = scale_r * sum over the entries of r of weight * from[source], where scale_r is 1, or 1 / count for a mean.
// Each row is summed by one thread, in the order of its entries.
template <class T>
void Gather(const T* from, int64_t from_rows, int64_t stride, int64_t columns, const int64_t* starts,
            const int64_t* source, const T* weights, bool mean, int64_t rows, T* to) {
  const int64_t entries = starts[rows];
  ForRowRanges(starts, rows, columns, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      T* __restrict__ out = to + r * columns;
      std::fill_n(out, columns, T(0));
      for (int64_t e = starts[r]; e < starts[r + 1]; ++e) {
        TORCH_INTERNAL_ASSERT_DEBUG_ONLY(source[e] >= 0 && source[e] < from_rows);
        const T* __restrict__ in = from + source[e] * stride;
        const T weight = weights == nullptr ? T(1) : weights[e];
        if (e + kAhead < entries) {
          const T* const next = from + source[e + kAhead] * stride;
          for (int64_t c = 0; c < columns; c += kCacheLine / static_cast<int64_t>(sizeof(T)))
            __builtin_prefetch(next + c);
        }
        for (int64_t c = 0; c < columns; ++c) out[c] += weight * in[c];
      }
      if (mean && starts[r + 1] > starts[r] + 1) {
        const T scale = T(1) / static_cast<T>(starts[r + 1] - starts[r]);
        for (int64_t c = 0; c < columns; ++c) out[c] *= scale;
      }
    }
  });
  (void)from_rows;  // read by debug builds only
}

Tensor WithUnitColumns(const Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

template <class T>
const T* Data(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? tensor->const_data_ptr<T>() : nullptr;
}

Tensor ForwardCpu(const Tensor& x_in, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights_in,
                  bool mean) {
  Check(x_in, offsets, sources, weights_in);
  const Tensor x = WithUnitColumns(x_in);
  const OptionalTensor weights = weights_in ? OptionalTensor(weights_in->contiguous()) : std::nullopt;
  const Segments segments(offsets, sources);
  Tensor out = at::empty({segments.rows, x.size(1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "segment_reduce", [&] {
    Gather<scalar_t>(x.const_data_ptr<scalar_t>(), x.size(0), x.stride(0), x.size(1), segments.starts, segments.source,
                     Data<scalar_t>(weights), mean, segments.rows, out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

// The transposed segments: for each source the rows that gather it, in the order of their entries, so that the
// backward is a gather too: no races, each gradient row written once, and sums in one order whatever the threads.
struct Transposed {
  Tensor offsets;  // [N + 2], of which the last is not used
  Tensor rows;     // [E], of which only real entries are used: sizes depend on shapes alone, as a memory plan needs
  Tensor weights;  // [E] of `type`; undefined: all 1
};
template <class T>
Transposed Transpose(const Segments& segments, int64_t sources, const T* weights, bool mean, at::TensorOptions type) {
  Transposed out{at::zeros({sources + 2}, at::kLong), at::empty_like(segments.sources), Tensor()};
  T* scale = nullptr;
  if (weights != nullptr || mean) {
    out.weights = at::empty({segments.sources.numel()}, type);
    scale = out.weights.mutable_data_ptr<T>();
  }
  int64_t* const starts = out.offsets.mutable_data_ptr<int64_t>();
  int64_t* const rows = out.rows.mutable_data_ptr<int64_t>();
  // Counted two places up: after the sums, starts[s + 1] is where source s begins, and moves to where it ends.
  for (int64_t e = 0; e < segments.entries; ++e) {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(segments.source[e] >= 0 && segments.source[e] < sources);
    ++starts[segments.source[e] + 2];
  }
  for (int64_t s = 0; s < sources; ++s) starts[s + 2] += starts[s + 1];
  for (int64_t r = 0; r < segments.rows; ++r) {
    const T of_row = mean ? T(1) / static_cast<T>(segments.starts[r + 1] - segments.starts[r]) : T(1);
    for (int64_t e = segments.starts[r]; e < segments.starts[r + 1]; ++e) {
      const int64_t place = starts[segments.source[e] + 1]++;
      rows[place] = r;
      if (scale != nullptr) scale[place] = weights == nullptr ? of_row : weights[e] * of_row;
    }
  }
  return out;
}

// grad: [R, C]. Returns [sources of x, C].
Tensor BackwardCpu(const Tensor& grad_in, const Tensor& offsets, const Tensor& sources,
                   const OptionalTensor& weights_in, int64_t rows_of_x, bool mean) {
  Check(grad_in, offsets, sources, weights_in);
  const Tensor grad = WithUnitColumns(grad_in);
  const OptionalTensor weights = weights_in ? OptionalTensor(weights_in->contiguous()) : std::nullopt;
  const Segments segments(offsets, sources);
  Tensor gx = at::empty({rows_of_x, grad.size(1)}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "segment_reduce_backward", [&] {
    const Transposed transposed =
        Transpose<scalar_t>(segments, rows_of_x, Data<scalar_t>(weights), mean, grad.options());
    Gather<scalar_t>(grad.const_data_ptr<scalar_t>(), grad.size(0), grad.stride(0), grad.size(1),
                     transposed.offsets.const_data_ptr<int64_t>(), transposed.rows.const_data_ptr<int64_t>(),
                     Data<scalar_t>(transposed.weights), false, rows_of_x, gx.mutable_data_ptr<scalar_t>());
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

// [R + 1, 1]: what a sum over each segment is multiplied by; the last is of padding.
Tensor MeanScale(const Tensor& offsets, const Tensor& like) {
  const Tensor counts = offsets.diff().to(like.scalar_type()).clamp_min(1);
  return at::cat({counts.reciprocal(), at::zeros({1}, like.options())}).unsqueeze(1);
}

Tensor ForwardComposite(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights,
                        bool mean) {
  Check(x, offsets, sources, weights);
  const int64_t rows = offsets.size(0) - 1;
  // Entries beyond the last offset may name rows that x does not have.
  Tensor messages = x.index_select(0, sources.clamp_max(x.size(0) - 1));
  if (weights) messages = messages * weights->unsqueeze(1);
  // Padding is summed into one row more, which is cut off.
  Tensor out = at::zeros({rows + 1, x.size(1)}, x.options());
  out.index_add_(0, SegmentOfEntryComposite(offsets, sources.size(0)), messages);
  if (mean) out = out * MeanScale(offsets, x);
  return out.narrow(0, 0, rows).contiguous();
}

Tensor BackwardComposite(const Tensor& grad, const Tensor& offsets, const Tensor& sources,
                         const OptionalTensor& weights, int64_t rows_of_x, bool mean) {
  Check(grad, offsets, sources, weights);
  Tensor padded = at::cat({grad, at::zeros({1, grad.size(1)}, grad.options())});
  if (mean) padded = padded * MeanScale(offsets, grad);
  const Tensor segment = SegmentOfEntryComposite(offsets, sources.size(0));
  Tensor messages = padded.index_select(0, segment);
  // The weights of padding may be anything, NaN too.
  if (weights) {
    const Tensor real = segment.lt(offsets.size(0) - 1);
    messages = messages * at::where(real, *weights, at::zeros({}, grad.options())).unsqueeze(1);
  }
  // The messages of entries beyond the last offset are 0, whatever row they name.
  return at::zeros({rows_of_x, grad.size(1)}, grad.options()).index_add_(0, sources.clamp_max(rows_of_x - 1), messages);
}

constexpr const char* kForward = "permafrost::segment_reduce";
constexpr const char* kBackward = "permafrost::segment_reduce_backward";
constexpr const char* kSegmentOfEntry = "permafrost::segment_of_entry";

OptionalTensor Optional(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

Tensor CallForward(const Tensor& x, const Tensor& offsets, const Tensor& sources, const OptionalTensor& weights,
                   bool mean) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kForward, "").typed<decltype(ForwardCpu)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, offsets, sources, weights, mean);
}

Tensor CallBackward(const Tensor& grad, const Tensor& offsets, const Tensor& sources, const Tensor& weights,
                    int64_t rows_of_x, bool mean) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kBackward, "").typed<decltype(BackwardCpu)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(grad, offsets, sources, Optional(weights), rows_of_x, mean);
}

// Both halves are dispatched operators, so that a capture below autograd sees them.
class SegmentReduceFunction : public torch::autograd::Function<SegmentReduceFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& offsets,
                        const Tensor& sources, const OptionalTensor& weights, bool mean) {
    context->save_for_backward({offsets, sources, weights.value_or(Tensor())});
    context->saved_data["rows"] = x.size(0);
    context->saved_data["mean"] = mean;
    return CallForward(x, offsets, sources, weights, mean);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {CallBackward(grads[0], saved[0], saved[1], saved[2], context->saved_data["rows"].toInt(),
                         context->saved_data["mean"].toBool()),
            Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// A sum over segments of the transposed weight's rows. Its gradient is laid out as the weight is, which fused
// optimizers take for granted.
class SparseLinearFunction : public torch::autograd::Function<SparseLinearFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& weight, const Tensor& offsets,
                        const Tensor& columns, const OptionalTensor& values) {
    context->save_for_backward({offsets, columns, values.value_or(Tensor())});
    context->saved_data["in"] = weight.size(1);
    return CallForward(weight.t().contiguous(), offsets, columns, values, false);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor transposed =
        CallBackward(grads[0], saved[0], saved[1], saved[2], context->saved_data["in"].toInt(), false);
    return {transposed.t().contiguous(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  library.def("segment_reduce(Tensor x, Tensor offsets, Tensor sources, Tensor? weights, bool mean) -> Tensor");
  library.def(
      "segment_reduce_backward(Tensor grad, Tensor offsets, Tensor sources, Tensor? weights, int rows_of_x, bool mean) "
      "-> Tensor");
  library.def("segment_of_entry(Tensor offsets, int entries) -> Tensor");
}

TORCH_LIBRARY_IMPL(permafrost, CPU, library) {
  library.impl("segment_reduce", ForwardCpu);
  library.impl("segment_reduce_backward", BackwardCpu);
  library.impl("segment_of_entry", SegmentOfEntryCpu);
}

TORCH_LIBRARY_IMPL(permafrost, CompositeExplicitAutograd, library) {
  library.impl("segment_reduce", ForwardComposite);
  library.impl("segment_reduce_backward", BackwardComposite);
  library.impl("segment_of_entry", SegmentOfEntryComposite);
}

Tensor SegmentSum(const Tensor& x, const Tensor& offsets, const Tensor& sources, const Tensor& weights) {
  return SegmentReduceFunction::apply(x, offsets, sources, Optional(weights), false);
}

Tensor SegmentMean(const Tensor& x, const Tensor& offsets, const Tensor& sources) {
  return SegmentReduceFunction::apply(x, offsets, sources, OptionalTensor(), true);
}

Tensor SparseLinear(const Tensor& weight, const Tensor& offsets, const Tensor& columns, const Tensor& values) {
  return SparseLinearFunction::apply(weight, offsets, columns, Optional(values));
}

Tensor SegmentOfEntry(const Tensor& offsets, int64_t entries) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(kSegmentOfEntry, "").typed<decltype(SegmentOfEntryCpu)>();
  return op.call(offsets, entries);
}

}  // namespace permafrost::nn
