// Compares each operator with the dense matrix that it stands for.
#include "nn/ops/segment_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "nn/leaf.h"
#include "nn/op_outcome.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

Tensor Longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

struct Csr {
  Tensor offsets, sources, weights;  // `weights` is float64 or undefined
  int64_t rows() const { return offsets.size(0) - 1; }
};

// Returns the [R, N] float64 matrix of the sums or means.
Tensor Matrix(const Csr& csr, int64_t columns, bool mean) {
  Tensor out = at::zeros({csr.rows(), columns}, at::kDouble);
  for (int64_t r = 0; r < csr.rows(); ++r) {
    const int64_t begin = csr.offsets[r].item<int64_t>(), end = csr.offsets[r + 1].item<int64_t>();
    for (int64_t e = begin; e < end; ++e) {
      const double weight = csr.weights.defined() ? csr.weights[e].item<double>() : 1;
      out[r][csr.sources[e].item<int64_t>()] += mean ? weight / static_cast<double>(end - begin) : weight;
    }
  }
  return out;
}

Csr Random(int64_t rows, int64_t columns, int64_t entries, bool weighted) {
  Csr csr;
  const Tensor counts = at::bincount(at::randint(0, rows, {entries}, at::kLong), {}, rows);
  csr.offsets = at::cat({Longs({0}), counts.cumsum(0)});
  csr.sources = at::randint(0, columns, {entries}, at::kLong);
  if (weighted) csr.weights = at::randn({entries}, at::kDouble);
  return csr;
}

struct Case {
  const char* why;
  Csr csr;
  int64_t sources;
};
std::vector<Case> Cases() {
  return {
      {"common", Random(30, 20, 100, false), 20},
      {"weighted", Random(30, 20, 100, true), 20},
      {"first, last and inner segments empty", {Longs({0, 0, 2, 2, 3, 3}), Longs({1, 1, 0}), {}}, 2},
      {"one edge twice", {Longs({0, 2}), Longs({3, 3}), at::tensor({0.5, 2.0}, at::kDouble)}, 4},
      {"no entries", {Longs({0, 0, 0}), Longs({}), {}}, 3},
      {"no rows", {Longs({0}), Longs({}), {}}, 3},
      {"no sources", {Longs({0, 0}), Longs({}), {}}, 0},
      {"padding is no entry", {Longs({0, 1, 2}), Longs({0, 1, 1, 1}), {}}, 2},
      {"nor are its weights",
       {Longs({0, 1, 2}), Longs({0, 1, 1}), at::tensor({2.0, 3.0, std::nan("")}, at::kDouble)},
       2},
  };
}

TEST(SegmentOps, SumsAndMeansAreMatrixProducts) {
  for (const Case& c : Cases()) {
    for (const bool mean : {false, true}) {
      if (mean && c.csr.weights.defined()) continue;
      for (const int64_t width : {1, 5, 64, 100}) {
        const Tensor x = at::randn({c.sources, width}, at::kDouble).requires_grad_(true);
        const Tensor y = mean ? SegmentMean(x, c.csr.offsets, c.csr.sources)
                              : SegmentSum(x, c.csr.offsets, c.csr.sources, c.csr.weights);
        const Tensor matrix = Matrix(c.csr, c.sources, mean);
        EXPECT_TRUE(y.allclose(matrix.mm(x), 1e-12, 1e-12)) << c.why << ", mean " << mean << ", width " << width;
        const Tensor upstream = at::randn_like(y);
        const Tensor gradient = torch::autograd::grad({y}, {x}, {upstream})[0];
        EXPECT_TRUE(gradient.allclose(matrix.t().mm(upstream), 1e-12, 1e-12))
            << c.why << ", mean " << mean << ", width " << width;
      }
    }
  }
}

TEST(SegmentOps, SparseLinearIsALinearMap) {
  for (const Case& c : Cases()) {
    const Tensor weight = at::randn({7, c.sources}, at::kDouble).requires_grad_(true);
    const Tensor y = SparseLinear(weight, c.csr.offsets, c.csr.sources, c.csr.weights);
    const Tensor matrix = Matrix(c.csr, c.sources, false);
    EXPECT_TRUE(y.allclose(matrix.mm(weight.t()), 1e-12, 1e-12)) << c.why;
    const Tensor upstream = at::randn_like(y);
    const Tensor gradient = torch::autograd::grad({y}, {weight}, {upstream})[0];
    EXPECT_TRUE(gradient.allclose(upstream.t().mm(matrix), 1e-12, 1e-12)) << c.why;
    EXPECT_TRUE(gradient.is_contiguous()) << c.why << ": fused optimizers walk both side by side";
  }
}

