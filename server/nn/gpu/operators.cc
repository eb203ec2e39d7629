#include "nn/gpu/operators.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/kernels/norm.h"

namespace permafrost::nn::gpu {
namespace {

std::shared_ptr<const KernelLauncher>& Current() {
  // The launcher is never destroyed, because the device may be gone when static objects are destroyed.
  static auto& launcher = *new std::shared_ptr<const KernelLauncher>;
  return launcher;
}

}  // namespace

void UseKernels(std::shared_ptr<const KernelLauncher> launcher) { Current() = std::move(launcher); }
const std::shared_ptr<const KernelLauncher>& Kernels() { return Current(); }

namespace {

constexpr unsigned Blocks(int64_t values, int64_t of_block) {
  return static_cast<unsigned>((values + of_block - 1) / of_block);
}

// The arguments must have the types that the kernel declares.
template <class... Arguments>
void Launch(const char* kernel, KernelLauncher::Extent blocks, KernelLauncher::Extent threads, Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0) return;
  void* pointers[] = {reinterpret_cast<void*>(&arguments)...};
  Kernels()->Launch(kernel, blocks, threads, pointers);
}

// Launches a kernel whose blocks take kColumns columns each.
template <class... Arguments>
void LaunchOnColumns(const char* kernel, int64_t columns, int64_t others, Arguments... arguments) {
  TORCH_CHECK(others <= kMostBlocks, kernel, ": ", others, " blocks; at most ", kMostBlocks);
  Launch(kernel, {.x = Blocks(columns, kColumns), .y = static_cast<unsigned>(others)},
         {.x = static_cast<unsigned>(kColumns), .y = static_cast<unsigned>(kShares)}, arguments...);
}

// Launches a kernel whose blocks take kRows rows each.
template <class... Arguments>
void LaunchOnRows(const char* kernel, int64_t rows, Arguments... arguments) {
  Launch(kernel, {.x = Blocks(rows, kRows)}, {.x = static_cast<unsigned>(kLanes), .y = static_cast<unsigned>(kRows)},
         arguments...);
}

// Returns the data of a float32 tensor: From for a kernel to read, To for a kernel to write.
const float* From(const at::Tensor& t) { return t.const_data_ptr<float>(); }
float* To(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }

// Encoders, pooling and losses: the operators before and after the layers.

// kernels.cu has its own definition of this struct, which must agree.
struct Tables {
  const float* from[kMostTables];
  float* to[kMostTables];
  int rows[kMostTables];
  int count;
};

Tables TablesOf(at::IntArrayRef rows) {
  TORCH_CHECK(std::ssize(rows) <= kMostTables, "embedding_sum: ", rows.size(), " tables; at most ", kMostTables);
  Tables tables{};
  for (size_t t = 0; t < rows.size(); ++t) tables.rows[t] = static_cast<int>(rows[t]);
  tables.count = static_cast<int>(rows.size());
  return tables;
}

struct Loss {
  explicit Loss(const Tensor& prediction)
      : mean(at::empty({}, prediction.options())),
        sum(at::empty_like(mean)),
        count(at::empty_like(mean)),
        gradient(at::empty_like(prediction)) {}
  std::tuple<Tensor, Tensor, Tensor, Tensor> all() const { return {mean, sum, count, gradient}; }

  Tensor mean, sum, count, gradient;
};

}  // namespace

Tensor EmbeddingForward(const Tensor& features_in, at::TensorList tables_in) {
  const Tensor features = features_in.contiguous();
  std::vector<int64_t> sizes;
  std::vector<Tensor> kept;
  for (const Tensor& table : tables_in) {
    sizes.push_back(table.size(0));
    kept.push_back(table.contiguous());
  }
  Tables tables = TablesOf(sizes);
  for (size_t t = 0; t < kept.size(); ++t) tables.from[t] = From(kept[t]);
  const int64_t rows = features.size(0), columns = kept.at(0).size(1);
  Tensor y = at::empty({rows, columns}, kept[0].options());
  LaunchOnRows("embedding_sum", rows, features.const_data_ptr<int64_t>(), tables, rows, columns, To(y));
  return y;
}

