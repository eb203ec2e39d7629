#include "api/wire/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/guard/call_counts.h"
#include "api/services/unary.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace permafrost::api {
namespace {

using ::testing::HasSubstr;

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(ToGrpcStatus, OkCarriesNothing) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus());
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.error_details(), "");
}

TEST(ToGrpcStatus, AStatusWithoutPayloadHasNoDetails) {
  const grpc::Status status = ToGrpcStatus(absl::InternalError("disk"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "disk");
  EXPECT_EQ(status.error_details(), "");
}

TEST(ToGrpcStatus, ViolationsBecomeABadRequest) {
  Violations violations;
  violations.Add("spec.epochs", "-1 is outside 1..1000000");
  violations.Add("job_id", "bad");
  const grpc::Status status = ToGrpcStatus(violations.ToStatus());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const google::rpc::Status details = Details(status);
  EXPECT_EQ(details.code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(details.message(), status.error_message());
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad));
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(0).field(), "spec.epochs");
  EXPECT_EQ(bad.field_violations(0).description(), "-1 is outside 1..1000000");
  EXPECT_EQ(bad.field_violations(1).field(), "job_id");
}

// PERMISSION_DENIED means that the caller lacks a right, and an alert counts it. An error of the machine must not use
// it.
TEST(ToGrpcStatus, WhatTheMachineForbidsIsUnavailable) {
  const grpc::Status status = ToGrpcStatus(
      AsTransient(WithReason(absl::PermissionDeniedError("jobs/a: cannot create: Read-only file system"), "WHY")));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "jobs/a: cannot create: Read-only file system");
  const google::rpc::Status details = Details(status);
  EXPECT_EQ(details.code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(details.details_size(), 2);
  EXPECT_TRUE(details.details(0).Is<google::rpc::ErrorInfo>());
  EXPECT_TRUE(details.details(1).Is<google::rpc::RetryInfo>());
  EXPECT_EQ(ToGrpcStatus(absl::PermissionDeniedError("needs admin")).error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST(ToGrpcStatus, AReasonBecomesErrorInfo) {
  const grpc::Status status =
      ToGrpcStatus(WithReason(absl::NotFoundError("no job a"), "JOB_NOT_FOUND", {{"job", "a"}}));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Details(status).details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(info.domain(), "permafrost.dev");
  EXPECT_EQ(info.metadata().at("job"), "a");
}

TEST(ToGrpcStatus, UnavailableSaysWhenToRetry) {
  google::rpc::RetryInfo retry;
  const grpc::Status status = ToGrpcStatus(absl::UnavailableError("draining"));
  ASSERT_TRUE(Details(status).details(0).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().seconds(), 0);
}

TEST(ToGrpcStatus, ACallTooManySaysWhenToRetry) {
  google::rpc::RetryInfo retry;
  const absl::Status too_many = WithReason(absl::ResourceExhaustedError("64 exports"), kTooManyCalls);
  const grpc::Status status = ToGrpcStatus(too_many);
  ASSERT_EQ(Details(status).details_size(), 2);
  ASSERT_TRUE(Details(status).details(1).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().seconds(), 0);
  EXPECT_EQ(Details(ToGrpcStatus(absl::ResourceExhaustedError("disk full"))).details_size(), 0)
      << "asking again helps only where what is scarce comes back by itself";
}

TEST(ToGrpcStatus, AThreadThatIsNotToBeHadSaysWhyWhatToDoAndWhenToRetry) {
  const grpc::Status status = ToGrpcStatus(NoThreadError("the backup", "Resource temporarily unavailable"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the backup needs a thread, and the system gives none (Resource "
                                                "temporarily unavailable); ask again later, or"));
  ASSERT_EQ(Details(status).details_size(), 2);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Details(status).details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "NO_THREAD");
  EXPECT_TRUE(Details(status).details(1).Is<google::rpc::RetryInfo>());
}

TEST(ToGrpcStatus, FitsATrailerWhateverTheInput) {
  Violations violations;
  for (int i = 0; i < 1000; ++i) violations.Add(std::string(1000, 'f'), std::string(100'000, '\xFF'));
  const absl::Status huge =
      WithReason(violations.ToStatus(), "HUGE", {{"a", std::string(9999, 'x')}, {"b", std::string(9999, 'y')}});
  const grpc::Status status = ToGrpcStatus(huge);
  // gRPC's default limit for metadata is 8 KiB. The message is percent-encoded, and the details are in base64.
  EXPECT_LT(status.error_message().size() * 3 + status.error_details().size() * 4 / 3, 8000u);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(Details(status).details(0).UnpackTo(&bad));
  EXPECT_THAT(bad.field_violations().rbegin()->description(), HasSubstr("more"));
}

TEST(StatusCodeName, CoversEveryCode) {
  EXPECT_EQ(StatusCodeNames().size(), 17u);
  EXPECT_EQ(StatusCodeName(grpc::StatusCode::OK), "OK");
  EXPECT_EQ(StatusCodeName(grpc::StatusCode::NOT_FOUND), "NOT_FOUND");
  EXPECT_EQ(StatusCodeName(grpc::StatusCode::UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_EQ(StatusCodeName(static_cast<grpc::StatusCode>(99)), "UNKNOWN");
}

}  // namespace
}  // namespace permafrost::api
