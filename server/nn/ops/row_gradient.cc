#include "nn/ops/row_gradient.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/kernels/adam.h"
#include "nn/kernels/segments.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr double kRowBeta1 = 0.9, kRowBeta2 = 0.999, kRowEps = 1e-8;
// Values that a thread should have at least.
constexpr int64_t kRowGrain = 1 << 13;

void CheckRows(const char* name, const Tensor& table, const Tensor& rows, const Tensor& offsets, const Tensor& places,
               const Tensor& parts) {
  TORCH_CHECK(table.dim() == 2 && table.is_contiguous(), name, ": the table must be a contiguous [N, D], not ",
              table.sizes());
  TORCH_CHECK(parts.dim() == 2 && parts.is_contiguous() && parts.size(1) == table.size(1) &&
                  parts.scalar_type() == table.scalar_type(),
              name, ": parts must be rows of the table's kind, not ", parts.toString(), parts.sizes());
  for (const Tensor* t : {&rows, &offsets, &places}) {
    TORCH_CHECK(t->dim() == 1 && t->scalar_type() == at::kLong && t->is_contiguous(), name,
                ": rows, offsets and places must be int64 vectors, not ", t->toString(), t->sizes());
  }
  TORCH_CHECK(offsets.size(0) == rows.size(0) + 1 && places.size(0) == parts.size(0), name, ": ", rows.size(0),
              " rows with ", offsets.size(0), " offsets; ", parts.size(0), " parts with ", places.size(0), " places");
}

// The parts as the segments that are summed.
template <class T>
SegmentRows<T> SegmentsOf(const Tensor& offsets, const Tensor& places, const Tensor& parts) {
  return {.x = parts.const_data_ptr<T>(),
          .stride = parts.size(1),
          .width = parts.size(1),
          .offsets = offsets.const_data_ptr<int64_t>(),
          .source = places.const_data_ptr<int64_t>(),
          .weights = nullptr,
          .self = nullptr,
          .scale = nullptr};
}

// body(row, segment, its parts) of the segments that are not empty.
template <class Body>
void ForRows(const Tensor& rows, const Tensor& offsets, int64_t width, const Body& body) {
  const int64_t *const row = rows.const_data_ptr<int64_t>(), *const begins = offsets.const_data_ptr<int64_t>();
  at::parallel_for(0, rows.size(0), std::max<int64_t>(1, kRowGrain / std::max<int64_t>(1, width)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t m = begin; m < end; ++m) {
                       if (begins[m] < begins[m + 1]) body(row[m], m);
                     }
                   });
}

Tensor DenseGradientCpu(const Tensor& rows, const Tensor& offsets, const Tensor& places, const Tensor& parts,
                        const Tensor& /*nodes*/, int64_t table_rows) {
  Tensor out = at::zeros({table_rows, parts.size(1)}, parts.options());
  CheckRows("dense_gradient", out, rows, offsets, places, parts);
  const int64_t width = parts.size(1);
  AT_DISPATCH_FLOATING_TYPES(parts.scalar_type(), "dense_gradient", [&] {
    const auto segments = SegmentsOf<scalar_t>(offsets, places, parts);
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ForRows(rows, offsets, width,
            [&](int64_t row, int64_t m) { SumSegments(segments, m, m + 1, to + row * width, width); });
  });
  return out;
}

Tensor DenseGradientPlain(const Tensor& /*rows*/, const Tensor& /*offsets*/, const Tensor& /*places*/,
                          const Tensor& parts, const Tensor& nodes, int64_t table_rows) {
  return at::zeros({table_rows, parts.size(1)}, parts.options()).index_add(0, nodes, parts);
}

