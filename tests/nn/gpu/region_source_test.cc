// Kernels generated from regions. NVRTC compiles their source, and on the host they give the results of PyTorch's
// operators.
#include "nn/gpu/region_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/gpu/host_kernels.h"
#include "nn/gpu/nvrtc.h"
#include "nn/gpu/source_regions.h"

namespace permafrost::nn {
namespace {

using at::Tensor;
using Order = HostKernels::Order;

constexpr char kGineSource[] = R"(// 0: edge[64] = gather(input 0, index 0)
// 1: edge[64] = edge(input 1)
// 2: edge[64] = add(0, 1, x 1)
// 3: edge[64] = relu(2, x 1)
// 4: target[64] = sum(3)
// output: 4
typedef long long int64;
extern "C" __global__ void __launch_bounds__(64) gine(
    const float* input0,
    const float* input1,
    const int64* index0,
    const int* offsets,
    const int* places,
    int64 targets,
    float* target_values,
    float* edge_values,
    float* output0) {
  const int64 t = blockIdx.x;
  if (t >= targets) return;
  const int begin = offsets[t], end = offsets[t + 1];
  for (int c = threadIdx.x; c < 64; c += 64) {
    float v4 = 0;
    for (int p = begin; p < end; ++p) {
      const int64 e = places[p];
      const int64 r0 = index0[e];
      const float v0 = input0[r0 * 64 + c];
      const float v1 = input1[e * 64 + c];
      const float v2 = v0 + v1;
      const float v3 = v2 < 0 ? 0 : v2;
      v4 += v3;
    }
    output0[t * 64 + c] = v4;
  }
}
)";

// A region, and its kernel for one type of values.
struct SourceCase {
  std::string name;
  EdgeRegion region;
  at::ScalarType type = at::kFloat;
  gpu::RegionKernel kernel;
};

SourceCase MakeCase(const std::string& name, const EdgeRegion& region, at::ScalarType type) {
  SourceCase made{name + (type == at::kFloat ? "_float" : "_double"), region, type, {}};
  const EncodedRegion encoded = Encode(region);
  EXPECT_TRUE(DecodeRegion(encoded.code, encoded.numbers).ok())
      << name << ": " << DecodeRegion(encoded.code, encoded.numbers).status();
  const auto kernel = type == at::kFloat ? gpu::ForwardKernelOf<float>(region, made.name)
                                         : gpu::ForwardKernelOf<double>(region, made.name);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (kernel.ok()) made.kernel = *kernel;
  return made;
}

using NamedRegions = std::vector<std::pair<std::string, EdgeRegion>>;

NamedRegions RegionsOfModels() {
  return {{"gine", EdgeRowsRegion(64)},
          {"gatv2", SoftmaxRegion(64, 4)},
          {"pna", FourAggregations(75)},
          {"every_op", EveryOpRegion(12)}};
}

std::vector<SourceCase> MakeCases(const NamedRegions& regions) {
  std::vector<SourceCase> cases;
  for (const auto& [name, region] : regions) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) cases.push_back(MakeCase(name, region, type));
  }
  return cases;
}

std::vector<SourceCase> CasesForTheHost() {
  NamedRegions regions = RegionsOfModels();
  for (const int32_t width : {1, 12, 300}) {
    const std::string suffix = "_" + std::to_string(width);
    regions.emplace_back("sum" + suffix, EdgeRowsRegion(width));
    regions.emplace_back("four" + suffix, FourAggregations(width));
    regions.emplace_back("outputs" + suffix, PlainOutputs(width));
    regions.emplace_back("targets" + suffix, TargetsAlone(width));
    regions.emplace_back("numbers" + suffix, ManyNumbers(width));
    if (width % 4 != 0) continue;
    regions.emplace_back("softmax" + suffix, SoftmaxRegion(width, 3));
    regions.emplace_back("nested" + suffix, NestedReductions(width));
  }
  std::vector<SourceCase> cases = MakeCases(regions);
  // In float, rounding may flip a comparison of random values, so these regions run in double.
  for (uint32_t seed = 0; seed < 30; ++seed) {
    cases.push_back(MakeCase("random_" + std::to_string(seed), RandomRegion(seed, 25).Build(), at::kDouble));
  }
  return cases;
}

std::unique_ptr<const HostKernels> CompileForTheHost(const std::vector<SourceCase>& cases) {
  std::string source;
  std::vector<std::string> names;
  for (const SourceCase& c : cases) {
    source += c.kernel.source;
    names.push_back(c.name);
  }
  return std::make_unique<const HostKernels>(source, names);
}

