#include "access/https_exposer.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "access/tls.h"
#include "base/file.h"
#include "base/host_port.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/exposer.h"

namespace permafrost::access {
namespace {

constexpr size_t kMostRequestBytes = 8192;
constexpr int kBacklog = 64;
// Waiting threads check at this interval whether the exposer ends.
constexpr int kPollMs = 100;

struct HttpAnswer {
  const char* status = "200 OK";
  std::string headers;
  std::string body;
};

// A bound, listening socket and its port.
struct Listener {
  Descriptor socket;
  int port = 0;
};

absl::StatusOr<Listener> Listen(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const auto failed = [&address](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat("metrics address ", FormatHostPort(address),
                                                      ": cannot listen "
                                                      "there: ",
                                                      why, "; port 0 picks a free one"));
  };
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return failed(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  Listener listener{.socket = Descriptor(socket(found->ai_family, found->ai_socktype, found->ai_protocol))};
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  if (!listener.socket.valid() || fcntl(listener.socket.get(), F_SETFD, FD_CLOEXEC) != 0 ||
      // O_NONBLOCK: a connection may be gone between poll and accept.
      fcntl(listener.socket.get(), F_SETFL, O_NONBLOCK) != 0 ||
      setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener.socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.socket.get(), kBacklog) != 0 ||
      getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return failed(std::strerror(errno));
  }
  char digits[NI_MAXSERV] = {};
  getnameinfo(reinterpret_cast<const sockaddr*>(&bound), bytes, nullptr, 0, digits, sizeof(digits), NI_NUMERICSERV);
  if (!absl::SimpleAtoi(digits, &listener.port)) return failed("the system tells no port");
  return listener;
}

// Returns the value of the header with the lower-case name `name`; empty if the header is absent.
std::string_view HeaderOf(absl::string_view request, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(request, "\r\n")) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || !absl::EqualsIgnoreCase(line.substr(0, colon), name)) continue;
    return StdView(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return {};
}

class HttpsExposer final : public telemetry::Exposer {
 public:
  HttpsExposer(HttpsOptions options, Listener listener, std::string address,
               std::shared_ptr<prometheus::Registry> registry, std::function<void()> before_scrape)
      : options_(std::move(options)),
        listener_(std::move(listener.socket)),
        address_(std::move(address)),
        registry_(std::move(registry), std::move(before_scrape)),
        thread_([this] { Accept(); }) {}

