#include "device/cpu/audit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace permafrost::device {
namespace {

c10::OperatorHandle OpOf(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

TEST(StepProductsTest, OnlyProductsAndLayersTakeTime) {
  StepProducts products;
  EXPECT_EQ(products.SecondsAlone(), 0);
  products.Add(OpOf("aten::relu"), std::vector<c10::IValue>{at::ones({8, 4})});
  EXPECT_EQ(products.SecondsAlone(), 0);
  products.Add(OpOf("aten::mm"), std::vector<c10::IValue>{at::ones({8, 4}), at::ones({4, 2})});
  EXPECT_GT(products.SecondsAlone(), 0);
}

TEST(StepProductsTest, AddmmHasItsFactorsAfterTheAddend) {
  StepProducts products;
  products.Add(OpOf("aten::addmm"), std::vector<c10::IValue>{at::ones({2}), at::ones({8, 4}), at::ones({4, 2}), 1, 1});
  EXPECT_GT(products.SecondsAlone(), 0);
}

// aten::linear stands for operators that take a layer's `weight`, at whatever position.
TEST(StepProductsTest, AWeightMakesAProductOverTheFirstTensorsRows) {
  StepProducts products;
  const c10::OperatorHandle linear = OpOf("aten::linear");
  products.Add(linear, std::vector<c10::IValue>{at::ones({8, 4}), at::ones({4}), c10::IValue()});
  EXPECT_EQ(products.SecondsAlone(), 0) << "no matrix";
  products.Add(linear, std::vector<c10::IValue>{at::ones({8, 4}), at::ones({2, 4}), c10::IValue()});
  EXPECT_GT(products.SecondsAlone(), 0);
}

}  // namespace
}  // namespace permafrost::device
