// Calls of permafrost::edge_region through the dispatcher: which inputs get gradients, and which calls are refused.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/region_outcome.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// The arguments of a call, in the form an interpreter holds them.
struct BoxedCall {
  c10::List<Tensor> inputs, indices;
  Tensor offsets, places;
  c10::List<std::optional<Tensor>> index_offsets, index_places;
  std::vector<int64_t> code;
  std::vector<double> numbers;
};

BoxedCall MakeCall(const EdgeRegion& region, const RegionGraph& graph, const std::vector<Tensor>& inputs) {
  const RegionEdges edges = EdgesOf(graph);
  BoxedCall call;
  call.offsets = edges.targets.offsets;
  call.places = edges.targets.places;
  for (const Tensor& t : inputs) call.inputs.push_back(t);
  for (size_t k = 0; k < edges.indices.size(); ++k) {
    call.indices.push_back(edges.indices[k]);
    const EdgeSegments& segments = edges.index_segments[k];
    call.index_offsets.push_back(graph.has_segments[k] ? std::optional(segments.offsets) : std::nullopt);
    call.index_places.push_back(graph.has_segments[k] ? std::optional(segments.places) : std::nullopt);
  }
  EncodedRegion encoded = Encode(region);
  call.code = encoded.code;
  call.numbers = encoded.numbers;
  return call;
}

std::vector<Tensor> CallBoxed(const BoxedCall& call) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::edge_region", "");
  std::vector<c10::IValue> stack{call.inputs,        call.offsets,      call.places, call.indices,
                                 call.index_offsets, call.index_places, call.code,   call.numbers};
  op.callBoxed(stack);
  return stack.at(0).toTensorVector();
}

std::vector<Tensor> CallRowRegion(const EdgeRegion& region, const std::vector<Tensor>& inputs) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("permafrost::row_region", "");
  const EncodedRegion encoded = Encode(region);
  std::vector<c10::IValue> stack{c10::List<Tensor>(inputs), encoded.code, encoded.numbers};
  op.callBoxed(stack);
  return stack.at(0).toTensorVector();
}

// Regions without edges read slices of wider rows in place.
TEST(RowRegionCalls, ReadRowsThatLieApart) {
  for (const int32_t width : {1, 5, 16, 40}) {
    SCOPED_TRACE(width);
    RegionBuilder b;
    const int32_t first = b.Target(width), second = b.Target(width), shared = b.Shared(width), narrow = b.Target(1);
    const int32_t product =
        b.Op(RegionOp::kMul, b.OpX(RegionOp::kSigmoid, first), b.Op(RegionOp::kAdd, second, shared));
    const EdgeRegion region = b.Build({product, b.Op(RegionOp::kSub, product, narrow)});
    for (const int64_t rows : {0, 1, 9, 700}) {
      const Tensor wide = at::randn({rows, 2 * width + 3}, at::kDouble).requires_grad_(true);
      const Tensor row = at::randn({width}, at::kDouble).requires_grad_(true);
      const std::vector<Tensor> slices = {wide.narrow(1, 0, width), wide.narrow(1, width, width), row,
                                          wide.narrow(1, 2 * width, 1)};
      const auto gradients = [&](const std::vector<Tensor>& out) {
        return torch::autograd::grad({(out[0] * out[0]).sum() + out[1].sum()}, {wide, row});
      };
      const std::vector<Tensor> fused = CallRowRegion(region, slices);
      const std::vector<Tensor> plain =
          EdgeRegionPlain(region, slices, at::empty({0}, at::kLong), rows, /*indices=*/{});
      for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::allclose(fused[i], plain[i], 1e-12, 1e-12)) << i;
      const auto of_fused = gradients(fused), of_plain = gradients(plain);
      for (size_t i = 0; i < of_plain.size(); ++i) {
        EXPECT_TRUE(at::allclose(of_fused[i], of_plain[i], 1e-12, 1e-12))
            << "gradient " << i << ", " << rows << " rows";
      }
    }
  }
}

TEST(RowRegionCalls, NeedAnInputWithARowForEachTarget) {
  RegionBuilder b;
  const EdgeRegion region = b.Build({b.Op(RegionOp::kAdd, b.Target(3), b.Target(3))});
  EXPECT_THROW(CallRowRegion(region, {at::ones({4, 3}), at::ones({5, 3})}), c10::Error);
  EXPECT_THROW(CallRowRegion(region, {at::ones({}), at::ones({5, 3})}), c10::Error);
  EXPECT_THROW(CallRowRegion(region, {}), c10::Error);
  RegionBuilder with_edges;
  const EdgeRegion counting =
      with_edges.Build({with_edges.Op(RegionOp::kMul, with_edges.Target(3), with_edges.Count())});
  EXPECT_THROW(CallRowRegion(counting, {at::ones({4, 3})}), c10::Error);
}