TEST(SegmentOps, FloatIsDoubleRounded) {
  const Csr csr = Random(50, 40, 300, true);
  const Tensor x = at::randn({40, 33}, at::kDouble);
  const Tensor wide = SegmentSum(x, csr.offsets, csr.sources, csr.weights);
  const Tensor narrow = SegmentSum(x.to(at::kFloat), csr.offsets, csr.sources, csr.weights.to(at::kFloat));
  EXPECT_EQ(narrow.scalar_type(), at::kFloat);
  EXPECT_TRUE(narrow.to(at::kDouble).allclose(wide, 1e-5, 1e-5));
}

TEST(SegmentOps, RowsMayLieApart) {
  const Csr csr = Random(20, 15, 60, false);
  const Tensor wide = at::randn({15, 12}), part = wide.narrow(1, 3, 6);
  EXPECT_TRUE(
      SegmentMean(part, csr.offsets, csr.sources).equal(SegmentMean(part.contiguous(), csr.offsets, csr.sources)));
  // The gradient of a transposed product has this layout.
  EXPECT_TRUE(SegmentMean(wide.t(), Longs({0, 2}), Longs({1, 5}))
                  .equal(SegmentMean(wide.t().contiguous(), Longs({0, 2}), Longs({1, 5}))));
}

TEST(SegmentOps, ResultsDoNotDependOnTheThreads) {
  // The work is large enough for several parts, and one row holds half of the entries.
  const Csr random = Random(20000, 30000, 60000, true);
  const int64_t half = 60000;
  const Csr csr{at::cat({Longs({0}), random.offsets + half}), at::cat({random.sources, random.sources}),
                at::cat({random.weights, random.weights}).to(at::kFloat)};
  const Tensor x = at::randn({30000, 64}).requires_grad_(true);
  const Tensor upstream = at::randn({20001, 64});
  std::vector<Tensor> first;
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3, 7}) {
    at::set_num_threads(threads);
    const Tensor sum = SegmentSum(x, csr.offsets, csr.sources, csr.weights);
    const Tensor mean = SegmentMean(x, csr.offsets, csr.sources);
    const std::vector<Tensor> now{sum, mean, torch::autograd::grad({sum}, {x}, {upstream})[0],
                                  torch::autograd::grad({mean}, {x}, {upstream})[0],
                                  SegmentOfEntry(csr.offsets, csr.sources.size(0))};
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(first[i])) << i << ", threads " << threads;
  }
  at::set_num_threads(before);
}

TEST(SegmentOps, EntriesKnowTheirSegment) {
  EXPECT_TRUE(SegmentOfEntry(Longs({0, 0, 2, 2, 3}), 5).equal(Longs({1, 1, 3, 4, 4})));
  EXPECT_TRUE(SegmentOfEntry(Longs({0}), 2).equal(Longs({0, 0})));
  EXPECT_TRUE(SegmentOfEntry(Longs({0, 0}), 0).equal(Longs({})));
}

// Devices without a kernel of their own run the composite operator.
TEST(SegmentOps, TheCompositeEqualsTheKernel) {
  const auto call = [](const char* name, c10::DispatchKey key, torch::jit::Stack stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxedForDispatchKey(key, stack);
    return stack[0].toTensor();
  };
  for (const Case& c : Cases()) {
    const Tensor x = at::randn({c.sources, 9}, at::kDouble), grad = at::randn({c.csr.rows(), 9}, at::kDouble);
    const auto weights = c.csr.weights.defined() ? c10::IValue(c.csr.weights) : c10::IValue();
    for (const bool mean : {false, true}) {
      if (mean && c.csr.weights.defined()) continue;
      std::vector<Tensor> forward, backward, segment;
      for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd}) {
        forward.push_back(call("permafrost::segment_reduce", key, {x, c.csr.offsets, c.csr.sources, weights, mean}));
        backward.push_back(call("permafrost::segment_reduce_backward", key,
                                {grad, c.csr.offsets, c.csr.sources, weights, c.sources, mean}));
        segment.push_back(call("permafrost::segment_of_entry", key, {c.csr.offsets, c.csr.sources.size(0)}));
      }
      EXPECT_TRUE(forward[0].allclose(forward[1])) << c.why << ", mean " << mean;
      EXPECT_TRUE(backward[0].allclose(backward[1])) << c.why << ", mean " << mean;
      EXPECT_TRUE(segment[0].equal(segment[1])) << c.why;
    }
  }
}

