#include "nn/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace permafrost::nn {
namespace {

std::string File(const std::string& header, size_t body_bytes) {
  const uint64_t length = header.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + header + std::string(body_bytes, '\0');
}

TEST(Safetensors, RoundTripKeepsBitsOrderAndMetadata) {
  at::manual_seed(1);
  const std::vector<NamedTensor> tensors = {{"z.weight", at::randn({3, 5}).t()},
                                            {"a.bias", at::randn({2}, at::kDouble)},
                                            {"count", at::full({}, 7, at::kLong)},
                                            {"empty", at::empty({0, 4})}};
  const auto file = DecodeSafetensors(EncodeSafetensors(tensors, {{"format", "pt"}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.at("format"), "pt");
  ASSERT_EQ(file->tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file->tensors[i].name, tensors[i].name);
    EXPECT_TRUE(at::equal(file->tensors[i].value, tensors[i].value)) << tensors[i].name;
  }
}

TEST(Safetensors, WhatDoesNotAddUpIsNamed) {
  const struct {
    const char* why;
    std::string data;
    const char* says;
  } kCases[] = {
      {"no length", "abc", "3 bytes are no header"},
      {"length past the end", File("{}", 0).substr(0, 9), "past the end"},
      {"not JSON", File("{nonsense", 0), "not a JSON object"},
      {"a JSON list", File("[]", 0), "not a JSON object"},
      {"unknown type", File(R"({"w":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1), "w: dtype \"F8\""},
      {"a name of two lines", File(R"({"w\n\u0007":{"dtype":"F8\n","shape":[1],"data_offsets":[0,1]}})", 1),
       R"(w\n\x07: dtype "F8\n"; accepted: F32)"},
      {"a long name", File("{\"" + std::string(5000, 'w') + R"(":{"dtype":"F32","shape":[1]}})", 4),
       "www...: needs dtype"},
      {"missing field", File(R"({"w":{"dtype":"F32","shape":[1]}})", 4), "w: needs dtype, shape and data_offsets"},
      {"negative size", File(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "w: shape [-1]"},
      {"sizes that overflow",
       File(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})", 4), "w: shape"},
      {"data cut short", File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7), "w: data_offsets"},
      {"offsets turned round", File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "w: data_offsets"},
      {"shape and bytes disagree", File(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "3 values"},
      {"a size beyond 63 bits",
       File(R"({"w":{"dtype":"F32","shape":[9223372036854775808,0],"data_offsets":[0,0]}})", 0), "w: shape"},
      {"strides beyond 63 bits of no values",
       File(R"({"w":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "w: shape [0,4294967296,4294967296]: a list of sizes"},
      {"a byte before the first tensor, as of a header that is one byte short",
       File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9), "the tensors end at byte 8 of 9"},
      {"bytes that are no tensor's", File("{}", 4), "the tensors end at byte 0 of 4"},
      {"a hole",
       File(
           R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"v":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
           12),
       "v: data_offsets [8,12] begin after a hole; 4 is accepted"},
      {"two in one place",
       File(
           R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           8),
       "v: data_offsets [4,8] begin within the tensor before"},
      {"metadata of numbers", File(R"({"__metadata__":{"a":1}})", 0), "__metadata__.a is not a string"},
  };
  for (const auto& c : kCases) {
    const auto file = DecodeSafetensors(c.data);
    ASSERT_FALSE(file.ok()) << c.why;
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << c.why;
    EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr(c.says)) << c.why;
  }
}

// A parser that recurses would need a million stack frames for a megabyte of input.
TEST(Safetensors, ListsNestedAMillionDeepAreRefusedAsAnyOther) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const struct {
    const char* why;
    std::string shape, offsets;
    const char* says;
  } kCases[] = {
      {"of the shape", deep, "[0,0]", "w: shape: a list of sizes is accepted"},
      {"within the shape", "[1," + deep + "]", "[0,4]", "w: shape: a list of sizes is accepted"},
      {"in place of an offset", "[1]", "[0," + deep + "]", "w: data_offsets: two places in the data are accepted"},
      {"of the offsets", "[1]", deep, "w: needs dtype, shape and data_offsets"},
  };
  for (const auto& c : kCases) {
    const std::string header = R"({"w":{"dtype":"F32","shape":)" + c.shape + R"(,"data_offsets":)" + c.offsets + "}}";
    const auto file = DecodeSafetensors(File(header, 4));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << c.why;
    EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr(c.says)) << c.why;
  }
}

// If each tensor were created before the overlap is found, they would take 50 GB together.
TEST(Safetensors, TensorsInOnePlaceTakeNoMemory) {
  std::string header = "{";
  for (int i = 0; i < 50'000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i);
    header += R"(":{"dtype":"F32","shape":[262144],"data_offsets":[0,1048576]})";
  }
  const auto file = DecodeSafetensors(File(header + "}", 1 << 20));
  EXPECT_THAT(std::string(file.status().message()), testing::HasSubstr("begin within the tensor before"));
}

// Other writers sort the header by name or type, not by offset.
TEST(Safetensors, TheHeaderMayStandInAnyOrder) {
  const auto file = DecodeSafetensors(File(
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      8));
  ASSERT_TRUE(file.ok()) << file.status();
  std::string names;
  for (const NamedTensor& t : file->tensors) names += t.name;
  EXPECT_EQ(names, "aeb");  // by offset
}

TEST(TensorSet, CopyFromNamesWhatDiffers) {
  TensorSet set;
  set.AddParameter("w", at::zeros({2, 3}));
  const struct {
    const char* why;
    std::vector<NamedTensor> values;
    const char* says;
  } kCases[] = {{"missing", {}, "w: missing"},
                {"other shape", {{"w", at::zeros({3, 2})}}, "w: is Float[3, 2], the model has Float[2, 3]"},
                {"other type", {{"w", at::zeros({2, 3}, at::kDouble)}}, "w: is Double[2, 3]"},
                {"one too many", {{"w", at::zeros({2, 3})}, {"v", at::zeros({1})}}, "v: the model has no such tensor"}};
  for (const auto& c : kCases) {
    EXPECT_THAT(std::string(set.CopyFrom(c.values).message()), testing::HasSubstr(c.says)) << c.why;
  }
  EXPECT_TRUE(set.CopyFrom({{"w", at::ones({2, 3})}}).ok());
  EXPECT_TRUE(set.parameters()[0].value.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace permafrost::nn