struct GineCase {
  EdgeRegion region = GineRegion(6);
  RegionGraph graph = MakeGraph(10, 30, 2);
  std::vector<Tensor> inputs = MakeInputs(region, graph, at::kDouble);
};

TEST(EdgeRegionCalls, AreDifferentiableThroughTheDispatcher) {
  const GineCase g;
  const Tensor x = Leaf(g.inputs[0]);
  const std::vector<Tensor> fused = CallBoxed(MakeCall(g.region, g.graph, {x, g.inputs[1]}));
  const Tensor plain =
      EdgeRegionPlain(g.region, {x, g.inputs[1]}, g.graph.target_index, g.graph.targets, g.graph.indices)[0];
  ASSERT_EQ(fused.size(), 1);
  EXPECT_TRUE(fused[0].requires_grad());
  const Tensor gradient = torch::autograd::grad({fused[0].pow(2).sum()}, {x})[0];
  EXPECT_TRUE(at::allclose(gradient, torch::autograd::grad({plain.pow(2).sum()}, {x})[0], 1e-12, 1e-12));
}

TEST(EdgeRegionCalls, KeepNothingWhereNothingIsDifferentiated) {
  const GineCase g;
  EXPECT_FALSE(CallBoxed(MakeCall(g.region, g.graph, g.inputs))[0].requires_grad());
  const at::NoGradGuard none;
  EXPECT_FALSE(CallBoxed(MakeCall(g.region, g.graph, {Leaf(g.inputs[0]), g.inputs[1]}))[0].requires_grad());
}

TEST(EdgeRegionCalls, OutputsWithoutGradient) {
  const EdgeRegion region = SoftmaxRegion(8, 2);
  const RegionGraph graph = MakeGraph(10, 30, 1);
  std::vector<Tensor> inputs;
  for (const Tensor& t : MakeInputs(region, graph, at::kDouble)) inputs.push_back(Leaf(t));
  const std::vector<Tensor> plain = OutputsOf(RegionSide::kPlain, region, graph, inputs);
  const std::vector<Tensor> fused = OutputsOf(RegionSide::kFused, region, graph, inputs);
  for (size_t j = 0; j < fused.size(); ++j) {
    const auto want = torch::autograd::grad({plain[j].cos().sum()}, inputs, {}, /*retain_graph=*/true);
    const auto got = torch::autograd::grad({fused[j].cos().sum()}, inputs, {}, /*retain_graph=*/true);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(at::allclose(got[i], want[i], 1e-12, 1e-12)) << "output " << j << ", input " << i;
    }
  }
}

