#include "nn/ops/rows_by_index.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "nn/gpu/operators.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// If there are at least this many gathered values, several threads share the work. At half as many values (25 us of
// work) two threads were as fast as one: `bench/run parallel --filter gathers`.
constexpr int64_t kEmbeddingGrain = 1 << 16;
// The number of columns whose gradients one thread sums. kNarrowBlock is for many rows, which are worth more threads.
constexpr int64_t kEmbeddingBlock = 64, kNarrowBlock = 16;

void CheckEmbedding(const Tensor& features, at::TensorList tables) {
  TORCH_CHECK(features.dim() == 2 && features.scalar_type() == at::kLong &&
                  features.size(1) == static_cast<int64_t>(tables.size()) && !tables.empty(),
              "embedding_sum: features must be [N, ", tables.size(), "] int64, not ", features.toString(),
              features.sizes());
}

void CheckIndices(const Tensor& features, at::TensorList tables) {
  const int64_t* index = features.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < features.size(0); ++r) {
    for (const Tensor& table : tables) {
      TORCH_CHECK_INDEX(*index >= 0 && *index < table.size(0), "embedding: index ", *index, " is not in [0, ",
                        table.size(0), ")");
      ++index;
    }
  }
}

Tensor EmbeddingForwardCpu(const Tensor& features_in, at::TensorList tables_in) {
  CheckEmbedding(features_in, tables_in);
  const Tensor features = features_in.contiguous();
  std::vector<Tensor> tables;
  for (const Tensor& table : tables_in) tables.push_back(table.contiguous());
  const int64_t rows = features.size(0), width = tables[0].size(1), columns = features.size(1);
  CheckIndices(features, tables);
  Tensor y = at::empty({rows, width}, tables[0].options());
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "embedding_sum", [&] {
    std::vector<const scalar_t*> from;
    from.reserve(tables.size());
    for (const Tensor& table : tables) from.push_back(table.const_data_ptr<scalar_t>());
    const int64_t* const category = features.const_data_ptr<int64_t>();
    scalar_t* const to = y.mutable_data_ptr<scalar_t>();
    ParallelFor(
        0, rows, std::max<int64_t>(1, kEmbeddingGrain / (width * columns + 1)), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            scalar_t* __restrict__ out = to + r * width;
            std::copy_n(from[0] + category[r * columns] * width, width, out);
            for (int64_t c = 1; c < columns; ++c) {
              const scalar_t* __restrict__ in = from[static_cast<size_t>(c)] + category[r * columns + c] * width;
              for (int64_t i = 0; i < width; ++i) out[i] += in[i];
            }
          }
        });
  });
  return y;
}

// sizes: the number of rows of each table.
std::vector<Tensor> EmbeddingBackwardCpu(const Tensor& grad_in, const Tensor& features_in, at::IntArrayRef sizes) {
  const Tensor grad = grad_in.contiguous(), features = features_in.contiguous();
  const int64_t rows = grad.size(0), width = grad.size(1), columns = features.size(1);
  std::vector<Tensor> tables;
  for (const int64_t size : sizes) tables.push_back(at::zeros({size, width}, grad.options()));
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "embedding_sum_backward", [&] {
    std::vector<scalar_t*> to;
    to.reserve(tables.size());
    for (const Tensor& table : tables) to.push_back(table.mutable_data_ptr<scalar_t>());
    const int64_t* const category = features.const_data_ptr<int64_t>();
    const scalar_t* const from = grad.const_data_ptr<scalar_t>();
    // Each thread has its own tables and columns, and walks all rows in their order.
    const int64_t block = rows > kEmbeddingGrain / kNarrowBlock ? kNarrowBlock : kEmbeddingBlock;
    const int64_t blocks = (width + block - 1) / block;
    ParallelFor(0, columns * blocks, std::max<int64_t>(1, kEmbeddingGrain / (rows * block + 1)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t item = begin; item < end; ++item) {
                    const int64_t c = item / blocks, first = item % blocks * block;
                    const int64_t size = std::min(block, width - first);
                    for (int64_t r = 0; r < rows; ++r) {
                      const scalar_t* __restrict__ in = from + r * width + first;
                      scalar_t* __restrict__ out =
                          to[static_cast<size_t>(c)] + category[r * columns + c] * width + first;
                      for (int64_t i = 0; i < size; ++i) out[i] += in[i];
                    }
                  }
                });
  });
  return tables;
}

