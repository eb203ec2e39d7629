#include "telemetry/exposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/host_port.h"
#include "telemetry/job_metrics.h"
#include "telemetry/server_metrics.h"
#include "temp_dir.h"

namespace permafrost::telemetry {
namespace {

using testing::HasSubstr;

// Returns a connection over which `text` was sent, or an invalid descriptor on failure. Reads time out after a
// minute.
Descriptor Connect(const std::string& address, std::string_view text) {
  const auto parsed = ParseHostPort(address);
  if (!parsed.ok()) return Descriptor(-1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(parsed->port);
  if (getaddrinfo(parsed->host.c_str(), port.c_str(), &hints, &found) != 0) return Descriptor(-1);
  Descriptor connection(socket(found->ai_family, found->ai_socktype, found->ai_protocol));
  const bool connected = connect(connection.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (!connected || write(connection.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Descriptor(-1);
  }
  return connection;
}

// Returns the body of GET /metrics, or an empty text on any failure.
std::string Scrape(const std::string& address) {
  const Descriptor connection = Connect(address, "GET /metrics HTTP/1.0\r\n\r\n");
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(connection.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

class ExposerTest : public testing::Test {
 protected:
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
};

TEST_F(ExposerTest, PicksAPortAndRefreshesBeforeEachScrape) {
  auto& gauge = prometheus::BuildGauge().Name("permafrost_scrapes").Help("Test.").Register(*registry_).Add({});
  auto exposer = Exposer::Start("127.0.0.1:0", registry_, [&] { gauge.Increment(); });
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  EXPECT_THAT((*exposer)->address(), testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_THAT(Scrape((*exposer)->address()), HasSubstr("permafrost_scrapes 1\n"));
  EXPECT_THAT(Scrape((*exposer)->address()), HasSubstr("permafrost_scrapes 2\n"));
}

TEST_F(ExposerTest, AHookThatThrowsCostsNeitherTheProcessNorTheOtherMetrics) {
  prometheus::BuildGauge().Name("permafrost_other").Help("Test.").Register(*registry_).Add({}).Set(7);
  int calls = 0;
  auto exposer = Exposer::Start("127.0.0.1:0", registry_, [&] {
    if (++calls == 1) throw std::runtime_error("CUDA error: an illegal memory access was encountered");
    if (calls == 2) throw 7;  // NOLINT: whatever it is
  });
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  for (const int failures : {1, 2, 2}) {
    const std::string page = Scrape((*exposer)->address());
    EXPECT_THAT(page, HasSubstr("permafrost_other 7\n"));
    EXPECT_THAT(page, HasSubstr("permafrost_scrape_failures_total " + std::to_string(failures) + "\n"));
  }
}

TEST_F(ExposerTest, WhoCannotBeJudgedIsNotLetIn) {
  auto exposer =
      Exposer::Start("127.0.0.1:0", registry_, {}, [](const std::string&) -> bool { throw std::bad_alloc(); });
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  const Descriptor connection =
      Connect((*exposer)->address(), "GET /metrics HTTP/1.0\r\nAuthorization: Basic YTpi\r\n\r\n");
  char buffer[256] = {};
  ASSERT_GT(read(connection.get(), buffer, sizeof(buffer) - 1), 0);
  EXPECT_THAT(std::string(buffer), HasSubstr("401"));
}

TEST_F(ExposerTest, ScrapesAreOneAtATime) {
  std::atomic<int> inside{0}, overlaps{0}, calls{0};
  auto exposer = Exposer::Start("127.0.0.1:0", registry_, [&] {
    if (inside.fetch_add(1) > 0) ++overlaps;
    std::this_thread::yield();
    inside.fetch_sub(1);
    ++calls;
  });
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 5; ++k) Scrape((*exposer)->address());
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(calls, 20);
}

// With the HTTP server's defaults (two threads, and half a minute for a request), these connections would block the
// metrics for a quarter of an hour.
TEST_F(ExposerTest, ConnectionsThatSayNothingDoNotHoldUpAScrape) {
  auto exposer = Exposer::Start("127.0.0.1:0", registry_, [] {});
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  prometheus::BuildGauge().Name("permafrost_seen").Help("Test.").Register(*registry_).Add({}).Set(1);
  std::vector<Descriptor> idle;
  for (int i = 0; i < 60; ++i) {
    // Every other connection begins a request and never ends it.
    idle.push_back(Connect((*exposer)->address(), i % 2 == 0 ? "" : "GET /metrics HTTP/1.1\r\nHost"));
    ASSERT_TRUE(idle.back().valid());
  }
  EXPECT_THAT(Scrape((*exposer)->address()), HasSubstr("permafrost_seen 1\n"));
  // The server closes idle connections, so clients cannot hold its descriptors for as long as they like.
  char byte = 0;
  errno = 0;
  EXPECT_LE(read(idle.front().get(), &byte, 1), 0);
  EXPECT_NE(errno, EAGAIN) << "closed by the server, not given up by the test";
}

TEST_F(ExposerTest, ATakenPortIsNamed) {
  auto first = Exposer::Start("127.0.0.1:0", registry_, [] {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->address();
  const auto second = Exposer::Start(address, registry_, [] {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

TEST_F(ExposerTest, AForeignAddressCannotBeBound) {
  const auto exposer = Exposer::Start("192.0.2.1:0", registry_, [] {});  // TEST-NET-1 of RFC 5737, which no machine has
  EXPECT_EQ(exposer.status().code(), absl::StatusCode::kFailedPrecondition) << exposer.status();
}

TEST_F(ExposerTest, WhatIsNotOneAddressIsRefused) {
  const struct {
    const char* why;
    const char* address;
  } kCases[] = {
      {"empty", ""},
      {"no port", "127.0.0.1"},
      {"no host", ":9464"},
      {"port is no number", "127.0.0.1:http"},
      {"a letter after the port means TLS to the HTTP server", "127.0.0.1:9464s"},
      {"the HTTP server would listen on both", "127.0.0.1:0,0.0.0.0:0"},
      {"port too large", "127.0.0.1:65536"},
      {"negative port", "127.0.0.1:-1"},
  };
  for (const auto& c : kCases) {
    const auto exposer = Exposer::Start(c.address, registry_, [] {});
    EXPECT_EQ(exposer.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(exposer.status().message()), HasSubstr(c.address)) << c.why;
  }
}

// Runs Prometheus's own linter on what a scraper gets, including the HTTP server's series.
TEST_F(ExposerTest, PromtoolFindsNothing) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool (package prometheus) is absent";
  JobMetrics jobs(*registry_, {"queued", "running", "cancelling", "succeeded", "failed", "cancelled"});
  ServerMetrics server(*registry_, {"0.1.0", "abc", "2.13.0", "cpu"}, {"JobService/CreateJob"}, {"OK", "CANCELLED"});
  jobs.ObserveStep({1e-4, 1e-3, 1e-3, 1e-4});
  server.ObserveRequest("JobService/CreateJob", "OK", absl::Milliseconds(1));
  auto exposer = Exposer::Start("127.0.0.1:0", registry_, [&] {
    jobs.BeforeScrape();
    server.BeforeScrape();
  });
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  Scrape((*exposer)->address());  // the HTTP server's own series appear with the first scrape
  const std::string text = Scrape((*exposer)->address());
  ASSERT_THAT(text, HasSubstr("permafrost_build_info"));

  const TempDir dir;
  const std::string file = (dir.path() / "metrics").string();
  std::ofstream(file) << text;
  std::string output;
  FILE* pipe = popen(("promtool check metrics < " + file + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char buffer[512];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  EXPECT_EQ(pclose(pipe), 0) << output;
  EXPECT_EQ(output, "");
}

}  // namespace
}  // namespace permafrost::telemetry