std::vector<Tensor> EmbeddingBackward(const Tensor& grad_in, const Tensor& features_in, at::IntArrayRef sizes) {
  const Tensor grad = grad_in.contiguous(), features = features_in.contiguous();
  Tables tables = TablesOf(sizes);
  std::vector<Tensor> gradients;
  int64_t categories = 0;
  for (size_t t = 0; t < sizes.size(); ++t) {
    gradients.push_back(at::empty({sizes[t], grad.size(1)}, grad.options()));
    tables.to[t] = To(gradients.back());
    categories += sizes[t];
  }
  LaunchOnColumns("embedding_gradient", grad.size(1), categories, From(grad), features.const_data_ptr<int64_t>(),
                  tables, grad.size(0), grad.size(1));
  return gradients;
}

Tensor CombineCategories(const Tensor& features_in, at::IntArrayRef categories) {
  const Tensor features = features_in.contiguous();
  Tensor codes = at::empty({features.size(0)}, features.options().dtype(at::kInt));
  Launch("combine_categories", {.x = Blocks(features.size(0), kLanes * kRows)},
         {.x = static_cast<unsigned>(kLanes), .y = static_cast<unsigned>(kRows)}, features.const_data_ptr<int64_t>(),
         TablesOf(categories), features.size(0), codes.mutable_data_ptr<int32_t>());
  return codes;
}

Tensor PoolForward(const Tensor& x_in, const Tensor& graph_of_row_in, int64_t graphs, bool mean) {
  const Tensor x = x_in.contiguous(), graph = graph_of_row_in.contiguous();
  TORCH_CHECK(x.dim() == 2 && graph_of_row_in.dim() == 1 && graph_of_row_in.size(0) == x.size(0), "pool: x ", x.sizes(),
              " and graph_of_row ", graph_of_row_in.sizes(), " must be [N, C] and [N]");
  Tensor y = at::empty({graphs, x.size(1)}, x.options());
  LaunchOnColumns("pool", x.size(1), graphs, From(x), graph.const_data_ptr<int64_t>(), x.size(0), x.size(1),
                  static_cast<int>(mean), To(y));
  return y;
}

Tensor PoolBackward(const Tensor& grad_in, const Tensor& graph_of_row_in, bool mean) {
  const Tensor grad = grad_in.contiguous(), graph = graph_of_row_in.contiguous();
  Tensor gx = at::empty({graph.size(0), grad.size(1)}, grad.options());
  LaunchOnColumns("pool_gradient", grad.size(1), grad.size(0), From(grad), graph.const_data_ptr<int64_t>(),
                  graph.size(0), grad.size(1), static_cast<int>(mean), To(gx));
  return gx;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> RegressionLoss(const Tensor& prediction_in, const Tensor& labels_in,
                                                          bool square) {
  const Tensor prediction = prediction_in.contiguous(), labels = labels_in.to(at::kFloat).contiguous();
  TORCH_CHECK(prediction.sizes() == labels.sizes(), "regression_loss: predictions ", prediction.sizes(), " and labels ",
              labels.sizes());
  const Loss loss(prediction);
  LaunchOnColumns("regression_loss", 1, 1, From(prediction), From(labels), prediction.numel(), static_cast<int>(square),
                  To(loss.mean), To(loss.sum), To(loss.count), To(loss.gradient));
  return loss.all();
}

std::tuple<Tensor, Tensor, Tensor, Tensor> CrossEntropyLoss(const Tensor& logits_in, const Tensor& labels_in,
                                                            const OptionalTensor& class_weights_in) {
  const Tensor logits = logits_in.contiguous(), labels = labels_in.to(at::kFloat).contiguous();
  const Tensor weights = class_weights_in ? class_weights_in->to(at::kFloat).contiguous() : Tensor();
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) > 0 && labels.numel() == logits.size(0),
              "cross_entropy_loss: logits ", logits.sizes(), " and labels ", labels.sizes(),
              " must be [G, classes] and [G, 1]");
  TORCH_CHECK(!weights.defined() || weights.numel() == logits.size(1), "cross_entropy_loss: ", weights.numel(),
              " class weights for ", logits.size(1), " classes");
  const Loss loss(logits);
  LaunchOnColumns("cross_entropy_loss", 1, 1, From(logits), From(labels), weights.defined() ? From(weights) : nullptr,
                  logits.size(0), logits.size(1), To(loss.mean), To(loss.sum), To(loss.count), To(loss.gradient));
  return loss.all();
}

