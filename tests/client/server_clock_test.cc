#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/server_view.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Shown(int64_t seconds) {
  v1::ServerInfo info;
  if (seconds != 0) info.mutable_clock_jump()->mutable_by()->set_seconds(seconds);
  return RenderServer(info, ViewTime{absl::FromUnixSeconds(1'773'144'300), absl::UTCTimeZone()}, {});
}

TEST(ServerView, AClockThatJumpedIsToldWithWhatToDo) {
  EXPECT_THAT(Shown(0), Not(HasSubstr("clock")));
  EXPECT_THAT(Shown(400 * 24 * 3600),
              HasSubstr("ahead of the time that it saw pass: nothing is deleted for its age until "
                        "`permafrost server confirm-clock` says that it is right"));
  EXPECT_THAT(Shown(-2 * 24 * 3600), HasSubstr("behind the time that it saw pass"));
}

}  // namespace
}  // namespace permafrost::client
