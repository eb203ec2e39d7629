#include "api/guard/call_limits.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <grpc/grpc.h>
#include <grpcpp/server_context.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "api/wire/status.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

// While fewer connections than this are remembered, whether open or closed, ForgetClosed runs only if a client is at
// its limit.
constexpr size_t kFewPeers = 1024;
// After each check, ForgetClosed rests for this multiple of the check's duration. Checks thus take at most a fifth of
// a core, whatever clients do. With a longer rest, clients at their limit would be refused because of connections
// that they have already closed.
constexpr int kRestPerLook = 4;

constexpr size_t kAddressBytes = sizeof(in6_addr);

PeerAddress AddressOf(const in6_addr& host, uint16_t port) {
  PeerAddress address;
  std::memcpy(address.data(), &host, kAddressBytes);
  address[kAddressBytes] = static_cast<uint8_t>(port >> 8);
  address[kAddressBytes + 1] = static_cast<uint8_t>(port & 0xff);
  return address;
}

PeerAddress AddressOf(const in_addr& host, uint16_t port) {
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(&mapped.s6_addr[12], &host, sizeof(host));
  return AddressOf(mapped, port);
}

std::optional<PeerAddress> PeerOf(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return std::nullopt;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return AddressOf(v4.sin_addr, ntohs(v4.sin_port));
  }
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    return AddressOf(v6.sin6_addr, ntohs(v6.sin6_port));
  }
  return std::nullopt;
}

}  // namespace

std::optional<PeerAddress> ParsePeer(std::string_view peer) {
  const std::string plain = absl::StrReplaceAll(AbslView(peer), {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  absl::string_view host = plain;
  const bool is_v4 = absl::ConsumePrefix(&host, "ipv4:");
  if (!is_v4 && !absl::ConsumePrefix(&host, "ipv6:")) return std::nullopt;
  const size_t colon = host.rfind(':');
  int port = 0;
  if (colon == host.npos || !absl::SimpleAtoi(host.substr(colon + 1), &port) || port < 0 || port > UINT16_MAX) {
    return std::nullopt;
  }
  host = host.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string text(host.substr(0, host.find('%')));  // without the interface of a link-local address
  in_addr v4{};
  if (is_v4 && inet_pton(AF_INET, text.c_str(), &v4) == 1) return AddressOf(v4, static_cast<uint16_t>(port));
  in6_addr v6{};
  if (!is_v4 && inet_pton(AF_INET6, text.c_str(), &v6) == 1) return AddressOf(v6, static_cast<uint16_t>(port));
  return std::nullopt;
}

std::optional<std::set<PeerAddress>> OpenPeers() {
  const std::unique_ptr<DIR, decltype([](DIR* opened) { closedir(opened); })> open_files(opendir("/dev/fd"));
  if (open_files == nullptr) return std::nullopt;
  std::set<PeerAddress> peers;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): only this thread uses the directory stream
  while (const dirent* entry = readdir(open_files.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (const std::optional<PeerAddress> peer = PeerOf(fd)) peers.insert(*peer);
  }
  return peers;
}

absl::StatusOr<std::string> ConnectionLimit::Admit(const grpc::CallbackServerContext& context) {
  std::string client = client_of_(context);
  if (most_ > 0 && !client.empty()) PF_RETURN_IF_ERROR(Count(client, context.peer()));
  return client;
}

absl::Status ConnectionLimit::Count(const std::string& client, std::string_view peer) {
  const std::optional<PeerAddress> address = ParsePeer(peer);
  if (!address) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  const auto it = by_client_.find(client);
  if (it != by_client_.end() && it->second.contains(*address)) return absl::OkStatus();
  const auto most = static_cast<size_t>(most_);
  const bool is_full = it != by_client_.end() && it->second.size() >= most;
  if (is_full || counted_ >= std::max(forget_at_, kFewPeers)) ForgetClosed();
  std::set<PeerAddress>& of_client = by_client_[client];
  if (of_client.size() >= most) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            most_, " connections of ", client,
            " are open, the most of one client (--max-connections-per-client); this call came on one more: share one "
            "channel among calls, close a connection, or start the server with a larger limit")),
        kTooManyConnections, {{"client", client}, {"limit", absl::StrCat(most_)}});
  }
  of_client.insert(*address);
  ++counted_;
  return absl::OkStatus();
}

