#include "base/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace permafrost {
namespace {

TEST(ParseHostPort, TakesWhatFormatHostPortWrites) {
  const struct {
    const char* text;
    const char* host;
    int port;
    bool loopback;
  } kCases[] = {
      {"127.0.0.1:7433", "127.0.0.1", 7433, true},
      {"127.9.9.9:1", "127.9.9.9", 1, true},
      {"localhost:0", "localhost", 0, true},
      {"[::1]:65535", "::1", 65535, true},
      {"0.0.0.0:80", "0.0.0.0", 80, false},
      {"[::]:80", "::", 80, false},
      {"host-1.example:80", "host-1.example", 80, false},
  };
  for (const auto& c : kCases) {
    const auto parsed = ParseHostPort(c.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
    EXPECT_EQ(IsLoopback(*parsed), c.loopback) << c.text;
    EXPECT_EQ(FormatHostPort(*parsed), c.text);
  }
}

TEST(ParseHostPort, NamesWhatItRefuses) {
  for (const char* text :
       {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:80s", "127.0.0.1:-1", "127.0.0.1:65536",
        "127.0.0.1:0,0.0.0.0:0", "::1:80", "[127.0.0.1]:80", "1.2.3:80", "a b:80"}) {
    const absl::Status refused = ParseHostPort(text).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(std::string("\"") + text + "\"")) << text;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("accepted: HOST:PORT")) << text;
  }
}

}  // namespace
}  // namespace permafrost