  ~HttpsExposer() override {
    closing_ = true;
    thread_.join();
    const absl::MutexLock lock(&mu_);
    const auto none_open = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return open_ == 0; };
    mu_.Await(absl::Condition(&none_open));
  }

  const std::string& address() const override { return address_; }

 private:
  void Accept() {
    while (!closing_) {
      pollfd waits{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (poll(&waits, 1, kPollMs) <= 0) continue;
      Descriptor connection(accept(listener_.get(), nullptr, nullptr));
      if (!connection.valid()) {
        // The process may be out of descriptors. The pause keeps this loop from taking a whole core.
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) poll(nullptr, 0, kPollMs);
        continue;
      }
      {
        const absl::MutexLock lock(&mu_);
        if (open_ >= options_.connections) continue;
        ++open_;
      }
      const int fd = connection.Release();
      try {
        std::thread([this, fd] {
          ServeWithoutThrowing(Descriptor(fd));
          const absl::MutexLock lock(&mu_);
          --open_;
        }).detach();
      } catch (const std::system_error&) {
        close(fd);
        const absl::MutexLock lock(&mu_);
        --open_;
      }
    }
  }

  // If memory runs out, closes the connection, because an exception would end the process.
  void ServeWithoutThrowing(const Descriptor& connection) noexcept {
    try {
      Serve(connection);
    } catch (const std::exception&) {
      // The connection is closed without an answer.
    }
  }

  void Serve(const Descriptor& connection) {
    fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
    fcntl(connection.get(), F_SETFL, fcntl(connection.get(), F_GETFL) | O_NONBLOCK);
    const std::shared_ptr<SSL_CTX> context = contexts_.For(*options_.certificates);
    if (!context) return;
    const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
    if (!ssl || SSL_set_fd(ssl.get(), connection.get()) != 1) return;
    const Stopwatch watch;
    const auto wait_for = [&](auto step) { return Run(*ssl, connection.get(), watch, step); };
    if (wait_for([](SSL& s) { return SSL_accept(&s); }) <= 0) return;
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      char piece[1024];
      const int got = wait_for([&piece](SSL& s) { return SSL_read(&s, piece, sizeof(piece)); });
      if (got <= 0 || request.size() > kMostRequestBytes) return;
      request.append(piece, static_cast<size_t>(got));
    }
    const HttpAnswer answer = Answer(request, SubjectOf(*ssl));
    const std::string text =
        absl::StrCat("HTTP/1.1 ", answer.status, "\r\nConnection: close\r\nContent-Length: ", answer.body.size(),
                     "\r\n", answer.headers, "\r\n", absl::StartsWith(request, "HEAD ") ? "" : answer.body);
    for (size_t sent = 0; sent < text.size();) {
      const int n = wait_for([&](SSL& s) {
        return SSL_write(&s, text.data() + sent, static_cast<int>(std::min<size_t>(text.size() - sent, 1 << 14)));
      });
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
    SSL_shutdown(ssl.get());
  }

  // Runs one operation of OpenSSL. If OpenSSL needs the socket to be ready, waits for it and repeats the operation,
  // within the connection's time limit.
  template <class Step>
  int Run(SSL& ssl, int fd, const Stopwatch& watch, Step step) const {
    while (true) {
      ERR_clear_error();
      const int done = step(ssl);
      if (done > 0) return done;
      const int error = SSL_get_error(&ssl, done);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return -1;
      if (closing_ || watch.Elapsed() > options_.limit) return -1;
      const auto events = static_cast<int16_t>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
      pollfd waits{.fd = fd, .events = events, .revents = 0};
      poll(&waits, 1, kPollMs);
    }
  }

  HttpAnswer Answer(const std::string& request, const std::string& subject) {
    const std::vector<std::string> line = absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    if (line.size() != 3 || (line[0] != "GET" && line[0] != "HEAD")) {
      return {.status = "405 Method Not Allowed", .headers = "Allow: GET, HEAD\r\n", .body = ""};
    }
    if (line[1].substr(0, line[1].find('?')) != "/metrics")
      return {.status = "404 Not Found", .headers = "", .body = ""};
    const std::string authorization = BearerOf(HeaderOf(request, "authorization"));
    const absl::StatusOr<Caller> caller =
        options_.gate->Identify({.by_socket = false, .authorization = authorization, .subject = subject});
    if (!caller.ok()) {
      return {.status = "401 Unauthorized",
              .headers = "WWW-Authenticate: Bearer\r\nWWW-Authenticate: Basic realm=\"permafrost\"\r\n",
              .body = absl::StrCat(caller.status().message(), "\n")};
    }
    return {.status = "200 OK",
            .headers = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
            .body = prometheus::TextSerializer().Serialize(registry_.Collect())};
  }

  const HttpsOptions options_;
  const Descriptor listener_;
  const std::string address_;
  const telemetry::RefreshedRegistry registry_;
  TlsContexts contexts_;
  absl::Mutex mu_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> closing_ = false;
  std::thread thread_;  // last: it uses all other members
};

}  // namespace

std::string BearerOf(std::string_view authorization) {
  absl::string_view value = AbslView(authorization);
  constexpr absl::string_view kBasic = "Basic ";
  if (!absl::StartsWithIgnoreCase(value, kBasic)) return std::string(authorization);
  std::string pair;
  if (!absl::Base64Unescape(value.substr(kBasic.size()), &pair)) return std::string(authorization);
  const size_t colon = pair.find(':');
  return absl::StrCat("Bearer ", colon == std::string::npos ? pair : pair.substr(colon + 1));
}

absl::StatusOr<std::unique_ptr<telemetry::Exposer>> StartHttpsExposer(HttpsOptions options,
                                                                      std::shared_ptr<prometheus::Registry> registry,
                                                                      std::function<void()> before_scrape) {
  absl::StatusOr<HostPort> address = ParseHostPort(options.address);
  if (!address.ok()) return Annotate(address.status(), "metrics address");
  PF_ASSIGN_OR_RETURN(Listener listener, Listen(*address));
  // OpenSSL writes without MSG_NOSIGNAL. Without this line, a client that closes its connection early would kill the
  // process.
  std::signal(SIGPIPE, SIG_IGN);
  address->port = listener.port;
  return std::make_unique<HttpsExposer>(std::move(options), std::move(listener), FormatHostPort(*address),
                                        std::move(registry), std::move(before_scrape));
}

}  // namespace permafrost::access