void ConnectionLimit::ForgetClosed() {
  if (forgot_ && forgot_->Elapsed() < kRestPerLook * forgetting_took_) return;
  const Stopwatch took;
  const std::optional<std::set<PeerAddress>> open = open_peers_();
  counted_ = 0;
  for (auto it = by_client_.begin(); it != by_client_.end();) {
    // If the system does not report open sockets, all connections count as closed. One connection too many is better
    // than refusing a client because of connections that it closed long ago.
    std::erase_if(it->second, [&open](const PeerAddress& peer) { return !open || !open->contains(peer); });
    counted_ += it->second.size();
    it = it->second.empty() ? by_client_.erase(it) : std::next(it);
  }
  forget_at_ = 2 * counted_;
  forgetting_took_ = took.Elapsed();
  forgot_.emplace();
}

absl::Status TooManyCalls(std::string_view calls, int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(limit, " ", AbslView(calls),
                                                " are open, the most at once; ask again when one of them has ended")),
      kTooManyCalls, {{"calls", std::string(calls)}, {"limit", absl::StrCat(limit)}});
}

absl::StatusOr<CallLimit::Slot> CallLimit::Take(const grpc::CallbackServerContext& context) {
  if (!client_of_) return Take();
  PF_ASSIGN_OR_RETURN(const std::string client, client_of_(context));
  return TakeFor(client);
}

absl::StatusOr<CallLimit::Slot> CallLimit::TakeFor(const std::string& client) {
  // If `most_` is 1, one client may take the only slot.
  const int most_of_one = most_ - most_ / 4;
  absl::MutexLock lock(&taken_->mu);
  if (taken_->all >= most_) {
    return TooManyCalls(calls_, most_);
  }
  if (!client.empty()) {
    int& of_client = taken_->by_client[client];
    if (of_client >= most_of_one) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(most_of_one, " ", calls_, " of ", client,
                                                    " are open, the most of one client; ask again when one has ended")),
          kTooManyCalls, {{"calls", calls_}, {"limit", absl::StrCat(most_of_one)}, {"client", client}});
    }
    ++of_client;
  }
  ++taken_->all;
  // The slot points to nothing; only its destruction matters.
  return Slot(static_cast<const void*>(nullptr), [taken = taken_, client](const void*) {
    absl::MutexLock given_back(&taken->mu);
    --taken->all;
    if (client.empty()) return;
    const auto it = taken->by_client.find(client);
    if (--it->second == 0) taken->by_client.erase(it);
  });
}

namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::string_view kHealthWatch = "/grpc.health.v1.Health/Watch";

// Counts one watch. gRPC creates an object for each watch, and destroys it when the watch ends.
class LimitedWatch final : public Interceptor {
 public:
  LimitedWatch(ServerRpcInfo* info, absl::StatusOr<CallLimit::Slot> slot) : info_(info), slot_(std::move(slot)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!slot_.ok() && methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      // Once this status is set, the service sees a cancelled call.
      grpc_call_cancel_with_status(info_->server_context()->c_call(), GRPC_STATUS_RESOURCE_EXHAUSTED,
                                   std::string(slot_.status().message()).c_str(), nullptr);
    }
    methods->Proceed();
  }

 private:
  ServerRpcInfo* const info_;
  const absl::StatusOr<CallLimit::Slot> slot_;
};

class HealthLimitFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit HealthLimitFactory(CallLimit& watches) : watches_(watches) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return info->method() == kHealthWatch ? new LimitedWatch(info, watches_.Take()) : nullptr;
  }

 private:
  CallLimit& watches_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeHealthLimit(CallLimit& watches) {
  return std::make_unique<HealthLimitFactory>(watches);
}

}  // namespace permafrost::api
