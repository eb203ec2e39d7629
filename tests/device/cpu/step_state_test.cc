#include "device/step_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/cpu/storage.h"

namespace permafrost::device {
namespace {

using at::Tensor;

std::string BytesOf(const Tensor& t) { return {static_cast<const char*>(t.const_data_ptr()), t.nbytes()}; }

std::vector<std::string> BytesOf(const std::vector<StateTensor>& state) {
  std::vector<std::string> bytes;
  for (const StateTensor& s : state) bytes.push_back(BytesOf(s.value));
  return bytes;
}

// Zeros are restored without a copy of them, bit for bit. A -0 does not count as zero, and strides do not matter.
TEST(SavedStateTest, PutsBackEveryBitAlsoOfZeros) {
  const Tensor almost = at::zeros({64});
  almost[63] = 1e-45;  // the smallest value that is not 0
  const std::vector<StateTensor> state{
      {"values", at::randn({3, 4})},     {"zeros", at::zeros({5})},         {"count", at::zeros({}, at::kLong)},
      {"negative", at::full({4}, -0.0)}, {"across", at::zeros({3, 4}).t()}, {"almost", almost},
      {"empty", at::zeros({0})}};
  const std::vector<std::string> before = BytesOf(state);
  {
    SavedState saved(state);
    for (int i = 0; i < 2; ++i) {
      for (const StateTensor& s : state) s.value.add_(1);
      saved.Rewind();
      EXPECT_TRUE(BytesOf(state) == before);
    }
    for (const StateTensor& s : state) s.value.fill_(7);
  }
  EXPECT_TRUE(BytesOf(state) == before) << "at the end of its scope";
}

TEST(SavedStateTest, ZerosTakeNoCopy) {
  InstallStorageAllocator();
  const std::vector<StateTensor> zeros{{"zeros", at::zeros({1024})}}, values{{"values", at::ones({1024})}};
  const auto allocations_of = [](const std::vector<StateTensor>& state) {
    const int64_t before = ReadStorageUse().allocations;
    const SavedState saved(state);
    return ReadStorageUse().allocations - before;
  };
  EXPECT_EQ(allocations_of(values), allocations_of(zeros) + 1) << "besides those of libtorch's generator";
}

}  // namespace
}  // namespace permafrost::device