TEST(EdgeRegionCalls, InputsOfAnyDimensionsAndStrides) {
  RegionBuilder b;
  const int32_t shared = b.Shared(6), target = b.Target(6), edge = b.Edge(6), gather = b.Gather(6, 0);
  const int32_t sum = b.Sum(b.Op(RegionOp::kMul, b.Op(RegionOp::kMul, edge, shared), gather));
  const EdgeRegion region = b.Build({b.Op(RegionOp::kAdd, target, sum)});
  const RegionGraph graph = MakeGraph(9, 25, 1);
  const std::vector<Tensor> flat = MakeInputs(region, graph, at::kDouble);
  std::vector<Tensor> inputs{Leaf(flat[0].reshape({1, 2, 3})), Leaf(flat[1].reshape({9, 3, 2})),
                             Leaf(flat[2].t().contiguous()), Leaf(flat[3].reshape({9, 1, 6, 1}))};
  std::vector<Tensor> given = inputs;
  given[2] = inputs[2].t();
  const Tensor out = OutputsOf(RegionSide::kFused, region, graph, given)[0];
  EXPECT_TRUE(at::allclose(out, OutputsOf(RegionSide::kPlain, region, graph, flat)[0]));
  const auto gradients = torch::autograd::grad({out.sum()}, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(gradients[i].sizes(), inputs[i].sizes()) << i;
}

TEST(EdgeRegionCalls, RefuseWhatDoesNotFit) {
  const GineCase g;
  const struct {
    const char* why;
    std::function<void(BoxedCall&)> spoil;
  } kCases[] = {
      {"a code cut short", [](BoxedCall& c) { c.code.pop_back(); }},
      {"no code", [](BoxedCall& c) { c.code.clear(); }},
      {"no numbers", [](BoxedCall& c) { c.numbers.clear(); }},
      {"an input less", [](BoxedCall& c) { c.inputs.pop_back(); }},
      {"no inputs", [](BoxedCall& c) { c.inputs.clear(); }},
      {"an index less", [](BoxedCall& c) { c.indices.pop_back(); }},
      {"segments of one index", [](BoxedCall& c) { c.index_offsets.pop_back(); }},
      {"offsets without places", [](BoxedCall& c) { c.index_places.set(0, std::nullopt); }},
      {"types that differ", [](BoxedCall& c) { c.inputs.set(1, c.inputs.get(1).to(at::kFloat)); }},
      {"integers", [](BoxedCall& c) { c.inputs.set(0, c.inputs.get(0).to(at::kLong)); }},
      {"half floats",
       [](BoxedCall& c) {
         for (size_t i = 0; i < 2; ++i) c.inputs.set(i, c.inputs.get(i).to(at::kHalf));
       }},
      {"a table of another width",
       [](BoxedCall& c) {
         c.inputs.set(0, at::zeros({10, 5}, at::kDouble));
       }},
      {"a table without rows", [](BoxedCall& c) { c.inputs.set(0, at::zeros({}, at::kDouble)); }},
      {"a table of few rows",
       [](BoxedCall& c) {
         c.inputs.set(0, at::zeros({2, 6}, at::kDouble));
       }},
      {"an index of few edges", [](BoxedCall& c) { c.indices.set(0, at::zeros({29}, at::kLong)); }},
      {"an index of int32", [](BoxedCall& c) { c.indices.set(0, at::zeros({30}, at::kInt)); }},
      {"an index of two dimensions",
       [](BoxedCall& c) {
         c.indices.set(0, at::zeros({30, 1}, at::kLong));
       }},
      {"an index beyond", [](BoxedCall& c) { c.indices.set(1, at::full({30}, 4, at::kLong)); }},
      {"an index before", [](BoxedCall& c) { c.indices.set(1, at::full({30}, -1, at::kLong)); }},
      {"offsets of int64", [](BoxedCall& c) { c.offsets = c.offsets.to(at::kLong); }},
      {"no offsets", [](BoxedCall& c) { c.offsets = at::empty({0}, at::kInt); }},
      {"offsets that do not end", [](BoxedCall& c) { c.offsets = at::zeros({11}, at::kInt); }},
      {"offsets that fall",
       [](BoxedCall& c) {
         c.offsets = c.offsets.clone();
         c.offsets[3] = 31;
       }},
      {"offsets below 0",
       [](BoxedCall& c) {
         c.offsets = c.offsets.clone();
         c.offsets[0] = -5;
       }},
      {"places beyond", [](BoxedCall& c) { c.places = c.places + 1; }},
      {"places before", [](BoxedCall& c) { c.places = c.places - 1; }},
      {"places of fewer edges", [](BoxedCall& c) { c.places = c.places.slice(0, 1); }},
  };
  for (const auto& c : kCases) {
    BoxedCall call = MakeCall(g.region, g.graph, g.inputs);
    EXPECT_EQ(CallBoxed(call).size(), 1);
    c.spoil(call);
    EXPECT_THROW(CallBoxed(call), c10::Error) << c.why;
  }
}

TEST(EdgeRegionCalls, RefuseSegmentsThatDoNotFitWhereTheGradientReadsThem) {
  const GineCase g;
  const struct {
    const char* why;
    std::function<void(BoxedCall&)> spoil;
  } kCases[] = {
      {"of few rows",
       [](BoxedCall& c) {
         c.index_offsets.set(0, at::tensor({0, 30}, at::kInt));
       }},
      {"of other places", [](BoxedCall& c) { c.index_places.set(0, at::full({30}, 30, at::kInt)); }},
      {"of few places", [](BoxedCall& c) { c.index_places.set(0, at::zeros({3}, at::kInt)); }},
  };
  for (const auto& c : kCases) {
    const Tensor x = Leaf(g.inputs[0]);
    BoxedCall call = MakeCall(g.region, g.graph, {x, g.inputs[1]});
    c.spoil(call);
    const Tensor out = CallBoxed(call)[0];
    EXPECT_THROW(torch::autograd::grad({out.sum()}, {x}), c10::Error) << c.why;
  }
}

TEST(EdgeRegionCalls, SegmentsNameAnIndexOutOfRange) {
  for (const int64_t value : {int64_t{-1}, int64_t{3}, INT64_MAX, INT64_MIN}) {
    try {
      SegmentsOf(at::tensor({int64_t{0}, value}, at::kLong), 3);
      ADD_FAILURE() << value;
    } catch (const c10::IndexError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(value)), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(SegmentsOf(at::zeros({2}, at::kInt), 3), c10::Error);
  EXPECT_THROW(SegmentsOf(at::zeros({2}, at::kLong), -1), c10::Error);
  EXPECT_THROW(SegmentsOf(at::zeros({1}, at::kLong), 0), c10::Error);
}

}  // namespace
}  // namespace permafrost::nn
