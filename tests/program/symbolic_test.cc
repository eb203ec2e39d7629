#include "program/symbolic.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace permafrost::program {
namespace {

using c10::IValue;

IValue Of(const char* target, const std::vector<IValue>& arguments) {
  return Evaluate(*FindSymbolic(target), arguments);
}
int64_t Int(const char* target, int64_t a, int64_t b) { return Of(target, {a, b}).toInt(); }

TEST(Symbolic, RoundsAsPythonDoes) {
  EXPECT_EQ(Int("_operator.floordiv", 7, 2), 3);
  EXPECT_EQ(Int("_operator.floordiv", -7, 2), -4);
  EXPECT_EQ(Int("_operator.floordiv", 7, -2), -4);
  EXPECT_EQ(Int("_operator.mod", -7, 3), 2);
  EXPECT_EQ(Int("_operator.mod", 7, -3), -2);
  EXPECT_EQ(Of("math.trunc", {-2.7}).toInt(), -2);
  EXPECT_EQ(Of("_operator.truediv", {int64_t{7}, int64_t{2}}).toDouble(), 3.5);
  EXPECT_EQ(Int("_operator.pow", -2, 3), -8);
  EXPECT_EQ(Int("_operator.pow", -1, INT64_MAX), -1);
}

TEST(Symbolic, IntsStayIntsAndMixedNumbersAreReal) {
  EXPECT_TRUE(Of("_operator.add", {int64_t{1}, int64_t{2}}).isInt());
  EXPECT_EQ(Of("_operator.mul", {int64_t{3}, 0.5}).toDouble(), 1.5);
  EXPECT_EQ(Of("torch.sym_max", {int64_t{3}, int64_t{4}}).toInt(), 4);
  EXPECT_EQ(Of("torch.sym_ite", {false, int64_t{3}, int64_t{4}}).toInt(), 4);
  EXPECT_TRUE(Of("_operator.le", {int64_t{3}, 3.0}).toBool());
  EXPECT_EQ(Of("_operator.neg", {int64_t{3}}).toInt(), -3);
}

TEST(Symbolic, AndAndOrAreOfBitsForInts) {
  EXPECT_EQ(Int("_operator.and_", 7, 2), 2);
  EXPECT_EQ(Int("_operator.or_", 5, 2), 7);
  EXPECT_FALSE(Of("_operator.and_", {true, false}).toBool());
  EXPECT_TRUE(Of("_operator.or_", {true, false}).toBool());
}

TEST(Symbolic, RefusesWhatHasNoResult) {
  EXPECT_THROW(Int("_operator.floordiv", 1, 0), c10::Error);
  EXPECT_THROW(Int("_operator.floordiv", INT64_MIN, -1), c10::Error);
  EXPECT_THROW(Int("_operator.mod", 1, 0), c10::Error);
  EXPECT_THROW(Int("_operator.truediv", 1, 0), c10::Error);
  EXPECT_THROW(Int("_operator.mul", INT64_MAX, 2), c10::Error);
  EXPECT_THROW(Int("_operator.add", INT64_MAX, 1), c10::Error);
  EXPECT_THROW(Int("_operator.pow", 2, 64), c10::Error);
  EXPECT_THROW(Of("torch.sym_int", {1e30}), c10::Error);
  EXPECT_THROW(Of("_operator.add", {IValue(), int64_t{1}}), c10::Error);
}

TEST(Symbolic, AssertionsHold) {
  EXPECT_TRUE(Of("torch.ops.aten._assert_scalar.default", {true, "fine"}).isNone());
  EXPECT_THROW(Of("torch.ops.aten._assert_scalar.default", {false, "not fine"}), c10::Error);
  EXPECT_TRUE(Of("torch.ops.aten.sym_constrain_range.default", {int64_t{3}, int64_t{0}, IValue()}).isNone());
  EXPECT_THROW(Of("torch.ops.aten.sym_constrain_range.default", {int64_t{3}, int64_t{4}, IValue()}), c10::Error);
  EXPECT_THROW(Of("torch.ops.aten.sym_constrain_range.default", {int64_t{3}, IValue(), int64_t{2}}), c10::Error);
}

TEST(Symbolic, KnowsNoOtherFunction) { EXPECT_FALSE(FindSymbolic("os.system")); }

}  // namespace
}  // namespace permafrost::program
