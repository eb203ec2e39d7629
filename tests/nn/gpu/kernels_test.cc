// Compares the kernels for GPUs, run on the host, with the CPU operators of the same names. On a GPU, `permafrostd
// --self-test-device cuda` tests them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/gpu/cuda_on_host.h"
#include "nn/gpu/operators.h"
#include "nn/op_outcome.h"

namespace {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#include "nn/gpu/kernels.cu"
#pragma GCC diagnostic pop
}  // namespace

namespace permafrost::nn {
namespace {

using at::Tensor;
using gpu::OptionalTensor;

const auto kFloats = at::TensorOptions().dtype(at::kFloat), kLongs = at::TensorOptions().dtype(at::kLong);
constexpr double kTolerance = 1e-5;

// Calls the CPU operator `permafrost::name`.
template <class Function, class... Arguments>
auto OnCpu(Function* /*of_gpu*/, const char* name, Arguments&&... arguments) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("permafrost::") + name).c_str(), "")
      .typed<Function>()
      .call(std::forward<Arguments>(arguments)...);
}

template <class Tuple>
OpOutcome Named(const std::vector<std::string>& names, const Tuple& values) {
  OpOutcome outcome;
  std::apply([&](const auto&... each) { (outcome.emplace_back(names.at(outcome.size()), each), ...); }, values);
  return outcome;
}

// operators.h must give the same numbers as kernels.cu.
static_assert(gpu::kColumns == COLUMNS && gpu::kShares == SHARES && gpu::kLanes == LANES && gpu::kRows == ROWS &&
              gpu::kMostTables == MOST_TABLES);

class GpuKernels : public ::testing::TestWithParam<cuda_on_host::Order> {
 protected:
  void SetUp() override {
    using cuda_on_host::KernelOf;
    gpu::UseKernels(std::make_shared<cuda_on_host::HostLauncher>(
        std::map<std::string, cuda_on_host::Kernel>{{"norm_forward", KernelOf(norm_forward)},
                                                    {"norm_backward", KernelOf(norm_backward)},
                                                    {"relu_backward", KernelOf(relu_backward)},
                                                    {"column_sums", KernelOf(column_sums)},
                                                    {"edge_index", KernelOf(edge_index)},
                                                    {"segment_reduce", KernelOf(segment_reduce)},
                                                    {"gine_sum", KernelOf(gine_sum)},
                                                    {"gine_gradient", KernelOf(gine_gradient)},
                                                    {"code_gradient", KernelOf(code_gradient)},
                                                    {"embedding_sum", KernelOf(embedding_sum)},
                                                    {"embedding_gradient", KernelOf(embedding_gradient)},
                                                    {"combine_categories", KernelOf(combine_categories)},
                                                    {"pool", KernelOf(pool)},
                                                    {"pool_gradient", KernelOf(pool_gradient)},
                                                    {"regression_loss", KernelOf(regression_loss)},
                                                    {"cross_entropy_loss", KernelOf(cross_entropy_loss)}},
        GetParam()));
    at::manual_seed(7);
  }
  void TearDown() override { gpu::UseKernels(nullptr); }
};

struct GineKernelCase {
  const char* why;
  int64_t nodes, edges, in, hidden, out;
  int64_t codes = 4;  // 0: each edge has a row of its own; -1: GIN
  double p = 0;
  int64_t padding = 0;  // number of padding rows, and of padding edges
};

const GineKernelCase kGineCases[] = {{"a common layer", 60, 130, 16, 16, 16},
                                     {"more rows than a block shares", 300, 650, 24, 40, 20},
                                     {"widths off a block's columns", 45, 99, 13, 37, 21},
                                     {"a single column", 20, 40, 1, 1, 1},
                                     {"wider than a warp", 30, 60, 70, 33, 65},
                                     {"wider than a lane's columns", 12, 30, 140, 8, 8, 0},
                                     {"more edges at a node than lanes", 3, 150, 8, 8, 8},
                                     {"more rows than are kept", 1100, 1300, 8, 8, 8, 4, 0.2, 40},
                                     {"no edges", 30, 0, 8, 8, 8},
                                     {"one node with loops onto itself", 1, 3, 8, 8, 8},
                                     {"edges with rows of their own", 50, 120, 12, 12, 12, 0},
                                     {"edges with rows of their own, none of them", 10, 0, 8, 8, 8, 0},
                                     {"dropout", 60, 130, 16, 16, 16, 3, 0.4},
                                     {"GIN", 60, 130, 16, 16, 16, -1},
                                     {"padding", 40, 90, 8, 8, 8, 4, 0, 25},
                                     {"padding, dropout, edges with rows of their own", 40, 90, 8, 8, 8, 0, 0.3, 200},
                                     {"padding beside one row, which no norm follows", 1, 2, 8, 8, 8, 4, 0, 9},
                                     {"padding alone", 0, 0, 8, 8, 8, 4, 0, 9}};

