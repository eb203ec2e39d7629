
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/ops/segment_ops.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

TEST(DenseOfSparse, IsTheProductWithTheIdentity) {
  const Tensor offsets = at::tensor({0, 3, 3, 5, 6}, at::kLong);
  // A column that stands twice in a row, an empty row, and two entries of padding.
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
