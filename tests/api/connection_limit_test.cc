// Tests the limits on a client's connections, and on the lifetime of idle connections.
#include "api/guard/call_limits.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/token_server.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"

namespace permafrost::api {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<grpc::Channel> ConnectTo(const Server& server) {
  grpc::ChannelArguments apart;
  apart.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), apart);
}

TEST(ConnectionLimit, PeersAreKnownByAddressAndPort) {
  const auto mapped = ParsePeer("ipv6:[::ffff:10.0.0.7]:41234"), local = ParsePeer("ipv6:[fe80::1]:7");
  ASSERT_TRUE(mapped);
  ASSERT_TRUE(local);
  EXPECT_EQ(ParsePeer("ipv4:10.0.0.7:41234"), mapped);
  EXPECT_EQ(ParsePeer("ipv6:%5Bfe80::1%25eth0%5D:7"), local);
  EXPECT_NE(ParsePeer("ipv4:10.0.0.7:41234"), ParsePeer("ipv4:10.0.0.7:41235"));
  EXPECT_NE(ParsePeer("ipv4:10.0.0.7:41234"), ParsePeer("ipv4:10.0.0.8:41234"));
  for (const char* none : {"unix:/tmp/s", "unix:", "", "ipv4:", "ipv4:10.0.0.7", "ipv4:10.0.0:1", "ipv4:1.2.3.4:70000",
                           "ipv6:[::1]", "ipv6:x:1"}) {
    EXPECT_EQ(ParsePeer(none), std::nullopt) << none;
  }
}

TEST(ConnectionLimit, ClosedConnectionsAreNotCounted) {
  std::optional<std::set<PeerAddress>> open = std::set<PeerAddress>{*ParsePeer("ipv4:10.0.0.7:1")};
  ConnectionLimit limit(2, nullptr, [&open] { return open; });
  EXPECT_TRUE(limit.Count("tokens/a", "ipv4:10.0.0.7:1").ok());
  EXPECT_TRUE(limit.Count("tokens/a", "ipv4:10.0.0.7:2").ok());
  EXPECT_TRUE(limit.Count("tokens/a", "ipv4:10.0.0.7:1").ok()) << "no other one";
  EXPECT_TRUE(limit.Count("tokens/b", "ipv4:10.0.0.7:1").ok()) << "another client on the same connection";
  EXPECT_TRUE(limit.Count("tokens/a", "ipv4:10.0.0.7:3").ok()) << "the second has ended";
  open->insert(*ParsePeer("ipv4:10.0.0.7:3"));
  const absl::Status refused = limit.Count("tokens/a", "ipv4:10.0.0.7:4");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(GetReason(refused).reason, "TOO_MANY_CONNECTIONS");
  EXPECT_EQ(GetReason(refused).metadata.at("client"), "tokens/a");
  EXPECT_EQ(GetReason(refused).metadata.at("limit"), "2");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 connections of tokens/a are open"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-connections-per-client"));
  EXPECT_TRUE(limit.Count("tokens/a", "unix:").ok()) << "connections of a socket are not told apart";
  // Nobody is refused if the system cannot say which connections are open.
  open.reset();
  const Stopwatch waited;
  while (!limit.Count("tokens/a", "ipv4:10.0.0.7:4").ok()) ASSERT_LT(waited.Elapsed(), kPatience);
}

class ConnectionsOfAClientTest : public TokenServerTest {
 protected:
  ConnectionsOfAClientTest() { limits_.connections_of_a_client = 2; }
  void SetUp() override {
    TokenServerTest::SetUp();
    mine_ = tokens_->Create(access::Role::kAdmin, "mine", absl::InfiniteFuture())->secret;
    other_ = tokens_->Create(access::Role::kAdmin, "other", absl::InfiniteFuture())->secret;
  }
  std::shared_ptr<grpc::Channel> Connect() { return ConnectTo(*server_); }
  static void Give(grpc::ClientContext& context, const std::string& secret) {
    context.AddMetadata("authorization", "Bearer " + secret);
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  }
  grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& secret) {
    grpc::ClientContext context;
    Give(context, secret);
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return v1::JobService::NewStub(channel)->GetJob(&context, request, &job);
  }
  static void ExpectTooManyConnections(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    const auto info = Detail<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->reason(), "TOO_MANY_CONNECTIONS");
    EXPECT_EQ(info->metadata().at("limit"), "2");
    EXPECT_TRUE(Detail<google::rpc::RetryInfo>(status));
  }

  std::string mine_, other_;
};