Tensor CombineCategoriesCpu(const Tensor& features_in, at::IntArrayRef categories) {
  TORCH_CHECK(features_in.dim() == 2 && features_in.scalar_type() == at::kLong &&
                  features_in.size(1) == static_cast<int64_t>(categories.size()),
              "combine_categories: features must be [N, ", categories.size(), "] int64, not ", features_in.toString(),
              features_in.sizes());
  const Tensor features = features_in.contiguous();
  const int64_t rows = features.size(0), columns = features.size(1);
  Tensor codes = at::empty({rows}, at::TensorOptions().dtype(at::kInt));
  const int64_t* from = features.const_data_ptr<int64_t>();
  int32_t* const to = codes.mutable_data_ptr<int32_t>();
  for (int64_t r = 0; r < rows; ++r, from += columns) {
    int64_t code = 0;
    for (int64_t c = 0; c < columns; ++c) code = code * categories[static_cast<size_t>(c)] + from[c];
    to[r] = static_cast<int32_t>(code);
  }
  return codes;
}

constexpr Operator<EmbeddingForwardCpu> kEmbeddingForward{"embedding_sum(Tensor features, Tensor[] tables) -> Tensor"};
constexpr Operator<EmbeddingBackwardCpu> kEmbeddingBackward{
    "embedding_sum_backward(Tensor grad, Tensor features, int[] sizes) -> Tensor[]"};
constexpr Operator<CombineCategoriesCpu> kCombineCategories{
    "combine_categories(Tensor features, int[] categories) -> Tensor"};

class EmbeddingSumFunction : public torch::autograd::Function<EmbeddingSumFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& features, at::TensorList tables) {
    context->save_for_backward({features});
    std::vector<int64_t> sizes;
    for (const Tensor& table : tables) sizes.push_back(table.size(0));
    context->saved_data["sizes"] = sizes;
    return kEmbeddingForward(features, tables);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    std::vector<Tensor> of_tables =
        kEmbeddingBackward(grads[0], context->get_saved_variables()[0], context->saved_data["sizes"].toIntVector());
    of_tables.insert(of_tables.begin(), Tensor());
    return of_tables;
  }
};

Tensor RowEmbeddingCpu(const Tensor& table, const Tensor& indices) {
  TORCH_CHECK(table.dim() == 2 && indices.scalar_type() == at::kLong && table.is_cpu() && indices.is_cpu(),
              "row_embedding: table ", table.sizes(), " and indices ", indices.toString(),
              " must be [rows, C] and int64 on the CPU");
  const Tensor rows = EmbeddingSumFunction::apply(indices.reshape({-1, 1}), at::TensorList(table));
  if (indices.dim() == 1) return rows;
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(table.size(1));
  return rows.view(sizes);
}

// The most comparisons of the GPU's gradient kernel. For each row of a table, the kernel reads the table's whole
// column of categories.
constexpr int64_t kMostComparisons = 1 << 24;

bool FitsGpu(const Tensor& features, const std::vector<Tensor>& tables) {
  if (!HasKernels(tables.at(0)) || std::ssize(tables) > gpu::kMostTables) return false;
  int64_t categories = 0;
  for (const Tensor& table : tables) categories += table.size(0);
  return categories <= gpu::kMostBlocks && features.size(0) <= kMostComparisons / std::max<int64_t>(1, categories);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kEmbeddingForward.Register(library, nullptr, gpu::EmbeddingForward);
  kEmbeddingBackward.Register(library, nullptr, gpu::EmbeddingBackward);
  kCombineCategories.Register(library, nullptr, gpu::CombineCategories);
  library.def("row_embedding(Tensor table, Tensor indices) -> Tensor");
  library.impl("row_embedding", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, RowEmbeddingCpu));
}

Tensor RowEmbedding(const Tensor& table, const Tensor& indices) { return RowEmbeddingCpu(table, indices); }

Tensor EmbeddingSum(const Tensor& features, const std::vector<Tensor>& tables) {
  if (IsFused(tables.at(0)) || FitsGpu(features, tables))
    return EmbeddingSumFunction::apply(features, at::TensorList(tables));
  // Uses index_select instead of embedding, because the backward of index_select is an index_add. For small tables
  // that is several times as fast.
  Tensor sum = SelectRows(tables[0], features.select(1, 0));
  for (size_t c = 1; c < tables.size(); ++c) {
    sum = sum + SelectRows(tables[c], features.select(1, static_cast<int64_t>(c)));
  }
  return sum;
}

Tensor CombineCategories(const Tensor& features, const std::vector<int64_t>& categories) {
  if (IsFused(features) || (HasKernels(features) && std::ssize(categories) <= gpu::kMostTables)) {
    return kCombineCategories(features, categories);
  }
  Tensor codes = features.select(1, 0);
  for (size_t c = 1; c < categories.size(); ++c) {
    codes = codes * categories[c] + features.select(1, static_cast<int64_t>(c));
  }
  return codes.to(at::kInt);
}