void SparseAdamCpu(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                   const Tensor& learning_rate, const Tensor& rows, const Tensor& offsets, const Tensor& places,
                   const Tensor& parts, const Tensor& /*nodes*/) {
  CheckRows("sparse_adam_", table, rows, offsets, places, parts);
  for (const Tensor* moment : {&exp_avg, &exp_avg_sq}) {
    TORCH_CHECK(moment->sizes() == table.sizes() && moment->is_contiguous(), "sparse_adam_: a moment of ",
                moment->sizes(), " for a table of ", table.sizes());
  }
  const auto done = static_cast<double>(++*step.mutable_data_ptr<float>());
  // SparseAdam's eps stands beside the root of the moment as it is.
  const double root = std::sqrt(1 - std::pow(kRowBeta2, done));
  const AdamUpdate update{.beta1 = kRowBeta1,
                          .beta2 = kRowBeta2,
                          .eps = kRowEps,
                          .learning_rate = *learning_rate.const_data_ptr<double>(),
                          .correction1 = (1 - std::pow(kRowBeta1, done)) / root,
                          .correction2 = 1};
  const int64_t width = table.size(1);
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "sparse_adam_", [&] {
    const auto segments = SegmentsOf<scalar_t>(offsets, places, parts);
    scalar_t *const values = table.mutable_data_ptr<scalar_t>(), *const m1 = exp_avg.mutable_data_ptr<scalar_t>(),
                    *const m2 = exp_avg_sq.mutable_data_ptr<scalar_t>();
    ForRows(rows, offsets, width, [&](int64_t row, int64_t m) {
      thread_local std::vector<scalar_t> gradient;
      gradient.resize(static_cast<size_t>(width));
      SumSegments(segments, m, m + 1, gradient.data(), width);
      AdamStep<scalar_t>(update, width, gradient.data(), values + row * width, m1 + row * width, m2 + row * width);
    });
  });
}

// Its cost grows with the batch, not with the table. Rows that stand again in padding, without a part, get 0 added.
void SparseAdamPlain(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                     const Tensor& learning_rate, const Tensor& rows, const Tensor& offsets, const Tensor& places,
                     const Tensor& parts, const Tensor& /*nodes*/) {
  const int64_t count = rows.size(0);
  const Tensor order = at::arange(places.size(0), offsets.options());
  // Each place belongs to the last range that begins at or before it; places beyond all ranges, which say nothing, to
  // one more row.
  const Tensor owners = at::searchsorted(offsets, order, /*out_int32=*/false, /*right=*/true).sub(1);
  const Tensor used = at::where(owners < count, places, at::zeros({}, places.options()));
  const Tensor gradient = at::zeros({count + 1, parts.size(1)}, parts.options())
                              .index_add(0, owners, parts.index_select(0, used))
                              .slice(0, 0, count);
  const Tensor moves = (offsets.slice(0, 1) > offsets.slice(0, 0, -1)).unsqueeze(1);
  const Tensor still = at::zeros({}, table.options());
  step.add_(1);
  const auto moment = [&](const Tensor& all, const Tensor& toward, double beta) {
    const Tensor before = all.index_select(0, rows);
    const Tensor change = at::where(moves, (toward - before) * (1 - beta), still);
    all.index_add_(0, rows, change);
    return before + change;
  };
  const Tensor average = moment(exp_avg, gradient, kRowBeta1);
  const Tensor square = moment(exp_avg_sq, gradient * gradient, kRowBeta2);
  const Tensor correction1 = at::pow(kRowBeta1, step).neg().add(1), correction2 = at::pow(kRowBeta2, step).neg().add(1);
  const Tensor rate = learning_rate * correction2.sqrt() / correction1;
  const Tensor change = average / square.sqrt().add(kRowEps) * rate.to(table.scalar_type());
  table.index_add_(0, rows, at::where(moves, change, still).neg());
}

constexpr Operator<DenseGradientCpu> kDenseGradient{
    "dense_gradient(Tensor rows, Tensor offsets, Tensor places, Tensor parts, Tensor nodes, int table_rows) -> Tensor"};
constexpr Operator<SparseAdamCpu> kSparseAdam{
    "sparse_adam_(Tensor(a!) table, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!) step, Tensor learning_rate, "
    "Tensor rows, Tensor offsets, Tensor places, Tensor parts, Tensor nodes) -> ()"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kDenseGradient.Register(library);
  kSparseAdam.Register(library);
}

Tensor DenseGradient(const RowGradient& g, int64_t table_rows) {
  if (!IsFused(g.parts)) return DenseGradientPlain(g.rows, g.offsets, g.places, g.parts, g.nodes, table_rows);
  return kDenseGradient(g.rows, g.offsets, g.places, g.parts, g.nodes, table_rows);
}

void SparseAdamStep(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                    const Tensor& learning_rate, const RowGradient& g) {
  if (IsFused(table)) {
    kSparseAdam(table, exp_avg, exp_avg_sq, step, learning_rate, g.rows, g.offsets, g.places, g.parts, g.nodes);
  } else {
    SparseAdamPlain(table, exp_avg, exp_avg_sq, step, learning_rate, g.rows, g.offsets, g.places, g.parts, g.nodes);
  }
}

}  // namespace permafrost::nn