TEST_P(GpuKernels, GineLayersAreTheCpus) {
  for (const GineKernelCase& c : kGineCases) {
    const int64_t rows = c.nodes + c.padding, edges = c.edges + c.padding;
    const auto ends = [&] {
      return at::cat(
          {at::randint(0, std::max<int64_t>(1, c.nodes), {c.edges}, kLongs), at::full({c.padding}, rows - 1, kLongs)});
    };
    const Tensor source = ends(), target = std::get<0>(at::sort(ends())), x = at::randn({rows, c.in}, kFloats);
    const OptionalTensor code =
        c.codes > 0 ? OptionalTensor(at::randint(0, c.codes, {edges}, kLongs).to(at::kInt)) : std::nullopt;
    const OptionalTensor edge_rows =
        c.codes >= 0 ? OptionalTensor(at::randn({c.codes > 0 ? c.codes : edges, c.in}, kFloats)) : std::nullopt;
    const auto index = OnCpu(&gpu::EdgeIndex, "edge_index", source, target, rows);
    ExpectClose(Named({"in_offsets", "out_offsets", "out_targets", "out_edges"}, gpu::EdgeIndex(source, target, rows)),
                Named({"in_offsets", "out_offsets", "out_targets", "out_edges"}, index), 0, c.why);
    const auto& [in_offsets, out_offsets, out_targets, out_edges] = index;
    const Tensor w1 = at::randn({c.hidden, c.in}, kFloats) / 4, b1 = at::randn({c.hidden}, kFloats),
                 w2 = at::randn({c.out, c.hidden}, kFloats) / 4, b2 = at::randn({c.out}, kFloats),
                 weight = at::rand({c.out}, kFloats) + 0.5, bias = at::randn({c.out}, kFloats),
                 real_rows = at::full({1}, c.nodes, kLongs), step = at::full({1}, (int64_t{3} << 33) + 17, kLongs);
    const Tensor start_mean = at::randn({c.out}, kFloats), start_var = at::rand({c.out}, kFloats) + 0.5;
    const auto run = [&](const auto& forward) {
      Tensor mean = start_mean.clone(), var = start_var.clone(), batches = at::full({}, 4, kLongs);
      auto out = forward(x, edge_rows, code, source, in_offsets, real_rows, w1, b1, w2, b2, weight, bias, mean, var,
                         batches, step, std::nullopt, 0.1, 1e-5, 5, 2, c.p, false);
      return std::tuple_cat(out, std::make_tuple(mean, var, batches));
    };
    const auto ours = run(gpu::GineForward);
    const auto theirs = run([](auto&&... arguments) {
      return OnCpu(&gpu::GineForward, "gine_layer", std::forward<decltype(arguments)>(arguments)...);
    });
    // Padding rows that only the backward pass reads may hold anything.
    const auto real = [&](const Tensor& t) { return t.narrow(0, 0, c.nodes); };
    const auto forward_of = [&](const auto& all) {
      const auto& [y, sum, hidden, product, mean, invstd, running_mean, running_var, batches] = all;
      return OpOutcome{{"y", y},
                       {"sum", real(sum)},
                       {"hidden", real(hidden)},
                       {"product", real(product)},
                       {"mean", mean},
                       {"invstd", invstd},
                       {"running_mean", running_mean},
                       {"running_var", running_var},
                       {"batches", batches}};
    };
    ExpectClose(forward_of(ours), forward_of(theirs), kTolerance, c.why);

    const auto& [y, sum, hidden, product, mean, invstd, running_mean, running_var, batches] = ours;
    const Tensor grad = at::randn({rows, c.out}, kFloats);
    const std::vector<std::string> names{"gx", "ge", "gw1", "gb1", "gw2", "gb2", "gweight", "gbias"};
    const auto backward = [&](const auto& of) {
      auto found = Named(names, of(grad, x, edge_rows, code, out_offsets, out_targets, out_edges, real_rows, w1, b1, w2,
                                   b2, weight, y, sum, hidden, product, mean, invstd, c.p, false));
      // A batch norm cancels a bias before it, so the bias has gradient 0. The CPU operator returns rounding errors
      // instead.
      if (c.nodes > 1) {
        EXPECT_LT(found[5].second.abs().max().template item<float>(), 1e-3) << c.why;
        found[5].second.zero_();
      }
      if (!edge_rows) found.erase(found.begin() + 1);
      return found;
    };
    ExpectClose(backward(gpu::GineBackward), backward([](auto&&... arguments) {
                  return OnCpu(&gpu::GineBackward, "gine_layer_backward",
                               std::forward<decltype(arguments)>(arguments)...);
                }),
                kTolerance, c.why);
    const Tensor scale = at::rand({c.out}, kFloats), shift = at::randn({c.out}, kFloats);
    const Tensor eval =
        gpu::GineEval(x, edge_rows, code, source, in_offsets, real_rows, w1, b1, w2, b2, scale, shift, false);
    const Tensor cpu_eval = OnCpu(&gpu::GineEval, "gine_layer_eval", x, edge_rows, code, source, in_offsets, real_rows,
                                  w1, b1, w2, b2, scale, shift, false);
    ExpectClose({{"eval", real(eval)}}, {{"eval", real(cpu_eval)}}, kTolerance, c.why);
  }
}