Tensor CombineTables(const std::vector<Tensor>& tables) {
  Tensor combined = tables.at(0);
  for (size_t c = 1; c < tables.size(); ++c) {
    combined = (combined.unsqueeze(1) + tables[c].unsqueeze(0)).flatten(0, 1);
  }
  return combined;
}

namespace {

// Returns the factor of each graph's sum, in type T.
template <class T>
std::vector<T> FactorsOf(const int64_t* graph_of_row, int64_t rows, int64_t graphs, bool mean) {
  std::vector<T> factors(static_cast<size_t>(graphs), mean ? T(0) : T(1));
  if (!mean) return factors;
  for (int64_t r = 0; r < rows; ++r) factors[static_cast<size_t>(graph_of_row[r])] += 1;
  for (T& factor : factors) factor = T(1) / std::max(T(1), factor);
  return factors;
}

Tensor PoolForwardCpu(const Tensor& x_in, const Tensor& graph_in, int64_t graphs, bool mean) {
  const Tensor x = x_in.contiguous(), graph = graph_in.contiguous();
  TORCH_CHECK(x.dim() == 2 && graph.dim() == 1 && graph.size(0) == x.size(0) && graph.scalar_type() == at::kLong,
              "pool: x ", x.sizes(), " and graph_of_row ", graph.toString(), graph.sizes(),
              " must be [N, C] and [N] int64");
  const int64_t rows = x.size(0), width = x.size(1);
  const int64_t* const of = graph.const_data_ptr<int64_t>();
  TORCH_CHECK(rows == 0 || (of[0] >= 0 && of[rows - 1] < graphs), "pool: graph_of_row is outside 0..", graphs - 1);
  Tensor y = at::zeros({graphs, width}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pool", [&] {
    const auto factors = FactorsOf<scalar_t>(of, rows, graphs, mean);
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    scalar_t* const to = y.mutable_data_ptr<scalar_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const scalar_t* __restrict__ in = from + r * width;
      scalar_t* __restrict__ out = to + of[r] * width;
      for (int64_t c = 0; c < width; ++c) out[c] += in[c];
    }
    for (int64_t g = 0; mean && g < graphs; ++g) {
      const scalar_t factor = factors[static_cast<size_t>(g)];
      for (int64_t c = 0; c < width; ++c) to[g * width + c] *= factor;
    }
  });
  return y;
}

Tensor PoolBackwardCpu(const Tensor& grad_in, const Tensor& graph_in, bool mean) {
  const Tensor grad = grad_in.contiguous(), graph = graph_in.contiguous();
  const int64_t rows = graph.size(0), width = grad.size(1), graphs = grad.size(0);
  const int64_t* const of = graph.const_data_ptr<int64_t>();
  Tensor gx = at::empty({rows, width}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "pool_backward", [&] {
    const auto factors = FactorsOf<scalar_t>(of, rows, graphs, mean);
    const scalar_t* const from = grad.const_data_ptr<scalar_t>();
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const scalar_t factor = factors[static_cast<size_t>(of[r])];
      const scalar_t* __restrict__ in = from + of[r] * width;
      scalar_t* __restrict__ out = to + r * width;
      for (int64_t c = 0; c < width; ++c) out[c] = in[c] * factor;
    }
  });
  return gx;
}

constexpr Operator<PoolForwardCpu> kPoolForward{"pool(Tensor x, Tensor graph_of_row, int graphs, bool mean) -> Tensor"};
constexpr Operator<PoolBackwardCpu> kPoolBackward{
    "pool_backward(Tensor grad, Tensor graph_of_row, bool mean) -> Tensor"};