// The arguments of a launch. All memory that the kernel writes begins as NaN.
struct LaunchArguments {
  LaunchArguments(const SourceCase& c, const RegionGraph& graph, const std::vector<Tensor>& inputs)
      : edges(SegmentsOf(graph.target_index, graph.targets)), targets(graph.targets) {
    const int64_t edge_count = graph.target_index.numel();
    const auto add = [this](const Tensor& t) { pointers.push_back(t.data_ptr()); };
    const auto made = [&](int64_t rows, int64_t columns) {
      written.push_back(at::full({rows, columns}, std::numeric_limits<double>::quiet_NaN(), c.type));
      return written.back();
    };
    for (const Tensor& t : inputs) add(t);
    for (const Tensor& t : graph.indices) add(t);
    add(edges.offsets);
    add(edges.places);
    place_of_targets = pointers.size();
    add(made(targets, c.kernel.target_columns));
    add(made(edge_count, c.kernel.edge_columns));
    for (const int32_t o : c.region.outputs) {
      const RegionStep& s = c.region.steps[static_cast<size_t>(o)];
      add(made(s.level == RegionLevel::kTarget ? targets : edge_count, s.width));
    }
    for (void*& pointer : pointers) addresses.push_back(reinterpret_cast<void*>(&pointer));
    addresses.insert(addresses.begin() + static_cast<int64_t>(place_of_targets), &targets);
  }
  std::vector<Tensor> Outputs() const { return {written.begin() + 2, written.end()}; }

  EdgeSegments edges;
  int64_t targets;
  size_t place_of_targets = 0;
  std::vector<Tensor> written;
  std::vector<void*> pointers, addresses;
};

std::vector<Tensor> Launch(const HostKernels& kernels, const SourceCase& c, const RegionGraph& graph,
                           const std::vector<Tensor>& inputs, Order order) {
  LaunchArguments arguments(c, graph, inputs);
  kernels.Launch(c.name, static_cast<unsigned>(graph.targets), c.kernel.threads, arguments.addresses.data(), order);
  return arguments.Outputs();
}

bool HaveEqualBits(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

// `tolerance` is relative to each value, plus the same share of the largest finite value of its tensor. NaN and
// infinity must occur at the same places.
void ExpectLaunchLikePlain(const HostKernels& kernels, const SourceCase& c, const RegionGraph& graph,
                           const std::vector<Tensor>& inputs, double tolerance, const std::string& why) {
  const std::vector<Tensor> want = EdgeRegionPlain(c.region, inputs, graph.target_index, graph.targets, graph.indices);
  const std::vector<Tensor> got = Launch(kernels, c, graph, inputs, Order::kForward);
  const std::vector<Tensor> reversed = Launch(kernels, c, graph, inputs, Order::kReverse);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string what = c.name + ", " + why + ", output " + std::to_string(i);
    EXPECT_TRUE(HaveEqualBits(got[i], reversed[i])) << what << " depends on the order of threads";
    ASSERT_EQ(got[i].sizes(), want[i].sizes()) << what;
    if (want[i].numel() == 0) continue;
    const double largest = want[i].nan_to_num(0, 0, 0).abs().max().item<double>();
    const Tensor differs =
        at::isclose(got[i], want[i], tolerance, tolerance * (1 + largest), /*equal_nan=*/true).logical_not();
    EXPECT_FALSE(differs.any().item<bool>())
        << what << "\n"
        << at::stack({got[i].masked_select(differs), want[i].masked_select(differs)}, 1).slice(0, 0, 9);
  }
}

double ToleranceOf(const SourceCase& c) { return c.type == at::kFloat ? 1e-4 : 1e-10; }

TEST(RegionSource, GineIsThisText) {
  const auto kernel = gpu::ForwardKernelOf<float>(EdgeRowsRegion(64), "gine");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->source, kGineSource);
  EXPECT_EQ(kernel->threads, 64U);
  EXPECT_EQ(kernel->target_columns + kernel->edge_columns, 0);
}

TEST(RegionSource, KeepsScoresAndReductionsOfSoftmax) {
  const auto kernel = gpu::ForwardKernelOf<double>(SoftmaxRegion(300, 3), "softmax");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->threads, 256U);
  EXPECT_EQ(kernel->target_columns, 6) << "the largest score and the sum of each head";
  EXPECT_EQ(kernel->edge_columns, 3) << "a score for each head";
}

TEST(RegionSource, RefusesMorePointersThanAKernelTakes) {
  RegionBuilder b;
  const int32_t edge = b.Edge(1);
  std::vector<int32_t> outputs(static_cast<size_t>(gpu::kMostRegionPointers - 1), edge);
  EXPECT_TRUE(gpu::ForwardKernelOf<float>(b.Build(outputs), "most").ok());
  outputs.push_back(edge);
  const auto kernel = gpu::ForwardKernelOf<float>(b.Build(outputs), "more");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kInvalidArgument) << kernel.status();
  EXPECT_NE(kernel.status().message().find("500 outputs"), std::string_view::npos) << kernel.status();
}