TEST_P(GpuKernels, NormIsTheCpus) {
  for (const auto& [rows, real, columns] :
       {std::tuple<int64_t, int64_t, int64_t>{300, 300, 20}, {300, 130, 8}, {5, 1, 9}, {4, 0, 3}}) {
    const Tensor x = at::randn({rows, columns}, kFloats), real_rows = at::full({1}, real, kLongs),
                 weight = at::randn({columns}, kFloats), bias = at::randn({columns}, kFloats),
                 start = at::rand({columns}, kFloats), grad = at::randn({rows, columns}, kFloats);
    const auto run = [&](const auto& forward, const auto& backward) {
      Tensor mean = start.clone(), var = start.clone();
      const auto [y, batch_mean, invstd] = forward(x, real_rows, weight, bias, mean, var, 0.1, 1e-5);
      const auto [gx, gw, gb] = backward(grad, x, y, real_rows, weight, batch_mean, invstd);
      return OpOutcome{
          {"y", y},   {"mean", batch_mean}, {"invstd", invstd}, {"running_mean", mean}, {"running_var", var},
          {"gx", gx}, {"gw", gw},           {"gb", gb}};
    };
    const auto cpu = run(
        [](auto&&... a) { return OnCpu(&gpu::NormForward, "masked_batch_norm_relu", std::forward<decltype(a)>(a)...); },
        [](auto&&... a) {
          return OnCpu(&gpu::NormBackward, "masked_batch_norm_relu_backward", std::forward<decltype(a)>(a)...);
        });
    ExpectClose(run(gpu::NormForward, gpu::NormBackward), cpu, kTolerance, std::to_string(real) + " real rows");
  }
}

TEST_P(GpuKernels, SegmentsAreTheCpus) {
  // The segments have 0, 1, 75 and 3 entries, and a warp has 32 lanes. The last three entries of `sources` are
  // padding.
  const Tensor offsets = at::tensor({0, 0, 1, 76, 79}, kLongs), wide = at::randn({40, 150}, kFloats),
               weights = at::randn({82}, kFloats), sources = at::randint(0, 40, {82}, kLongs);
  sources.narrow(0, 79, 3).fill_(1 << 20);
  for (const Tensor& x : {wide, wide.narrow(1, 3, 33)}) {
    for (const bool mean : {false, true}) {
      for (const OptionalTensor& of : {OptionalTensor(), OptionalTensor(weights)}) {
        ExpectClose({{"out", gpu::SegmentReduce(x, offsets, sources, of, mean)}},
                    {{"out", OnCpu(&gpu::SegmentReduce, "segment_reduce", x, offsets, sources, of, mean)}}, kTolerance,
                    mean ? "mean" : "sum");
      }
    }
  }
}

