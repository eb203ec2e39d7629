#include "nn/ops/skip_gram.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/buffer.h"
#include "nn/kernels/skip_gram.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr double kLikelihoodEps = 1e-15;  // as PyG's
// Walks that a thread should have at least.
constexpr int64_t kWalkGrain = 16;

WalkShape WalkShapeOf(const char* name, const Tensor& table, const Tensor& walks, int64_t context) {
  TORCH_CHECK(table.dim() == 2 && table.is_contiguous() && table.is_floating_point(), name,
              ": the table must be a contiguous floating [N, D], not ", table.toString(), table.sizes());
  TORCH_CHECK(walks.dim() == 2 && walks.is_contiguous() && walks.scalar_type() == at::kLong, name,
              ": walks must be a contiguous [W, length] int64, not ", walks.toString(), walks.sizes());
  TORCH_CHECK(context >= 2 && context <= walks.size(1), name, ": a context of ", context, " in walks of ",
              walks.size(1));
  return {.length = walks.size(1), .context = context, .dimension = table.size(1)};
}

void CheckLayout(const Tensor& walks, const Tensor& seeds, int64_t per_seed, int64_t negatives) {
  TORCH_CHECK(per_seed >= 1 && negatives >= 1 && walks.size(0) % (per_seed * (1 + negatives)) == 0,
              "skip_gram: ", walks.size(0), " walks are not ", per_seed, " and ", negatives,
              " times as many negatives of each seed");
  TORCH_CHECK(seeds.numel() == 1 && seeds.scalar_type() == at::kLong, "skip_gram: seeds must be one int64");
}

// Walks of one kind: [begin, begin + real) count, and those up to `end` are padding.
struct WalkKind {
  int64_t begin, end, real;
};

// Rows lie anywhere: those of the walk after this one are asked for early.
template <class T>
void AskFor(const WalkShape& shape, const T* table, const int64_t* walk) {
  for (int64_t i = 0; i < shape.length; ++i) {
    PrefetchLines(table + walk[i] * shape.dimension, static_cast<uint64_t>(shape.dimension) * sizeof(T));
  }
}

std::tuple<Tensor, Tensor, Tensor> SkipGramCpu(const Tensor& table, const Tensor& walks, const Tensor& seeds,
                                               int64_t context, int64_t per_seed, int64_t negatives) {
  const WalkShape shape = WalkShapeOf("skip_gram", table, walks, context);
  CheckLayout(walks, seeds, per_seed, negatives);
  const int64_t all = walks.size(0), real = *seeds.const_data_ptr<int64_t>(), positives = all / (1 + negatives);
  TORCH_CHECK(real >= 1 && real * per_seed <= positives, "skip_gram: ", real, " seeds in a batch of ",
              positives / per_seed);
  const WalkKind kinds[] = {{0, positives, real * per_seed}, {positives, all, real * per_seed * negatives}};
  Tensor parts = at::empty({all * shape.length, shape.dimension}, table.options().requires_grad(false));
  std::vector<double> losses(static_cast<size_t>(all));
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "skip_gram", [&] {
    const scalar_t* const values = table.const_data_ptr<scalar_t>();
    const int64_t* const nodes = walks.const_data_ptr<int64_t>();
    scalar_t* const gradients = parts.mutable_data_ptr<scalar_t>();
    ParallelFor(0, all, kWalkGrain, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> scores(static_cast<size_t>(shape.pairs()));
      for (int64_t w = begin; w < end; ++w) {
        const bool negative = w >= positives;
        const WalkKind& kind = kinds[negative ? 1 : 0];
        const int64_t* const walk = nodes + w * shape.length;
        scalar_t* const to = gradients + w * shape.length * shape.dimension;
        if (w - kind.begin >= kind.real) {
          std::fill_n(to, shape.length * shape.dimension, scalar_t{0});
          continue;
        }
        if (w + 1 < end) AskFor(shape, values, walk + shape.length);
        ScoreWalk(shape, values, walk, scores.data());
        losses[static_cast<size_t>(w)] = LossOfPairs(negative, shape.pairs(), scores.data());
        const double scale = 1 / (static_cast<double>(kind.real) * static_cast<double>(shape.pairs()));
        GradientOfWalk(shape, values, walk, scores.data(), static_cast<scalar_t>(scale), to);
      }
    });
  });
  double loss = 0;
  for (const WalkKind& kind : kinds) {
    double sum = 0;
    for (int64_t w = kind.begin; w < kind.begin + kind.real; ++w) sum += losses[static_cast<size_t>(w)];
    loss += sum / (static_cast<double>(kind.real) * static_cast<double>(shape.pairs()));
  }
  const auto number = table.options().dtype(at::kFloat).requires_grad(false);
  Tensor sum = at::empty({}, number), count = at::empty({}, number);
  *sum.mutable_data_ptr<float>() = static_cast<float>(loss * static_cast<double>(real));
  *count.mutable_data_ptr<float>() = static_cast<float>(real);
  return {sum, count, parts};
}

// [L, L]: whether j and i, j before i, are a pair.
Tensor BandOf(int64_t length, int64_t context, c10::Device device) {
  const Tensor places = at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  const Tensor first = places.view({length, 1}), second = places.view({1, length});
  return second.gt(first).logical_and(second.lt(first + context)).logical_and(first.le(length - context));
}

