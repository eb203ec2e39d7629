#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>

#include "nn/kernels/adam.h"
#include "nn/kernels/losses.h"
#include "nn/ops/chunks.h"
#include "operator_cases.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr int64_t kWidth = 64;

// body(begin, end) over [0, items), a part for each thread.
template <class Body>
std::function<void()> Divided(int64_t items, Body body) {
  return [=] {
    const int64_t threads = at::get_num_threads();
    at::parallel_for(0, items, std::max<int64_t>(1, (items + threads - 1) / threads),
                     [&](int64_t begin, int64_t end) { body(begin, end); });
  };
}

// An MLP so narrow that even two chunks of rows are less than the constant. size: multiplications.
std::function<void()> MatrixProducts(int64_t size) {
  constexpr int64_t kNarrow = 16;
  const int64_t rows = std::max<int64_t>(2, size / (2 * kNarrow * kNarrow));
  const Tensor weight = at::randn({kNarrow, kNarrow}), bias = at::randn({kNarrow});
  const MlpWeights w{weight, bias, weight, bias};
  const PackedMlp<float> packed = PackMlpForward<float>(w);
  const Tensor x = at::randn({rows, kNarrow}), hidden = at::empty_like(x), y = at::empty_like(x);
  return Divided(rows, [=](int64_t begin, int64_t end) {
    const int64_t at = begin * kNarrow;
    MlpForward<float>(w.widths(), end - begin, Read<float>(x) + at, packed.first, Read<float>(bias), packed.second,
                      Read<float>(bias), Write<float>(hidden) + at, Write<float>(y) + at);
  });
}

// Rows that are each the sum of five others anywhere. size: values of the rows and of what they are summed of.
std::function<void()> Gathers(int64_t size) {
  constexpr int64_t kEntries = 5;
  const int64_t rows = std::max<int64_t>(2, size / ((kEntries + 1) * kWidth));
  const Tensor x = at::randn({rows, kWidth}), sources = at::randint(0, rows, {rows * kEntries}, at::kLong);
  const Tensor y = at::empty_like(x);
  return Divided(rows, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* __restrict__ to = Write<float>(y) + r * kWidth;
      std::fill_n(to, kWidth, 0.0F);
      for (int64_t e = r * kEntries; e < (r + 1) * kEntries; ++e) {
        const float* __restrict__ from = Read<float>(x) + Read<int64_t>(sources)[e] * kWidth;
        for (int64_t c = 0; c < kWidth; ++c) to[c] += from[c];
      }
    }
  });
}

// A batch norm of two parts of rows, each a thread's, without the combining between its two passes. size: values.
std::function<void()> Norms(int64_t size) {
  const int64_t rows = std::max<int64_t>(2, size / (2 * kWidth));
  const Tensor x = at::randn({2, rows, kWidth}), y = at::empty_like(x), moments = at::empty({2, 2, kWidth});
  return Divided(2, [=](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* const of = Write<float>(moments) + b * 2 * kWidth;
      const float* const from = Read<float>(x) + b * rows * kWidth;
      ColumnMoments<float>(from, rows, kWidth, of, of + kWidth);
      ScaleShift<float>(from, rows, kWidth, of, of, /*relu=*/true, Write<float>(y) + b * rows * kWidth);
    }
  });
}

std::function<void()> Drops(int64_t size) {
  const int64_t rows = std::max<int64_t>(2, size / kWidth);
  const Tensor x = at::randn({rows, kWidth}), y = at::empty_like(x);
  return Divided(rows, [=](int64_t begin, int64_t end) {
    DropRows<float>({.key = 7, .threshold = 1U << 31}, 2, nullptr, begin, end - begin, kWidth,
                    Read<float>(x) + begin * kWidth, Write<float>(y) + begin * kWidth);
  });
}

std::function<void()> Updates(int64_t size) {
  const Tensor g = at::randn({size}), p = at::randn({size}), m = at::zeros({size}), v = at::zeros({size});
  return Divided(size, [=](int64_t begin, int64_t end) {
    AdamStep<float>({.learning_rate = 1e-3}, end - begin, Read<float>(g) + begin, Write<float>(p) + begin,
                    Write<float>(m) + begin, Write<float>(v) + begin);
  });
}

// Cross-entropy. size: logits.
std::function<void()> Losses(int64_t size) {
  constexpr int64_t kClasses = 16;
  const int64_t rows = std::max<int64_t>(2, size / kClasses);
  const Tensor x = at::randn({rows, kClasses}), labels = at::randint(0, kClasses, {rows}, at::kFloat);
  const Tensor gradient = at::empty_like(x);
  return Divided(rows, [=](int64_t begin, int64_t end) {
    const int64_t at = begin * kClasses;
    CrossEntropyRows<float>(Read<float>(x) + at, Read<float>(labels) + begin, nullptr, end - begin, kClasses, 1,
                            Write<float>(gradient) + at);
  });
}

}  // namespace

std::vector<ParallelRegion> MakeParallelRegions() {
  return {{"products", "kParallelProducts of server/nn/ops/chunks.h", MatrixProducts},
          {"gathers", "kParallelGathers of server/nn/ops/chunks.h; kEmbeddingGrain of server/nn/ops/rows_by_index.cc",
           Gathers},
          {"norms", "kParallelNormValues of server/nn/ops/batch_norm.cc", Norms},
          {"drops", "kDropGrain of server/nn/ops/dropout.cc", Drops},
          {"updates", "kAdamGrain blocks of kAdamBlock of server/nn/optimizer.cc", Updates},
          {"losses", "kLossGrain chunks of kLossChunk of server/nn/loss.cc", Losses}};
}

}  // namespace permafrost::nn
