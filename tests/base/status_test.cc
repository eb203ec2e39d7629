#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "base/string_view.h"

namespace permafrost {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

TEST(Violations, CollectsAllInOneLine) {
  Violations violations;
  EXPECT_TRUE(violations.ToStatus().ok());
  violations.Add("spec.model.layers", "0 is outside 1..64");
  violations.Add("spec.epochs", "-1 is below 0");
  const absl::Status status = violations.ToStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "spec.model.layers: 0 is outside 1..64; spec.epochs: -1 is below 0");
  EXPECT_THAT(GetViolations(status), ElementsAre(FieldViolation{"spec.model.layers", "0 is outside 1..64"},
                                                 FieldViolation{"spec.epochs", "-1 is below 0"}));
}

TEST(Violations, ManyAreCounted) {
  Violations violations;
  for (std::size_t i = 0; i < Violations::kMax; ++i) violations.Add("f", "d");
  EXPECT_EQ(GetViolations(violations.ToStatus()).size(), Violations::kMax);
  for (int i = 0; i < 1'000'000; ++i) violations.Add("f", "d");
  const absl::Status status = violations.ToStatus();
  EXPECT_EQ(GetViolations(status).size(), Violations::kMax + 1);
  EXPECT_EQ(GetViolations(status).back(), (FieldViolation{"", "and 1000000 more"}));
  EXPECT_THAT(std::string(status.message()), EndsWith("f: d; and 1000000 more"));
}

TEST(Violations, WhatAFieldHasIsNotToldAgain) {
  Violations found;
  found.Add("epochs", "-1 is below 1");
  found.Add("epochs", "and not even");
  found.Add("seed", "is odd");
  Violations all;
  all.Add("epochs", "is no number");
  all.AddMissing(found.ToStatus());
  all.AddMissing(absl::OkStatus());
  all.AddMissing(absl::InternalError("no violation of any field"));
  EXPECT_EQ(all.ToStatus().message(), "epochs: is no number; seed: is odd");
  Violations empty;
  empty.AddMissing(found.ToStatus());
  EXPECT_EQ(GetViolations(empty.ToStatus()), GetViolations(found.ToStatus())) << "what is new comes whole";
}

TEST(Violations, AnyTextSurvivesThePayload) {
  Violations violations;
  const std::string odd("3:a;\0\n:", 7);
  violations.Add(odd, "");
  EXPECT_THAT(GetViolations(violations.ToStatus()), ElementsAre(FieldViolation{odd, ""}));
}

TEST(Violations, NoneOnOtherStatuses) {
  EXPECT_THAT(GetViolations(absl::OkStatus()), IsEmpty());
  EXPECT_THAT(GetViolations(absl::NotFoundError("x")), IsEmpty());
}

TEST(Reason, AttachedReplacedAndKeptByAnnotate) {
  absl::Status status = WithReason(absl::NotFoundError("datasets/a: not found"), "OLD", {{"k", "v"}});
  status = WithReason(status, "DATASET_NOT_FOUND", {{"dataset", "a"}, {"empty", ""}});
  const ErrorReason want{"DATASET_NOT_FOUND", {{"dataset", "a"}, {"empty", ""}}};
  EXPECT_EQ(GetReason(status), want);
  const absl::Status annotated = Annotate(status, "job x");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "job x: datasets/a: not found");
  EXPECT_EQ(GetReason(annotated), want);
  EXPECT_EQ(GetReason(absl::NotFoundError("plain")), ErrorReason{});
  EXPECT_TRUE(Annotate(absl::OkStatus(), "job x").ok());
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError("odd");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  PF_ASSIGN_OR_RETURN(const int half, Half(n));
  PF_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(Macros, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(7).status().message(), "odd");
}

TEST(CheckIdSyntax, Table) {
  const struct {
    const char* why;
    std::string id;
    bool ok;
  } kCases[] = {
      {"one letter", "a", true},
      {"letters, digits, dashes", "zinc-12k", true},
      {"63 characters", std::string(63, 'a'), true},
      {"64 characters", std::string(64, 'a'), false},
      {"empty", "", false},
      {"begins with a digit", "12k", false},
      {"begins with a dash", "-a", false},
      {"upper case", "Zinc", false},
      {"a path", "a/b", false},
      {"hidden: the catalog's own names begin with a dot", ".tmp-a", false},
      {"a NUL within", std::string("a\0b", 3), false},
      {"not ASCII", "zinc\xc3\xa9", false},
  };
  for (const auto& c : kCases) {
    const absl::Status status = CheckIdSyntax("dataset_id", c.id);
    EXPECT_EQ(status.ok(), c.ok) << c.why << ": " << status;
    if (c.ok) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_EQ(GetViolations(status).size(), 1u) << c.why;
    EXPECT_EQ(GetViolations(status)[0].field, "dataset_id") << c.why;
    EXPECT_EQ(StdView(status.message()).find('\n'), std::string_view::npos) << c.why;
  }
}

TEST(Status, ATransientErrorStaysOneUnderMoreContext) {
  const absl::Status full = AsTransient(absl::ResourceExhaustedError("no space"));
  EXPECT_TRUE(IsTransient(full));
  EXPECT_TRUE(IsTransient(Annotate(WithReason(full, "FULL"), "checkpoint 7")));
  EXPECT_FALSE(IsTransient(absl::ResourceExhaustedError("no space")));
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

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