TEST_P(GpuKernels, MlpIsTheCpus) {
  const Tensor x = at::randn({150, 20}, kFloats), w1 = at::randn({11, 20}, kFloats), b1 = at::randn({11}, kFloats),
               w2 = at::randn({3, 11}, kFloats), b2 = at::randn({3}, kFloats), grad = at::randn({150, 3}, kFloats);
  const auto ours = gpu::MlpForward(x, w1, b1, w2, b2, false);
  ExpectClose(Named({"y", "hidden"}, ours),
              Named({"y", "hidden"}, OnCpu(&gpu::MlpForward, "mlp", x, w1, b1, w2, b2, false)), kTolerance, "forward");
  const Tensor& hidden = std::get<1>(ours);
  const std::vector<std::string> names{"gx", "gw1", "gb1", "gw2", "gb2"};
  ExpectClose(Named(names, gpu::MlpBackward(grad, x, hidden, w1, b1, w2, b2, false)),
              Named(names, OnCpu(&gpu::MlpBackward, "mlp_backward", grad, x, hidden, w1, b1, w2, b2, false)),
              kTolerance, "backward");
}

TEST_P(GpuKernels, EncodersAreTheCpus) {
  const std::vector<int64_t> categories{3, 1, 12};
  const int64_t rows = 150;
  std::vector<Tensor> columns, tables;
  for (const int64_t n : categories) {
    columns.push_back(at::randint(0, n, {rows}, kLongs));
    tables.push_back(at::randn({n, 19}, kFloats));
  }
  const Tensor features = at::stack(columns, 1), grad = at::randn({rows, 19}, kFloats);
  ExpectClose({{"y", gpu::EmbeddingForward(features, tables)}},
              {{"y", OnCpu(&gpu::EmbeddingForward, "embedding_sum", features, at::TensorList(tables))}}, kTolerance,
              "forward");
  const auto ours = gpu::EmbeddingBackward(grad, features, categories);
  const auto theirs =
      OnCpu(&gpu::EmbeddingBackward, "embedding_sum_backward", grad, features, at::IntArrayRef(categories));
  ASSERT_EQ(ours.size(), 3U);
  for (size_t t = 0; t < 3; ++t) {
    ExpectClose({{"table", ours[t]}}, {{"table", theirs[t]}}, kTolerance, std::to_string(t));
  }
  EXPECT_TRUE(at::equal(gpu::CombineCategories(features, categories),
                        OnCpu(&gpu::CombineCategories, "combine_categories", features, at::IntArrayRef(categories))));
}

TEST_P(GpuKernels, PoolingIsTheCpus) {
  // Graphs have 0, 1, 2, 7, or more rows than a block shares. Graphs 0 and 4 have no rows.
  const Tensor graph = at::repeat_interleave(at::tensor({0, 2, 1, 200, 0, 7}, kLongs));
  const Tensor x = at::randn({graph.numel(), 11}, kFloats), grad = at::randn({6, 11}, kFloats);
  for (const bool mean : {false, true}) {
    ExpectClose({{"y", gpu::PoolForward(x, graph, 6, mean)}, {"gx", gpu::PoolBackward(grad, graph, mean)}},
                {{"y", OnCpu(&gpu::PoolForward, "pool", x, graph, 6, mean)},
                 {"gx", OnCpu(&gpu::PoolBackward, "pool_backward", grad, graph, mean)}},
                kTolerance, mean ? "mean" : "sum");
  }
}