class PoolFunction : public torch::autograd::Function<PoolFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& graph, int64_t graphs,
                        bool mean) {
    context->save_for_backward({graph});
    context->saved_data["mean"] = mean;
    return kPoolForward(x, graph, graphs, mean);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {kPoolBackward(grads[0], context->get_saved_variables()[0], context->saved_data["mean"].toBool()), Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kPoolForward.Register(library, nullptr, gpu::PoolForward);
  kPoolBackward.Register(library, nullptr, gpu::PoolBackward);
}

Tensor PoolRows(const Tensor& x, const Tensor& graph_of_row, int64_t graphs, spec::Pooling pooling) {
  if (IsFused(x) || (HasKernels(x) && graphs <= gpu::kMostBlocks)) {
    return PoolFunction::apply(x, graph_of_row, graphs, pooling == spec::Pooling::kMean);
  }
  Tensor sums = AddRows(at::zeros({graphs, x.size(1)}, x.options()), graph_of_row, x);
  if (pooling == spec::Pooling::kSum) return sums;
  const Tensor ones = at::ones({x.size(0)}, x.options());
  return sums / AddRows(at::zeros({graphs}, x.options()), graph_of_row, ones).clamp_min(1).unsqueeze(1);
}

namespace {

// A thread should get at least this many values.
constexpr int64_t kPairGrain = 1 << 15;
// Threads share a gradient in blocks of this many columns, a cache line of float32.
constexpr int64_t kColumnsTogether = 16;

void CheckPairs(const Tensor& x, const Tensor& first, const Tensor& second) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "pair_products: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  for (const Tensor* index : {&first, &second}) {
    TORCH_CHECK(index->dim() == 1 && index->scalar_type() == at::kLong && index->sizes() == first.sizes(),
                "pair_products: pairs must be two [P] int64, not ", index->toString(), index->sizes());
  }
}

Tensor PairsForwardCpu(const Tensor& x_in, const Tensor& first_in, const Tensor& second_in) {
  CheckPairs(x_in, first_in, second_in);
  const Tensor x = x_in.contiguous(), first = first_in.contiguous(), second = second_in.contiguous();
  const int64_t pairs = first.size(0), width = x.size(1);
  Tensor out = at::empty({pairs, width}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pair_products", [&] {
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    const int64_t *const a = first.const_data_ptr<int64_t>(), *const b = second.const_data_ptr<int64_t>();
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ParallelFor(0, pairs, std::max<int64_t>(1, kPairGrain / std::max<int64_t>(1, width)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t p = begin; p < end; ++p) {
                    const scalar_t* const left = from + a[p] * width;
                    const scalar_t* const right = from + b[p] * width;
                    scalar_t* __restrict__ product = to + p * width;
                    for (int64_t c = 0; c < width; ++c) product[c] = left[c] * right[c];
                  }
                });
  });
  return out;
}

// grad: [P, C]. A row may be in many pairs. So threads share the columns, and each thread adds up all pairs in their
// order.
Tensor PairsBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& first_in, const Tensor& second_in) {
  CheckPairs(x_in, first_in, second_in);
  const Tensor x = x_in.contiguous(), grad = grad_in.contiguous();
  const Tensor first = first_in.contiguous(), second = second_in.contiguous();
  const int64_t pairs = first.size(0), width = x.size(1);
  Tensor gx = at::zeros_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pair_products_backward", [&] {
    const scalar_t *const from = x.const_data_ptr<scalar_t>(), *const g = grad.const_data_ptr<scalar_t>();
    const int64_t *const a = first.const_data_ptr<int64_t>(), *const b = second.const_data_ptr<int64_t>();
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    const int64_t groups = (width + kColumnsTogether - 1) / kColumnsTogether;
    const int64_t grain = std::max<int64_t>(1, kPairGrain / std::max<int64_t>(1, pairs * kColumnsTogether));
    ParallelFor(0, groups, grain, [&](int64_t begin, int64_t end) {
      const int64_t low = begin * kColumnsTogether, columns = std::min(width, end * kColumnsTogether) - low;
      for (int64_t p = 0; p < pairs; ++p) {
        const scalar_t* const of_pair = g + p * width + low;
        const scalar_t *const left = from + a[p] * width + low, *const right = from + b[p] * width + low;
        scalar_t *const to_left = to + a[p] * width + low, *const to_right = to + b[p] * width + low;
        for (int64_t c = 0; c < columns; ++c) to_left[c] += of_pair[c] * right[c];
        for (int64_t c = 0; c < columns; ++c) to_right[c] += of_pair[c] * left[c];
      }
    });
  });
  return gx;
}

constexpr Operator<PairsForwardCpu> kPairsForward{"pair_products(Tensor x, Tensor first, Tensor second) -> Tensor"};
constexpr Operator<PairsBackwardCpu> kPairsBackward{
    "pair_products_backward(Tensor grad, Tensor x, Tensor first, Tensor second) -> Tensor"};

class PairProductsFunction : public torch::autograd::Function<PairProductsFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& first,
                        const Tensor& second) {
    context->save_for_backward({x, first, second});
    return kPairsForward(x, first, second);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {kPairsBackward(grads[0], saved[0], saved[1], saved[2]), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kPairsForward.Register(library);
  kPairsBackward.Register(library);
}

Tensor PairProducts(const Tensor& x, const Tensor& first, const Tensor& second) {
  if (IsFused(x)) return PairProductsFunction::apply(x, first, second);
  return SelectRows(x, first) * SelectRows(x, second);
}

}  // namespace permafrost::nn
