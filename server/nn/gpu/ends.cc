// Encoders, pooling and losses: the operators before the layers and after them.
#include <ATen/ATen.h>

#include <tuple>
#include <vector>

#include "nn/gpu/launch.h"
#include "nn/gpu/operators.h"

namespace permafrost::nn::gpu {
namespace {

// kernels.cu defines the same.
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

}  // namespace permafrost::nn::gpu
