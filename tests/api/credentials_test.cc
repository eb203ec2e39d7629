// Tests which parts of a call's metadata the gate accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "api/token_server.h"

namespace permafrost::api {
namespace {

class CredentialsTest : public TokenServerTest {
 protected:
  grpc::Status Call(const std::vector<std::string>& authorizations) {
    grpc::ClientContext context;
    for (const std::string& value : authorizations) context.AddMetadata("authorization", value);
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return job_stub_->GetJob(&context, request, &job);
  }
};

// A proxy may check only the first header. A second one must not get past it.
TEST_F(CredentialsTest, AuthorizationIsGivenOnce) {
  const auto made = tokens_->Create(access::Role::kViewer, "one", absl::InfiniteFuture());
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string valid = absl::StrCat("Bearer ", made->secret);
  EXPECT_TRUE(Call({valid}).ok());
  const struct {
    const char* why;
    std::vector<std::string> given;
  } kCases[] = {
      {"another one first", {"Bearer other", valid}},
      {"an empty one first", {"", valid}},
      {"an empty one last", {valid, ""}},
      {"an empty one between", {"Bearer other", "", valid}},
      {"the same twice", {valid, valid}},
  };
  for (const auto& c : kCases) {
    const grpc::Status status = Call(c.given);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << c.why;
    EXPECT_THAT(status.error_message(), testing::HasSubstr("authorization is given more than once")) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::api