TEST_F(ConnectionsOfAClientTest, OneMoreIsRefusedUntilOneIsClosed) {
  auto first = Connect();
  const auto second = Connect(), third = Connect();
  EXPECT_TRUE(Ask(first, mine_).ok());
  EXPECT_TRUE(Ask(second, mine_).ok());
  ExpectTooManyConnections(Ask(third, mine_));
  EXPECT_TRUE(Ask(first, mine_).ok()) << "those that there are go on";
  EXPECT_TRUE(Ask(third, other_).ok()) << "of another client";
  // Calls of every kind are refused.
  v1::WatchJobRequest watch;
  watch.set_name("jobs/a");
  {
    grpc::ClientContext context;
    Give(context, mine_);
    const auto reader = v1::JobService::NewStub(third)->WatchJob(&context, watch);
    v1::Job job;
    EXPECT_FALSE(reader->Read(&job));
    ExpectTooManyConnections(reader->Finish());
  }
  {
    grpc::ClientContext context;
    Give(context, mine_);
    v1::ServerInfo info;
    ExpectTooManyConnections(v1::ServerService::NewStub(third)->GetServerInfo(&context, {}, &info));
  }
  {
    grpc::ClientContext context;
    Give(context, mine_);
    v1::ListTokensResponse list;
    ExpectTooManyConnections(v1::ServerService::NewStub(third)->ListTokens(&context, {}, &list));
  }
  first = nullptr;
  const Stopwatch waited;
  while (!Ask(third, mine_).ok()) ASSERT_LT(waited.Elapsed(), kPatience) << "a connection that ended is still counted";
  ExpectTooManyConnections(Ask(Connect(), mine_));
}

TEST_F(ConnectionsOfAClientTest, ManyOneAfterTheOtherAreNotMany) {
  for (int i = 0; i < 20; ++i) {
    const Stopwatch waited;
    // The server notices the end of a connection a moment later.
    while (!Ask(Connect(), mine_).ok()) ASSERT_LT(waited.Elapsed(), kPatience) << i;
  }
}

TEST_F(ConnectionsOfAClientTest, HealthIsAnsweredAllTheSame) {
  const std::vector<std::shared_ptr<grpc::Channel>> channels = {Connect(), Connect(), Connect()};
  for (const auto& channel : channels) Ask(channel, mine_).error_code();
  ExpectTooManyConnections(Ask(channels.back(), mine_));
  grpc::GenericStub stub(channels.back());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  Give(context, mine_);
  const grpc::Slice slice("");
  const grpc::ByteBuffer nothing(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", nothing, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

class IdleTest : public ServerTest {
 protected:
  IdleTest() { limits_.idle = absl::Seconds(1); }
};

TEST_F(IdleTest, AConnectionThatNobodyCallsOnIsClosedAndOneThatIsWatchedIsNot) {
  jobs_.Create("a");
  grpc::ClientContext watching;
  v1::WatchJobRequest watch;
  watch.set_name("jobs/a");
  const auto reader = job_stub_->WatchJob(&watching, watch);
  v1::Job job;
  ASSERT_TRUE(reader->Read(&job));
  const auto idle = ConnectTo(*server_);
  const auto ask = [&idle] {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job got;
    return v1::JobService::NewStub(idle)->GetJob(&context, request, &got);
  };
  ASSERT_TRUE(ask().ok());
  EXPECT_TRUE(idle->WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + kPatience)));
  EXPECT_TRUE(ask().ok()) << "it connects anew";
  EXPECT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  watching.TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace permafrost::api