// Layers: message passing, MLP and batch norm.

namespace {

template <class T>
const T* FromOrNull(const OptionalTensor& t) {
  return t ? t->const_data_ptr<T>() : nullptr;
}
OptionalTensor InOrder(const OptionalTensor& t) { return t ? OptionalTensor(t->contiguous()) : std::nullopt; }

// Dropout of one step; threshold 0 drops nothing.
struct Drop {
  const int64_t* step = nullptr;
  uint32_t seed = 0, threshold = 0;
  float kept = 1;
};

std::tuple<Tensor, Tensor, Tensor> Normalize(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                             const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                             int64_t* batches, double momentum, double eps, const Drop& drop) {
  Tensor y = at::empty_like(x), mean = at::empty_like(weight), invstd = at::empty_like(weight);
  LaunchOnColumns("norm_forward", x.size(1), 1, From(x), real_rows.const_data_ptr<int64_t>(), From(weight), From(bias),
                  To(running_mean), To(running_var), batches, drop.step, x.size(0), x.size(1),
                  static_cast<float>(momentum), static_cast<float>(eps), drop.seed, drop.threshold, drop.kept, To(y),
                  To(mean), To(invstd));
  return {y, mean, invstd};
}

struct NormGradients {
  Tensor x, weight, bias;
};

// before_bias: if defined, receives the gradient of the bias that was added to make x.
NormGradients NormalizeBackward(const Tensor& grad_in, const Tensor& x, const Tensor& y, const Tensor& real_rows,
                                const Tensor& weight, const Tensor& mean, const Tensor& invstd, float kept,
                                const Tensor& before_bias) {
  const Tensor grad = grad_in.contiguous();
  const NormGradients to{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  LaunchOnColumns("norm_backward", x.size(1), 1, From(grad), From(x), From(y), real_rows.const_data_ptr<int64_t>(),
                  From(weight), From(mean), From(invstd), x.size(0), x.size(1), kept, To(to.x), To(to.weight),
                  To(to.bias), before_bias.defined() ? To(before_bias) : nullptr);
  return to;
}

// Returns relu(x * w1^T + b1). ReLU is applied separately, because cuBLAS's fused ReLU would turn NaN into 0.
Tensor Hidden(const Tensor& x, const Tensor& w1, const Tensor& b1) { return at::addmm(b1, x, w1.t()).relu_(); }

struct MlpGradients {
  Tensor x, w1, b1, w2;
};

MlpGradients BackwardOfMlp(const Tensor& grad, const Tensor& x, const Tensor& hidden, const Tensor& w1,
                           const Tensor& w2) {
  const Tensor within = grad.mm(w2);
  const Tensor b1 = at::empty({w1.size(0)}, w1.options());
  LaunchOnColumns("relu_backward", hidden.size(1), 1, From(hidden), hidden.size(0), hidden.size(1), To(within), To(b1));
  return {within.mm(w1), within.t().mm(x), b1, grad.t().mm(hidden)};
}

Tensor SumMessages(const Tensor& x, const OptionalTensor& rows, const OptionalTensor& code, const Tensor& source,
                   const Tensor& in_offsets) {
  Tensor sum = at::empty_like(x);
  LaunchOnRows("gine_sum", x.size(0), From(x), FromOrNull<float>(rows), FromOrNull<int32_t>(code),
               source.const_data_ptr<int64_t>(), in_offsets.const_data_ptr<int32_t>(), x.size(0), x.size(1), To(sum));
  return sum;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> NormForward(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                               const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                               double momentum, double eps) {
  return Normalize(x.contiguous(), real_rows, weight, bias, running_mean, running_var, nullptr, momentum, eps, {});
}

std::tuple<Tensor, Tensor, Tensor> NormBackward(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                const Tensor& invstd) {
  const NormGradients g = NormalizeBackward(grad, x.contiguous(), y, real_rows, weight, mean, invstd, 1, {});
  return {g.x, g.weight, g.bias};
}

std::tuple<Tensor, Tensor> MlpForward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                                      const Tensor& b2, bool /*bfloat16*/) {
  const Tensor hidden = Hidden(x, w1, b1);
  return {at::addmm(b2, hidden, w2.t()), hidden};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> MlpBackward(const Tensor& grad_in, const Tensor& x,
                                                               const Tensor& hidden, const Tensor& w1,
                                                               const Tensor& /*b1*/, const Tensor& w2,
                                                               const Tensor& /*b2*/, bool /*bfloat16*/) {
  const Tensor grad = grad_in.contiguous(), b2 = at::empty({w2.size(0)}, w2.options());
  LaunchOnColumns("column_sums", grad.size(1), 1, From(grad), grad.size(0), grad.size(1), To(b2));
  const MlpGradients g = BackwardOfMlp(grad, x, hidden, w1, w2);
  return {g.x, g.w1, g.b1, g.w2, b2};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineForward(
    const Tensor& x_in, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
    const Tensor& in_offsets, const Tensor& real_rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
    const Tensor& b2, const Tensor& norm_weight, const Tensor& norm_bias, Tensor& running_mean, Tensor& running_var,
    Tensor& batches, const Tensor& step, const OptionalTensor& row_keys, double momentum, double eps, int64_t seed,
    int64_t layer, double p, bool /*bfloat16*/) {
  TORCH_CHECK(!row_keys, "gine_layer: the GPU's operator takes no row_keys");
  const Tensor x = x_in.contiguous();
  const Tensor sum = SumMessages(x, InOrder(edge_rows), InOrder(code), source.contiguous(), in_offsets);
  const Tensor hidden = Hidden(sum, w1, b1);
  const Tensor product = at::addmm(b2, hidden, w2.t());
  const Drop drop{.step = step.const_data_ptr<int64_t>(),
                  .seed = DropoutSeed(seed, layer),
                  .threshold = p > 0 ? DropoutThreshold(p) : 0,
                  .kept = static_cast<float>(1 / (1 - p))};
  auto [y, mean, invstd] = Normalize(product, real_rows, norm_weight, norm_bias, running_mean, running_var,
                                     batches.mutable_data_ptr<int64_t>(), momentum, eps, drop);
  return {y, sum, hidden, product, mean, invstd};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineBackward(
    const Tensor& grad, const Tensor& x_in, const OptionalTensor& edge_rows_in, const OptionalTensor& code_in,
    const Tensor& out_offsets, const Tensor& out_targets, const Tensor& out_edges, const Tensor& real_rows,
    const Tensor& w1, const Tensor& /*b1*/, const Tensor& w2, const Tensor& /*b2*/, const Tensor& norm_weight,
    const Tensor& y, const Tensor& sum, const Tensor& hidden, const Tensor& product, const Tensor& mean,
    const Tensor& invstd, double p, bool /*bfloat16*/) {
  const Tensor x = x_in.contiguous(), b2 = at::empty({w2.size(0)}, w2.options());
  const OptionalTensor edge_rows = InOrder(edge_rows_in), code = InOrder(code_in);
  const NormGradients norm =
      NormalizeBackward(grad, product, y, real_rows, norm_weight, mean, invstd, static_cast<float>(1 / (1 - p)), b2);
  const MlpGradients mlp = BackwardOfMlp(norm.x, sum, hidden, w1, w2);
  const int64_t nodes = x.size(0), columns = x.size(1), edges = out_edges.size(0);
  const Tensor gx = at::empty_like(x), messages = at::empty({edge_rows ? edges : 0, columns}, x.options());
  LaunchOnRows("gine_gradient", nodes, From(x), FromOrNull<float>(edge_rows), FromOrNull<int32_t>(code),
               out_offsets.const_data_ptr<int32_t>(), out_targets.const_data_ptr<int32_t>(),
               out_edges.const_data_ptr<int32_t>(), From(mlp.x), nodes, columns, To(gx), To(messages));
  Tensor of_rows = messages;
  if (code) {
    of_rows = at::empty_like(*edge_rows);
    LaunchOnColumns("code_gradient", columns, edge_rows->size(0), FromOrNull<int32_t>(code), From(messages), edges,
                    columns, To(of_rows));
  }
  return {gx, of_rows, mlp.w1, mlp.b1, mlp.w2, b2, norm.weight, norm.bias};
}

Tensor GineEval(const Tensor& x_in, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
                const Tensor& in_offsets, const Tensor& /*real_rows*/, const Tensor& w1, const Tensor& b1,
                const Tensor& w2, const Tensor& b2, const Tensor& scale, const Tensor& shift, bool /*bfloat16*/) {
  const Tensor sum = SumMessages(x_in.contiguous(), InOrder(edge_rows), InOrder(code), source.contiguous(), in_offsets);
  return at::addcmul(shift, at::addmm(b2, Hidden(sum, w1, b1), w2.t()), scale).relu_();
}

Tensor SegmentReduce(const Tensor& x_in, const Tensor& offsets_in, const Tensor& sources_in,
                     const OptionalTensor& weights_in, bool mean) {
  const Tensor x = x_in.stride(1) == 1 ? x_in : x_in.contiguous(), offsets = offsets_in.contiguous(),
               sources = sources_in.contiguous();
  const OptionalTensor weights = InOrder(weights_in);
  const int64_t rows = offsets.size(0) - 1, columns = x.size(1);
  Tensor out = at::empty({rows, columns}, x.options());
  LaunchOnRows("segment_reduce", rows, From(x), x.stride(0), offsets.const_data_ptr<int64_t>(),
               sources.const_data_ptr<int64_t>(), FromOrNull<float>(weights), rows, columns, static_cast<int>(mean),
               To(out));
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EdgeIndex(const Tensor& source_in, const Tensor& target_in, int64_t nodes) {
  const Tensor source = source_in.contiguous(), target = target_in.contiguous();
  const int64_t edges = source.size(0);
  if (edges > kMostCountedEdges) {
    auto [rising, order] = at::sort(source, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    return {at::_convert_indices_from_coo_to_csr(target, nodes, /*out_int32=*/true),
            at::_convert_indices_from_coo_to_csr(rising, nodes, /*out_int32=*/true),
            target.index_select(0, order).to(at::kInt), order.to(at::kInt)};
  }
  const at::TensorOptions ints = source.options().dtype(at::kInt);
  Tensor in_offsets = at::empty({nodes + 1}, ints), out_offsets = at::empty({nodes + 1}, ints);
  Tensor out_targets = at::empty({edges}, ints), out_edges = at::empty({edges}, ints);
  LaunchOnRows("edge_index", edges + nodes + 1, source.const_data_ptr<int64_t>(), target.const_data_ptr<int64_t>(),
               edges, nodes, in_offsets.mutable_data_ptr<int32_t>(), out_offsets.mutable_data_ptr<int32_t>(),
               out_targets.mutable_data_ptr<int32_t>(), out_edges.mutable_data_ptr<int32_t>());
  return {in_offsets, out_offsets, out_targets, out_edges};
}

}  // namespace permafrost::nn::gpu
