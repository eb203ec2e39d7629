#include "nn/ops/sparse_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>

#include "nn/ops/operator.h"
#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Values that a thread should have at least.
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
    at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        scalar_t* const row = to + r * width;
        std::fill(row, row + width, scalar_t{0});
        for (int64_t e = starts[r]; e < starts[r + 1]; ++e) row[column[e]] += value == nullptr ? scalar_t{1} : value[e];
      }
    });
  });
  return out;
}

// Padding is summed into one row more, which is cut off.
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

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) { kDense.Register(library, &DenseComposite); }

Tensor DenseOfSparse(const Tensor& offsets, const Tensor& columns, const Tensor& values, int64_t width,
                     at::ScalarType type) {
  return kDense(offsets, columns, IfDefined(values), width, type);
}

}  // namespace permafrost::nn
