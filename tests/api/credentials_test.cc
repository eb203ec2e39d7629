// What the gate takes of a call's metadata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "access/gate.h"
#include "access/token_store.h"
#include "api/server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

class CredentialsTest : public ServerTest {
 protected:
  void SetUp() override {
    tokens_ = *access::TokenStore::Open(dir_.path() / "tokens.json");
    asking_.emplace(access::GateOptions{.auth = access::Auth::kToken, .certificate_role = std::nullopt}, tokens_.get());
    store_of_tokens_ = tokens_.get();
    gate_ = &*asking_;
    ServerTest::SetUp();
    manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  }
  grpc::Status Call(const std::vector<std::string>& authorizations) {
    grpc::ClientContext context;
    for (const std::string& value : authorizations) context.AddMetadata("authorization", value);
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return job_stub_->GetJob(&context, request, &job);
  }

  const TempDir dir_;
  std::unique_ptr<access::TokenStore> tokens_;
  std::optional<access::Gate> asking_;
};

// Something before the daemon that looks at the first one must not be passed by with another one.
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