// In a deeper layer, a block has fewer rows than the entries of its outer hops refer to.
TEST(SegmentOps, TheCompositeReadsNoRowThatIsNotThere) {
  const Tensor x = at::randn({3, 4}, at::kDouble), grad = at::randn({2, 4}, at::kDouble);
  const Tensor offsets = Longs({0, 2, 3}), sources = Longs({0, 2, 1, 7, 9});
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd}) {
    const auto call = [key](const char* name, torch::jit::Stack stack) {
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxedForDispatchKey(key, stack);
      return stack[0].toTensor();
    };
    const Tensor out = call("permafrost::segment_reduce", {x, offsets, sources, c10::IValue(), false});
    EXPECT_TRUE(out.allclose(at::stack({x[0] + x[2], x[1]})));
    const Tensor back =
        call("permafrost::segment_reduce_backward", {grad, offsets, sources, c10::IValue(), int64_t{3}, false});
    EXPECT_TRUE(back.allclose(at::stack({grad[0], grad[1], grad[0]})));
  }
}

TEST(SegmentOps, OffsetsBeyondTheEntriesAreRefused) {
  const Tensor x = at::randn({4, 3});
  EXPECT_THROW(SegmentSum(x, Longs({0, 5}), Longs({1, 2}), {}), c10::Error);
  EXPECT_THROW(SegmentSum(x, Longs({1, 2}), Longs({1, 2}), {}), c10::Error);
  EXPECT_THROW(SegmentSum(x, Longs({0, 2}), Longs({1, 2}), at::ones({3})), c10::Error);
  EXPECT_THROW(SegmentOfEntry(Longs({0, 5}), 2), c10::Error);
}

struct MaxCase {
  int64_t nodes = 0, rows = 0, width = 0, most = 0, padding = 0;
  at::ScalarType type = at::kDouble;
};

// Makes segments of 0 to `most` entries, some of which repeat. The values take few levels, so that many are equal.
OpOutcome RunMax(const MaxCase& c) {
  std::mt19937 random(5);
  std::vector<int64_t> offsets{0}, sources;
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto entries = static_cast<int64_t>(random() % static_cast<uint64_t>(c.most + 1));
    for (int64_t e = 0; e < entries; ++e) {
      sources.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(c.nodes)));
    }
    offsets.push_back(std::ssize(sources));
  }
  // A layer's block also has the edges of the layers below. Their sources lie beyond the layer's own rows.
  sources.resize(sources.size() + static_cast<size_t>(c.padding), c.nodes + 3);
  std::vector<double> levels;
  for (int64_t i = 0; i < c.nodes * c.width; ++i) levels.push_back(static_cast<double>(random() % 4) - 2);
  const Tensor x = Leaf(at::tensor(levels, at::kDouble).to(c.type).reshape({c.nodes, c.width}));
  const Tensor out = SegmentMax(x, at::tensor(offsets, at::kLong), at::tensor(sources, at::kLong));
  const Tensor weight = at::cos(at::arange(out.numel(), c.type)).reshape(out.sizes());
  return {{"largest", out.detach()}, {"gradient", torch::autograd::grad({(out * weight).sum()}, {x}).front()}};
}