std::tuple<Tensor, Tensor, Tensor> SkipGramPlain(const Tensor& table, const Tensor& walks, const Tensor& seeds,
                                                 int64_t context, int64_t per_seed, int64_t negatives) {
  CheckLayout(walks, seeds, per_seed, negatives);
  const int64_t all = walks.size(0), length = walks.size(1), width = table.size(1), positives = all / (1 + negatives);
  const int64_t pairs = WalkShapeOf("skip_gram", table, walks, context).pairs();
  const Tensor rows = table.index_select(0, walks.reshape({-1})).view({all, length, width});
  const Tensor sigmoid = rows.bmm(rows.transpose(1, 2)).sigmoid(), other = sigmoid.neg().add(1);
  const Tensor number = at::arange(all, walks.options());
  const Tensor negative = number.ge(positives);
  const Tensor seed =
      at::where(negative, (number - positives).floor_divide(per_seed * negatives), number.floor_divide(per_seed));
  const Tensor likelihood = at::where(negative.view({all, 1, 1}), other, sigmoid).add(kLikelihoodEps);
  // 1 / the pairs of its kind, and 0 in padding.
  const Tensor count = seeds.reshape({}).to(table.scalar_type());
  const Tensor each = count * static_cast<double>(per_seed * pairs);
  const Tensor weight = at::where(negative, (each * static_cast<double>(negatives)).reciprocal(), each.reciprocal()) *
                        seed.lt(seeds).to(table.scalar_type());
  const Tensor counted =
      BandOf(length, context, table.device()).to(table.scalar_type()).unsqueeze(0) * weight.view({all, 1, 1});
  const Tensor sum = likelihood.log().neg().mul(counted).sum() * count;
  const Tensor slope = sigmoid * other / likelihood;
  const Tensor derivative = at::where(negative.view({all, 1, 1}), slope, slope.neg()) * counted;
  const Tensor parts = (derivative + derivative.transpose(1, 2)).bmm(rows).view({all * length, width});
  return {sum, count, parts};
}

Tensor WalkScoresCpu(const Tensor& table, const Tensor& walks, int64_t context) {
  const WalkShape shape = WalkShapeOf("walk_scores", table, walks, context);
  Tensor out = at::empty({walks.size(0), shape.pairs()}, table.options().requires_grad(false));
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "walk_scores", [&] {
    const scalar_t* const values = table.const_data_ptr<scalar_t>();
    const int64_t* const nodes = walks.const_data_ptr<int64_t>();
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ParallelFor(0, walks.size(0), kWalkGrain, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        ScoreWalk(shape, values, nodes + w * shape.length, to + w * shape.pairs());
      }
    });
  });
  return out;
}

Tensor WalkScoresPlain(const Tensor& table, const Tensor& walks, int64_t context) {
  const int64_t all = walks.size(0), length = walks.size(1), windows = length - context + 1;
  const Tensor rows = table.index_select(0, walks.reshape({-1})).view({all, length, table.size(1)});
  const Tensor first = at::arange(windows, walks.options()).view({windows, 1});
  const Tensor second = first + at::arange(1, context, walks.options()).view({1, context - 1});
  const Tensor places = (first * length + second).reshape({-1});
  return rows.bmm(rows.transpose(1, 2)).view({all, length * length}).index_select(1, places);
}

constexpr Operator<SkipGramCpu> kSkipGram{
    "skip_gram(Tensor table, Tensor walks, Tensor seeds, int context, int per_seed, int negatives) -> (Tensor, Tensor, "
    "Tensor)"};
constexpr Operator<WalkScoresCpu> kWalkScores{"walk_scores(Tensor table, Tensor walks, int context) -> Tensor"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kSkipGram.Register(library);
  kWalkScores.Register(library);
}

SkipGramStep SkipGram(const Tensor& table, const Tensor& walks, const Tensor& seeds, const WalkLayout& layout) {
  const at::NoGradGuard no_grad;
  const auto [sum, count, parts] =
      IsFused(table) ? kSkipGram(table, walks, seeds, layout.context, layout.per_seed, layout.negatives)
                     : SkipGramPlain(table, walks, seeds, layout.context, layout.per_seed, layout.negatives);
  return {.terms = {.mean = sum / count, .sum = sum, .count = count}, .parts = parts};
}

double MeanWalkLoss(const Tensor& scores, bool negative) {
  // One after the other: the same sum for any number of threads.
  Tensor host = scores.to(at::kCPU).contiguous().clone();
  double loss = 0;
  AT_DISPATCH_FLOATING_TYPES(host.scalar_type(), "walk_loss",
                             [&] { loss = LossOfPairs(negative, host.numel(), host.mutable_data_ptr<scalar_t>()); });
  return loss / static_cast<double>(host.numel());
}

Tensor WalkScores(const Tensor& table, const Tensor& walks, int64_t context) {
  const at::NoGradGuard no_grad;
  return IsFused(table) ? kWalkScores(table, walks, context) : WalkScoresPlain(table, walks, context);
}

}  // namespace permafrost::nn