TEST_P(GpuKernels, LossesAreTheCpus) {
  constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::string> names{"mean", "sum", "count", "gradient"};
  const Tensor prediction = at::randn({1500, 1}, kFloats), labels = at::randn({1500, 1}, kFloats);
  labels.narrow(0, 100, 40).fill_(kMissing);
  prediction[3] = labels[3];
  const Tensor logits = at::randn({1300, 5}, kFloats) * 20,
               classes = at::randint(0, 5, {1300, 1}, kLongs).to(at::kFloat);
  classes.narrow(0, 1290, 10).fill_(kMissing);
  for (const bool square : {false, true}) {
    ExpectClose(Named(names, gpu::RegressionLoss(prediction, labels, square)),
                Named(names, OnCpu(&gpu::RegressionLoss, "regression_loss", prediction, labels, square)), kTolerance,
                square ? "square" : "absolute");
  }
  for (const OptionalTensor& weights : {OptionalTensor(), OptionalTensor(at::rand({5}, kFloats))}) {
    ExpectClose(Named(names, gpu::CrossEntropyLoss(logits, classes, weights)),
                Named(names, OnCpu(&gpu::CrossEntropyLoss, "cross_entropy_loss", logits, classes, weights)), kTolerance,
                weights ? "weighted" : "plain");
  }
  const Tensor none = at::full({3, 1}, kMissing, kFloats);
  ExpectClose(Named(names, gpu::RegressionLoss(prediction.narrow(0, 0, 3), none, false)),
              Named(names, OnCpu(&gpu::RegressionLoss, "regression_loss", prediction.narrow(0, 0, 3), none, false)),
              kTolerance, "no label");
  // The CPU refuses a label that is not a class. A kernel can only make the loss NaN.
  classes[7] = 5;
  EXPECT_TRUE(std::isnan(std::get<0>(gpu::CrossEntropyLoss(logits, classes, std::nullopt)).item<float>()));
}

TEST_P(GpuKernels, NanPassesThroughReluAndNorm) {
  Tensor x = at::randn({10, 4}, kFloats), mean = at::zeros({4}, kFloats), var = at::ones({4}, kFloats);
  x[2][1] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = std::get<0>(gpu::NormForward(x, at::full({1}, 10, kLongs), at::ones({4}, kFloats),
                                                at::zeros({4}, kFloats), mean, var, 0.1, 1e-5));
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 0).isnan().any().item<bool>());
}

TEST_P(GpuKernels, ManyEdgesAreSorted) {
  const int64_t edges = gpu::kMostCountedEdges + 3'000, nodes = 50;
  const Tensor source = at::randint(0, nodes, {edges}, kLongs),
               target = std::get<0>(at::sort(at::randint(0, nodes, {edges}, kLongs)));
  const std::vector<std::string> names{"in_offsets", "out_offsets", "out_targets", "out_edges"};
  ExpectClose(Named(names, gpu::EdgeIndex(source, target, nodes)),
              Named(names, OnCpu(&gpu::EdgeIndex, "edge_index", source, target, nodes)), 0, "sorted");
}

TEST_P(GpuKernels, TensorsThatDoNotFitAreRefused) {
  const Tensor x = at::randn({4, 3}, kFloats), graph = at::zeros({4}, kLongs);
  EXPECT_THROW(gpu::RegressionLoss(x, at::zeros({4, 2}, kFloats), false), c10::Error);
  EXPECT_THROW(gpu::CrossEntropyLoss(x, at::zeros({3, 1}, kFloats), std::nullopt), c10::Error);
  EXPECT_THROW(gpu::CrossEntropyLoss(x, at::zeros({4, 1}, kFloats), at::ones({2}, kFloats)), c10::Error);
  EXPECT_THROW(gpu::PoolForward(x, at::zeros({3}, kLongs), 1, false), c10::Error);
  EXPECT_THROW(gpu::PoolForward(x, graph, gpu::kMostBlocks + 1, false), c10::Error);
}

TEST_P(GpuKernels, NanPassesThroughTheMlp) {
  Tensor w1 = at::ones({2, 3}, kFloats);
  w1[0][0] = std::numeric_limits<float>::quiet_NaN();
  const auto y = std::get<0>(gpu::MlpForward(at::ones({4, 3}, kFloats), w1, at::zeros({2}, kFloats),
                                             at::ones({1, 2}, kFloats), at::zeros({1}, kFloats), false));
  EXPECT_TRUE(y.isnan().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Orders, GpuKernels,
                         ::testing::Values(cuda_on_host::Order::kForward, cuda_on_host::Order::kReverse),
                         [](const auto& order) {
                           return order.param == cuda_on_host::Order::kForward ? "Forward" : "Reverse";
                         });

}  // namespace
}  // namespace permafrost::nn