TEST(SegmentMax, AgreesWithScatterReduceAlsoWhereValuesAreEqual) {
  for (const MaxCase& c :
       {MaxCase{.nodes = 5, .rows = 7, .width = 3, .most = 4}, MaxCase{.nodes = 1, .rows = 1, .width = 1, .most = 0},
        MaxCase{.nodes = 40, .rows = 30, .width = 17, .most = 6, .padding = 9},
        MaxCase{.nodes = 700, .rows = 600, .width = 64, .most = 12, .padding = 100, .type = at::kFloat}}) {
    const std::string why = std::to_string(c.rows) + " x " + std::to_string(c.width);
    const OpOutcome fused = RunMax(c);
    {
      const LoweringScope scope(spec::Lowering::kPlain);
      nn::ExpectClose(fused, RunMax(c), c.type == at::kFloat ? 1e-6 : 1e-13, why);
    }
    ExpectEqualByThreads([&] { return RunMax(c); }, why);
  }
}

TEST(SegmentMax, OfNegativeValuesAndOfNone) {
  const Tensor x = Leaf(at::tensor({-3.0, -1.0, -2.0}, at::kDouble).unsqueeze(1));
  const Tensor out = SegmentMax(x, at::tensor({0, 2, 2, 5}, at::kLong), at::tensor({0, 2, 1, 1, 0}, at::kLong));
  EXPECT_TRUE(out.equal(at::tensor({-2.0, 0.0, -1.0}, at::kDouble).unsqueeze(1)));
  const Tensor gradient = torch::autograd::grad({out.sum()}, {x}).front();
  EXPECT_TRUE(gradient.equal(at::tensor({0.0, 1.0, 1.0}, at::kDouble).unsqueeze(1))) << "an edge that is there twice";
}

// A model passes the transpose of the whole block, and a layer uses only its first rows.
TEST(SegmentMax, TheTransposeMayBeOfMoreRows) {
  const Tensor offsets = at::tensor({0, 2, 3, 5}, at::kLong), sources = at::tensor({0, 1, 2, 2, 0}, at::kLong);
  const CsrTranspose all = TransposeCsr(offsets, sources, 3);
  const Tensor first = offsets.narrow(0, 0, 3);
  Tensor gradients[2];
  for (int i = 0; i < 2; ++i) {
    const Tensor x = Leaf(at::tensor({1.0, 4.0, 2.0}, at::kDouble).unsqueeze(1));
    const Tensor out = i == 0 ? SegmentMax(x, first, sources) : SegmentMax(x, first, sources, all);
    gradients[i] = torch::autograd::grad({out.sum()}, {x}).front();
  }
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
  EXPECT_TRUE(gradients[0].equal(at::tensor({0.0, 1.0, 1.0}, at::kDouble).unsqueeze(1)));
}

TEST(SegmentMax, RefusesIndicesOfOtherKinds) {
  const Tensor x = at::zeros({4, 2}), offsets = at::tensor({0, 1}, at::kLong), sources = at::tensor({0}, at::kLong);
  EXPECT_THROW(SegmentMax(x, offsets.to(at::kInt), sources), c10::Error);
  EXPECT_THROW(SegmentMax(x, offsets, sources.to(at::kInt)), c10::Error);
  EXPECT_THROW(SegmentMax(x.select(1, 0), offsets, sources), c10::Error);
}

TEST(DenseOfSparse, IsTheProductWithTheIdentity) {
  const Tensor offsets = at::tensor({0, 3, 3, 5, 6}, at::kLong);
  // A column occurs twice in a row, one row is empty, and the last two entries are padding.
  const Tensor columns = at::tensor({4, 0, 4, 2, 1, 3, 0, 0}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const bool given : {true, false}) {
      const Tensor values = given ? at::arange(1, 9, at::kInt).to(type) : Tensor();
      const Tensor dense = DenseOfSparse(offsets, columns, values, 6, type);
      EXPECT_TRUE(dense.equal(SparseLinear(at::eye(6, type), offsets, columns, values))) << type << given;
      EXPECT_EQ(dense.sum().item<double>(), given ? 21 : 6);
    }
  }
}

TEST(DenseOfSparse, RefusesWhatIsNone) {
  const Tensor offsets = at::tensor({0, 1}, at::kLong), columns = at::tensor({0}, at::kLong);
  EXPECT_THROW(DenseOfSparse(offsets.to(at::kInt), columns, {}, 3, at::kFloat), c10::Error);
  EXPECT_THROW(DenseOfSparse(offsets, columns, at::ones({2}), 3, at::kFloat), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
