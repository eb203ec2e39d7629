#include "nn/kernels/edge_region.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "nn/region_builder.h"

namespace permafrost::nn {
namespace {

TEST(EdgeRegion, ComesBackFromItsCode) {
  RegionBuilder b;
  const int32_t x = b.Edge(4);
  const EdgeRegion numbers = b.Build({b.OpX(RegionOp::kClampMin, x, -std::numeric_limits<double>::infinity(), 1e-300)});
  for (const EdgeRegion& region : {EdgeRegion(), SoftmaxRegion(12, 3), GineRegion(64), numbers}) {
    const EncodedRegion encoded = Encode(region);
    const auto decoded = DecodeRegion(encoded.code, encoded.numbers);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, region);
  }
}

TEST(EdgeRegion, NamesStandInTheOrderOfTheOps) {
  for (size_t i = 0; i < kRegionOps.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kRegionOps[i].op), i) << kRegionOps[i].name;
    EXPECT_EQ(kRegionOpNames.Parse(kRegionOps[i].name), kRegionOps[i].op);
  }
}

TEST(EdgeRegion, ALineForEachStep) {
  EXPECT_EQ(ToString(GineRegion(64)),
            "0: edge[64] = gather(input 0, index 0)\n"
            "1: edge[64] = gather(input 1, index 1)\n"
            "2: edge[64] = add(0, 1, x 1)\n"
            "3: edge[64] = relu(2, x 1)\n"
            "4: target[64] = sum(3)\n"
            "output: 4\n");
}

TEST(EdgeRegion, RefusesARegionThatDoesNotAddUp) {
  const struct {
    const char* why;
    std::function<void(EdgeRegion&)> spoil;
    const char* message;
  } kCases[] = {
      {"an operand beyond the steps", [](auto& r) { r.steps[3].a = 99; }, "step 3 (relu): operand 99"},
      {"a step that reads itself", [](auto& r) { r.steps[3].a = 3; }, "step 3 (relu): operand 3"},
      {"a cycle", [](auto& r) { r.steps[2].a = 3; }, "step 2 (add): operand 3"},
      {"no operand", [](auto& r) { r.steps[2].b = -1; }, "step 2 (add): operand -1"},
      {"one operand more", [](auto& r) { r.steps[3].b = 1; }, "step 3 (relu): takes 1 operands"},
      {"an operand of an input", [](auto& r) { r.steps[1].a = 0; }, "step 1 (gather): takes 0 operands"},
      {"an operand that is wider", [](auto& r) { r.steps[3].width = 32; }, "step 3 (relu): width 32"},
      {"a width that divides nothing", [](auto& r) { r.steps[3].width = 100; }, "step 3 (relu): width 100"},
      {"a sum of another width", [](auto& r) { r.steps[4].width = 128; }, "step 4 (sum): width 128 is not 64"},
      {"no width", [](auto& r) { r.steps[0].width = 0; }, "step 0 (gather): width 0"},
      {"a width that nobody has memory for", [](auto& r) { r.steps[0].width = 1 << 30; }, "step 0 (gather): width"},
      {"a sum for each edge", [](auto& r) { r.steps[4].level = RegionLevel::kEdge; }, "step 4 (sum): level edge"},
      {"targets of edges", [](auto& r) { r.steps[3].level = RegionLevel::kTarget; }, "step 3 (relu): operand 2"},
      {"a sum of targets", [](auto& r) { r.steps.push_back(r.steps[4]), r.steps[5].a = 4; }, "step 5 (sum): operand 4"},
      {"an input that is not there", [](auto& r) { r.steps[1].input = 2; }, "step 1 (gather): input 2"},
      {"an input of a sum", [](auto& r) { r.steps[4].input = 0; }, "step 4 (sum): input 0"},
      {"no input", [](auto& r) { r.steps[0].input = -1; }, "step 0 (gather): input -1"},
      {"an index that is not there", [](auto& r) { r.steps[1].index = 7; }, "step 1 (gather): index 7"},
      {"an index of a sum", [](auto& r) { r.steps[4].index = 0; }, "step 4 (sum): index 0"},
      {"an input that is read by two indices", [](auto& r) { r.steps[1].input = 0; }, "reads input 0 otherwise"},
      {"a group that does not divide",
       [](auto& r) {
         r.steps[3] = {.op = RegionOp::kRowSum, .a = 2, .width = 21, .group = 3, .level = RegionLevel::kEdge};
       },
       "step 3 (row_sum): group 3"},
      {"no group",
       [](auto& r) {
         r.steps[3] = {.op = RegionOp::kRowSum, .a = 2, .width = 64, .group = 0, .level = RegionLevel::kEdge};
       },
       "step 3 (row_sum): group 0"},
      {"a wide constant", [](auto& r) { r.steps[0] = {.width = 2}; }, "step 0 (constant): width 2"},
      {"an output beyond the steps", [](auto& r) { r.outputs = {5}; }, "output 5"},
      {"an output before the steps", [](auto& r) { r.outputs = {-1}; }, "output -1"},
      {"an output of one row", [](auto& r) { r.steps.push_back({}), r.outputs = {5}; }, "output 5 is a shared step"},
      {"more inputs than steps", [](auto& r) { r.num_inputs = 1 << 30; }, "1073741824 inputs"},
  };
  for (const auto& c : kCases) {
    EdgeRegion region = GineRegion(64);
    c.spoil(region);
    const EncodedRegion encoded = Encode(region);
    const auto decoded = DecodeRegion(encoded.code, encoded.numbers);
    ASSERT_FALSE(decoded.ok()) << c.why;
    EXPECT_NE(decoded.status().message().find(c.message), std::string_view::npos) << c.why << ": " << decoded.status();
  }
}

TEST(EdgeRegion, RefusesACodeOfAnyOtherLengthAndOtherKinds) {
  const EncodedRegion encoded = Encode(GineRegion(64));
  for (size_t size = 0; size < encoded.code.size(); ++size) {
    EXPECT_FALSE(DecodeRegion(std::span(encoded.code).first(size), encoded.numbers).ok()) << size;
  }
  std::vector<int64_t> longer = encoded.code;
  longer.push_back(0);
  EXPECT_FALSE(DecodeRegion(longer, encoded.numbers).ok());
  EXPECT_FALSE(DecodeRegion(encoded.code, std::span(encoded.numbers).first(3)).ok());
  // A code with any value at any place is either decoded or refused.
  for (size_t i = 0; i < encoded.code.size(); ++i) {
    for (const int64_t value : {int64_t{-2}, int64_t{-1}, int64_t{2}, int64_t{255}, INT64_MAX, INT64_MIN}) {
      std::vector<int64_t> other = encoded.code;
      other[i] = value;
      const auto decoded = DecodeRegion(other, encoded.numbers);
      if (decoded.ok()) {
        EXPECT_EQ(Encode(*decoded).code, other) << i;
        EXPECT_TRUE(value >= -1 && value <= INT32_MAX) << i << ": " << value;
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::nn