TEST(RegionSource, TestsTakeEveryOp) {
  const EdgeRegion region = EveryOpRegion(12);
  for (const RegionOpTraits& traits : kRegionOps) {
    EXPECT_TRUE(std::ranges::any_of(region.steps, [&](const RegionStep& s) { return s.op == traits.op; }))
        << traits.name;
  }
}

TEST(RegionSource, NvrtcCompilesItForTheH200) {
  const Nvrtc nvrtc;
  if (!nvrtc.is_present()) {
    GTEST_SKIP() << "libnvrtc.so.13 is absent: deploy/install-deps --tests installs it on Linux x86_64, and "
                    "$PERMAFROST_NVRTC names another one";
  }
  NamedRegions regions = RegionsOfModels();
  regions.emplace_back("nested", NestedReductions(12));
  regions.emplace_back("outputs", PlainOutputs(1));
  regions.emplace_back("targets", TargetsAlone(3));
  regions.emplace_back("numbers", ManyNumbers(4));
  regions.emplace_back("nothing", EdgeRegion());
  RegionBuilder most;
  regions.emplace_back("most", most.Build(std::vector<int32_t>(gpu::kMostRegionPointers - 1, most.Edge(1))));
  for (const SourceCase& c : MakeCases(regions)) {
    const Nvrtc::Outcome outcome = nvrtc.Compile(c.kernel.source, "sm_90");
    EXPECT_TRUE(outcome.compiled) << c.name;
    EXPECT_EQ(outcome.log, "") << c.name;
    EXPECT_EQ(std::string(outcome.code.begin(), outcome.code.end()).substr(1, 3), "ELF") << c.name;
  }
}

// Compiles all kernels once into one library.
class RegionSourceOnHost : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cases_ = CasesForTheHost();
    kernels_ = CompileForTheHost(cases_);
  }
  static void TearDownTestSuite() { kernels_.reset(); }
  static inline std::vector<SourceCase> cases_;
  static inline std::unique_ptr<const HostKernels> kernels_;
};

TEST_F(RegionSourceOnHost, AgreesWithTheOperatorsOfPyTorch) {
  const struct {
    const char* why;
    int64_t targets, edges;
    bool sorted;
  } kGraphs[] = {{"edges in any order", 30, 80, false},
                 {"edges by target", 30, 80, true},
                 {"most targets empty", 50, 5, false},
                 {"one edge", 1, 1, false},
                 {"no edges", 7, 0, false},
                 {"nothing", 0, 0, false}};
  for (const SourceCase& c : cases_) {
    for (const auto& g : kGraphs) {
      const RegionGraph graph = MakeGraph(g.targets, g.edges, c.region.num_indices, g.sorted);
      ExpectLaunchLikePlain(*kernels_, c, graph, MakeInputs(c.region, graph, c.type), ToleranceOf(c), g.why);
    }
  }
}

TEST_F(RegionSourceOnHost, OneTargetWithThousandsOfEdges) {
  for (const SourceCase& c : cases_) {
    if (c.kernel.threads > 96) continue;  // wider kernels take too long on one core
    RegionGraph graph = MakeGraph(9, 3000, c.region.num_indices);
    graph.target_index.fill_(7);
    ExpectLaunchLikePlain(*kernels_, c, graph, MakeInputs(c.region, graph, c.type), ToleranceOf(c), "a hub");
  }
}

TEST_F(RegionSourceOnHost, NanAndInfinityPassAsInPyTorch) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor special = at::tensor({std::numeric_limits<double>::quiet_NaN(), kInf, -kInf, 0.0, -0.0}, at::kDouble);
  for (const SourceCase& c : cases_) {
    const RegionGraph graph = MakeGraph(30, 40, c.region.num_indices);
    // Every 7th value of an input is special, so some targets get none of these values.
    std::vector<Tensor> inputs = MakeInputs(c.region, graph, c.type);
    for (Tensor& t : inputs) {
      const Tensor some = t.view({-1}).slice(0, 3, std::nullopt, 7);
      some.copy_(special.repeat({some.numel() / 5 + 1}).slice(0, 0, some.numel()));
    }
    ExpectLaunchLikePlain(*kernels_, c, graph, inputs, ToleranceOf(c), "special values");
  }
}

TEST(RegionSourceAtItsWidest, AgreesWithTheOperatorsOfPyTorch) {
  const std::vector<SourceCase> cases =
      MakeCases({{"sum", EdgeRowsRegion(kMaxRegionWidth)}, {"softmax", SoftmaxRegion(kMaxRegionWidth, 2)}});
  const std::unique_ptr<const HostKernels> kernels = CompileForTheHost(cases);
  for (const SourceCase& c : cases) {
    const RegionGraph graph = MakeGraph(2, 4, c.region.num_indices);
    ExpectLaunchLikePlain(*kernels, c, graph, MakeInputs(c.region, graph, c.type), 10 * ToleranceOf(c), "the widest");
  }
}

}  // namespace
}  // namespace permafrost::nn
