#include "base/status.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "absl/status/statusor.h"

namespace permafrost {
namespace {

TEST(WithoutThrowing, ReturnsWhatTheWorkReturns) {
  EXPECT_EQ(WithoutThrowing("work", []() -> absl::StatusOr<int> { return 3; }).value(), 3);
  EXPECT_EQ(WithoutThrowing("work", [] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
}

TEST(WithoutThrowing, ExceptionsAreErrorsThatNameTheWork) {
  const struct {
    void (*fault)();
    absl::Status want;
  } kCases[] = {
      {[] { throw std::bad_alloc(); }, absl::ResourceExhaustedError("batch 3: out of memory")},
      {[] { throw std::length_error("vector::reserve"); }, absl::InternalError("batch 3: vector::reserve")},
  };
  for (const auto& c : kCases) {
    const auto status = WithoutThrowing("batch 3", [&c] {
      c.fault();
      return absl::OkStatus();
    });
    EXPECT_EQ(status, c.want);
  }
}

}  // namespace
}  // namespace permafrost
