// Tests /metrics over HTTPS with a client of OpenSSL.
#include "access/https_exposer.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "access/gate.h"
#include "access/tls.h"
#include "access/token_store.h"
#include "base/file.h"
#include "base/host_port.h"
#include "certificates.h"
#include "temp_dir.h"

namespace permafrost::access {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class HttpsExposerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string stem = (dir_.path() / "server").string();
    TestAuthority("test authority").Issue(stem, "localhost");
    auto opened = CertificateFiles::Open({.certificate = stem + ".pem", .key = stem + ".key", .client_authority = {}});
    ASSERT_TRUE(opened.ok()) << opened.status();
    certificates_ = *std::move(opened);
    prometheus::BuildGauge().Name("permafrost_other").Help("Test.").Register(*registry_).Add({}).Set(7);
  }
  void Start(const Gate& gate, std::function<void()> before_scrape) {
    auto started = StartHttpsExposer({.address = "127.0.0.1:0", .certificates = certificates_.get(), .gate = &gate},
                                     registry_, std::move(before_scrape));
    ASSERT_TRUE(started.ok()) << started.status();
    exposer_ = *std::move(started);
  }
  // Returns the whole answer to a request with this header. Empty if the exposer closed the connection without an
  // answer.
  std::string Get(const std::string& header = "") const {
    const auto address = ParseHostPort(exposer_->address());
    const Descriptor connection(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(address->port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), connection.get());
    EXPECT_EQ(SSL_connect(ssl.get()), 1);
    const std::string request = absl::StrCat("GET /metrics HTTP/1.0\r\n", header, "\r\n");
    EXPECT_GT(SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())), 0);
    std::string answer;
    char buffer[4096];
    for (int n = 0; (n = SSL_read(ssl.get(), buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    return answer;
  }

  const TempDir dir_;
  std::unique_ptr<CertificateFiles> certificates_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<telemetry::Exposer> exposer_;
};

TEST_F(HttpsExposerTest, AHookThatThrowsCostsNeitherTheProcessNorTheOtherMetrics) {
  const Gate gate({.auth = Auth::kNone, .certificate_role = {}}, nullptr);
  std::atomic<int> calls = 0;
  Start(gate, [&calls] {
    if (++calls == 1) throw std::runtime_error("CUDA error: an illegal memory access was encountered");
  });
  for (int scrape = 1; scrape <= 2; ++scrape) {
    const std::string answer = Get();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("permafrost_other 7\n"));
    EXPECT_THAT(answer, HasSubstr("permafrost_scrape_failures_total 1\n"));
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(HttpsExposerTest, ACallerThatCannotBeJudgedIsNotAnsweredAndTheNextOneIs) {
  std::atomic<bool> fails = false;
  const auto tokens = TokenStore::Open(dir_.path() / "tokens.json", [&fails] {
    if (fails) throw std::bad_alloc();
    return absl::Now();
  });
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const auto made = (*tokens)->Create(Role::kViewer, "", absl::InfiniteFuture());
  ASSERT_TRUE(made.ok()) << made.status();
  const Gate gate({.auth = Auth::kToken, .certificate_role = {}}, tokens->get());
  Start(gate, {});
  const std::string bearer = absl::StrCat("Authorization: Bearer ", made->secret, "\r\n");
  fails = true;
  EXPECT_EQ(Get(bearer), "") << "an exception in a connection's thread would have ended the process";
  fails = false;
  EXPECT_THAT(Get(bearer), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get(), StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
}

}  // namespace
}  // namespace permafrost::access
