// Tests ConfirmClock, and what GetServerInfo says about a clock that jumped.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "server_fixture.h"

namespace permafrost::api {
namespace {

class ClockTest : public ServerTest {
 protected:
  void SetUp() override {
    clock_ = {.jump = [this]() -> std::optional<ClockJump> {
                const int hours = hours_;
                if (hours == 0) return std::nullopt;
                return ClockJump{.by = absl::Hours(hours), .noticed = absl::FromUnixSeconds(7)};
              },
              .confirm = [this]() -> absl::StatusOr<absl::Duration> { return absl::Hours(hours_.exchange(0)); }};
    ServerTest::SetUp();
  }
  v1::ServerInfo Info() {
    grpc::ClientContext context;
    v1::ServerInfo info;
    EXPECT_TRUE(server_stub_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
    return info;
  }
  v1::ConfirmClockResponse Confirm(const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::ConfirmClockRequest request;
    request.set_request_id(request_id);
    v1::ConfirmClockResponse response;
    const grpc::Status status = server_stub_->ConfirmClock(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  std::atomic<int> hours_ = 0;
};

TEST_F(ClockTest, AJumpIsToldUntilItIsConfirmed) {
  EXPECT_FALSE(Info().has_clock_jump());
  hours_ = 9600;
  EXPECT_EQ(Info().clock_jump().by().seconds(), 9600 * 3600);
  EXPECT_EQ(Info().clock_jump().notice_time().seconds(), 7);
  EXPECT_EQ(Confirm().jump().seconds(), 9600 * 3600);
  EXPECT_FALSE(Info().has_clock_jump());
  EXPECT_FALSE(Confirm().has_jump()) << "nothing is left to confirm";
  hours_ = -48;
  EXPECT_EQ(Info().clock_jump().by().seconds(), -48 * 3600);
  EXPECT_EQ(Confirm().jump().seconds(), -48 * 3600);
}

TEST_F(ClockTest, AConfirmationThatComesAgainIsNotOfTheNextJump) {
  hours_ = 30;
  EXPECT_TRUE(Confirm("11111111-1111-4111-8111-111111111111").has_jump());
  hours_ = 60;
  EXPECT_FALSE(Confirm("11111111-1111-4111-8111-111111111111").has_jump());
  EXPECT_EQ(Info().clock_jump().by().seconds(), 60 * 3600);
}

class NoClockTest : public ServerTest {};

TEST_F(NoClockTest, AServerWithoutOneSaysSo) {
  grpc::ClientContext context;
  v1::ConfirmClockResponse response;
  EXPECT_EQ(server_stub_->ConfirmClock(&context, v1::ConfirmClockRequest(), &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace permafrost::api
